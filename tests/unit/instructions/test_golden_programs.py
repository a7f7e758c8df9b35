"""Golden listings: programs before and after passes.

A file of tests/text/instructions holds cases, separated by lines of equals signs:

    ### what the case shows
    passes: share-buffers
    function ...
    => the listing that comes out, or
    => unchanged: a reason that the log must hold
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from qglow.core.passes import PassLog, parse_pipeline
from qglow.instructions.passes import ALL_PASSES
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program

DIRECTORY = Path(__file__).parents[2] / "text" / "instructions"


@dataclass(frozen=True)
class Case:
    """One case of a golden file."""

    name: str
    passes: str
    before: str
    after: str

    @property
    def reason(self) -> str | None:
        """Why nothing changes, where nothing does."""
        prefix = "unchanged: "
        return self.after.removeprefix(prefix).strip() if self.after.startswith(prefix) else None


def read_cases(path: Path) -> list[Case]:
    """All cases of a file."""
    cases = []
    for chunk in path.read_text().split("### ")[1:]:
        title, _, rest = chunk.partition("\n")
        passes, _, rest = rest.partition("\n")
        before, _, after = rest.partition("=>")
        name = f"{path.stem}: {title}"
        cases.append(Case(name, passes.removeprefix("passes: "), before, after.strip() + "\n"))
    return cases


CASES = [case for path in sorted(DIRECTORY.glob("*.txt")) for case in read_cases(path)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_passes_turn_the_listing_into_the_expected_one(case: Case) -> None:
    program = parse_program(case.before)
    verify_program(program, "golden input")
    log = PassLog()
    parse_pipeline(case.passes, ALL_PASSES).run(program, verify_program, log)
    if case.reason is None:
        assert print_program(program) == case.after
        return
    assert print_program(program) == case.before
    assert case.reason in [entry.what for entry in log.entries if not entry.applied]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_listings_survive_parsing(case: Case) -> None:
    listings = [case.before] if case.reason is not None else [case.before, case.after]
    for text in listings:
        assert print_program(parse_program(text)) == text


def test_there_are_cases_of_every_pass() -> None:
    covered = {name for case in CASES for name in case.passes.split(",")}
    assert {cls.name for cls in ALL_PASSES} <= covered
