"""Settings of every test, and the check of skips against the list of accepted ones."""

from __future__ import annotations

import gc
from pathlib import Path

import hypothesis
import pytest

from tests.fuzzing import examples
from tests.session import SessionFolder
from tests.skips import violations

# No time limit an example: a busy machine is not a failure.
# "repeatable" draws the same examples on every run. "long" draws many new ones, from the seed that
# --hypothesis-seed gives, so that a failure can be drawn again: scripts/fuzz.sh runs it.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile(
    "long", deadline=None, derandomize=False, database=None, max_examples=examples(100), print_blob=True
)
hypothesis.settings.load_profile("repeatable")

UNIT_TESTS = Path(__file__).parent / "unit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option that keeps the cost of line coverage small."""
    parser.addoption(
        "--cov-units",
        action="store_true",
        help="with --cov: count the lines that unit tests execute which are not slow, and trace no others",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a folder for compiled kernels, which its processes share, instead of the user's."""
    if hasattr(config, "workerinput"):
        return
    config.add_cleanup(SessionFolder().remove)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests untraced that `--cov-units` leaves out; tracing slows down all Python code."""
    if not config.getoption("--cov-units"):
        return
    for item in items:
        if not item.path.is_relative_to(UNIT_TESTS) or item.get_closest_marker("slow") is not None:
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """Leave what is imported and collected to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def _skip_reasons(config: pytest.Config) -> list[str]:
    """Reasons of all skips of the session, those of worker processes included."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [] if reporter is None else reporter.stats.get("skipped", [])
    return [str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session with skips that the list does not accept."""
    if session.exitstatus == pytest.ExitCode.OK and violations(_skip_reasons(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which skips are not accepted."""
    for sentence in violations(_skip_reasons(config)):
        terminalreporter.write_line(f"error: {sentence}", red=True)
