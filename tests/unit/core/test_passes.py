"""Pipelines: printed, parsed, verified after each pass, stopped after any rewrite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from qglow.core.errors import TextError, UsageError
from qglow.core.passes import Pass, PassLog, Pipeline, parse_pipeline


@dataclass(frozen=True)
class Append(Pass[list[str]]):
    """Appends a word so many times; a stand-in for a rewriting pass."""

    name: ClassVar[str] = "append"

    word: str = "a"
    most_times: int = 1

    def run(self, ir: list[str], log: PassLog) -> None:
        """See the class."""
        for _ in range(self.most_times):
            if log.exhausted:
                return
            ir.append(self.word)
            log.applied("list", f"appended {self.word}")


@dataclass(frozen=True)
class Decline(Pass[list[str]]):
    """Refuses, twice, for the same reason."""

    name: ClassVar[str] = "decline"

    def run(self, ir: list[str], log: PassLog) -> None:
        """See the class."""
        log.refused("list", "it is not mine")
        log.refused("list", "it is not mine")


PASSES: list[type[Pass[list[str]]]] = [Append, Decline]


def verified(ir: list[str], where: str) -> None:
    assert "bad" not in ir, where


@pytest.mark.parametrize("text", ["", "append", 'append{word="x y", most-times=3},decline,append'])
def test_pipelines_print_as_they_are_written(text: str) -> None:
    assert str(parse_pipeline(text, PASSES)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apend", "did you mean 'append'"),
        ("append{most-time=1}", "did you mean 'most-times'"),
        ("nothing-like-it", "there are append, decline"),
    ],
)
def test_unknown_names_give_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_pipeline(text, PASSES)


def test_broken_text_says_where() -> None:
    with pytest.raises(TextError, match="column 8"):
        parse_pipeline("append append", PASSES)


def test_the_ir_is_verified_after_each_pass() -> None:
    with pytest.raises(AssertionError, match='after pass append{word="bad"}'):
        Pipeline((Append("bad"),)).run([], verified)


@pytest.mark.parametrize("budget", range(6))
def test_a_budget_stops_after_that_many_rewrites(budget: int) -> None:
    ir: list[str] = []
    log = Pipeline((Append("a", 2), Append("b", 2))).run(ir, verified, PassLog(budget))
    assert "".join(ir) == "aabb"[:budget]
    assert log.rewrites == min(budget, 4)


def test_reasons_are_kept_once_and_by_place() -> None:
    log = Pipeline((Decline(), Append())).run([], verified)
    assert log.reasons("list") == ["decline: it is not mine"]
    assert log.reasons("elsewhere") == []


def test_every_step_can_be_looked_at() -> None:
    seen: list[tuple[str, int]] = []
    Pipeline((Append(), Append("b"))).run(
        [], verified, after_each=lambda step, ir: seen.append((str(step), len(ir)))
    )
    assert seen == [("append", 1), ('append{word="b"}', 2)]
