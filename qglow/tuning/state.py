"""File of the results of a search, so that an interrupted search can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qglow.core.errors import InputFileError
from qglow.core.files import write_atomically
from qglow.core.reading import MALFORMED, parse_json, read_text
from qglow.recipe.loading import parse_recipe
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix
from qglow.tuning.order import Promotion
from qglow.tuning.search import Figures

FORMAT = "qglow tuning"
VERSION = 2


@dataclass
class State:
    """Results of a search that need not be computed again.

    about: all that the results depend on, by name: digests and options. recipe: that of plain int8; None
    before it is known. steps: in their order; None before it is known. figures: by number of steps.
    """

    about: Mapping[str, str]
    recipe: Recipe | None = None
    steps: list[Promotion] | None = None
    figures: dict[int, Figures] = field(default_factory=dict)


def load_state(path: Path, about: Mapping[str, str]) -> State:
    """Return the state in a file, or a new one if there is no file or if it has no results yet.

    Raises InputFileError for a file that is damaged, or whose results depend on something else than `about`.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return State(about)
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"cannot read the state {path}: {error}") from error
    try:
        state = _parsed(parse_json(text), str(path))
    except MALFORMED as error:
        raise InputFileError(f"{path} is not a state of qglow tune, or damaged: remove it") from error
    if state.steps is None:
        return State(about)  # no results, so it does not matter what they would depend on
    different = [name for name in about if state.about.get(name) != about[name]]
    if different:
        raise InputFileError(
            f"{path} is of a search with another {different[0]}; remove it, or name another file (`state`)"
        )
    return state


def save_state(path: Path, state: State) -> None:
    """Write a state, whole or not at all. Raises InputFileError."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "about": dict(state.about),
        "recipe": None if state.recipe is None else state.recipe.to_yaml(),
        "steps": None if state.steps is None else [asdict(step) for step in state.steps],
        "figures": {str(count): asdict(figures) for count, figures in state.figures.items()},
    }
    write_atomically(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _parsed(document: dict[str, Any], where: str) -> State:
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
    recipe, steps = document["recipe"], document["steps"]
    return State(
        {str(name): str(value) for name, value in document["about"].items()},
        None if recipe is None else parse_recipe(recipe, where),
        None if steps is None else [_step(step) for step in steps],
        {int(count): _figures(figures) for count, figures in document["figures"].items()},
    )


def _step(document: Mapping[str, Any]) -> Promotion:
    given = document["mix"]
    mix = Mix(*(_names(given[field]) for field in ("keep_float", "int16")), *map(_names, _halves(given)))
    return Promotion(mix, float(document["noise"]), float(document["cycles"]))


def _halves(mix: Mapping[str, Any]) -> list[Sequence[Any]]:
    """Nodes in 16-bit floats, which older files do not have."""
    return [mix.get(field, ()) for field in ("float16", "bfloat16")]


def _names(document: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in document)


def _figures(document: Mapping[str, Any]) -> Figures:
    reference = document["reference"]
    return Figures(
        str(document["measure"]),
        float(document["accuracy"]),
        None if reference is None else float(reference),
        float(document["sqnr_db"]),
        float(document["latency_ms"]),
        int(document["weight_bytes"]),
        bool(document.get("lower_is_better", False)),
        None if document.get("drop_error") is None else float(document["drop_error"]),
    )
