"""Skips are held to the list of accepted ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.skips import Accepted, violations

pytest_plugins = ["pytester"]
ACCEPTED = (Accepted(r"needs \w+", 2),)


def test_accepted_skips_violate_nothing() -> None:
    assert violations(["needs gold", "needs silver"], ACCEPTED) == []


def test_one_skip_too_many_is_told() -> None:
    (told,) = violations(["needs gold"] * 3, ACCEPTED)
    assert told.startswith("3 skipped, tests/skips.py accepts 2")


def test_unknown_reason_is_told() -> None:
    (told,) = violations(["needs gold", "no time"], ACCEPTED)
    assert told.endswith("does not accept: no time")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_session_with_unknown_skip_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    conftest = Path(__file__).with_name("conftest.py").read_text()
    pytester.makeconftest(conftest)
    pytester.makepyfile('import pytest\n\n\ndef test_nothing():\n    pytest.skip("no time")\n')
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", str(workers))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: 1 skipped for a reason that * does not accept: no time"])
