"""The reference in Markdown has every command, option and key, whatever is declared."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import typer

from qglow.cli.main import COMMANDS, app
from qglow.cli.reference import commands_markdown, markdown, recipe_markdown
from qglow.recipe import DataMapping, Match, Preprocessing, Recipe, Rule


@pytest.mark.parametrize("name", COMMANDS)
def test_section_of_a_command_has_all_its_options(name: str) -> None:
    (section,) = re.findall(rf"^## qglow {name}\n(.*?)(?=^## |\Z)", commands_markdown(), re.M | re.S)
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    cells = "\n".join(re.findall(r"^\| (`.*?`) \|", section, re.M))
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            flag = parameter.opts[0].removeprefix("--")
            assert re.search(rf"`(-\w, )?--(\[no-\])?{flag}[ `]", cells) or f"`{parameter.opts[0]}" in cells
    assert f"qglow {name}" in section.split("```sh")[1]


def test_rows_have_as_many_cells_as_their_table() -> None:
    width = 0
    for line in markdown().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = cells if width == 0 else width
        assert cells in (0, width), line
        width = width if cells else 0


def test_keys_of_recipes_are_all_there_with_their_defaults() -> None:
    text = recipe_markdown()
    for kind, prefix in ((Recipe, ""), (Preprocessing, "preprocessing."), (DataMapping, "data.")):
        for field in dataclasses.fields(kind):
            if field.name not in ("preprocessing", "data"):
                assert f"| `{prefix}{field.name}` | " in text
    for key in ("match.name", "match.operator", "match.from", "match.to", "match.role"):
        assert f"| `{key}` |" in text
    choices = [field.name for field in dataclasses.fields(Rule) if field.name != "match"]
    assert all(f"`{name}`" in text for name in choices)
    assert len(dataclasses.fields(Match)) == 5 and len(dataclasses.fields(Rule)) == 11
    assert "| `equalize` | `true` |" in text and "| `calibration` | `default` |" in text
