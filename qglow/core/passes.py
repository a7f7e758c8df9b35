"""Pass machinery for both IRs: passes, their log, and pipelines that print and parse.

A pass is a frozen dataclass; its fields are its options. A pipeline prints as

    fold-batchnorm,fuse-activation{max-users=1}

and parses back. Every rewrite goes through a `PassLog`, which counts it, can stop after
rewrite *n* (so that a miscompile is bisected), and keeps the reasons of the rewrites that
did not happen.
"""

from __future__ import annotations

import dataclasses
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from qglow.core.errors import UsageError
from qglow.core.text import Lexer, format_value, parse_value

IR = TypeVar("IR")


@dataclass(frozen=True, slots=True)
class Refused:
    """A rewrite that did not happen, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Record of what a pass did (`applied`) or declined to do at a place, in words."""

    pass_name: str
    where: str
    what: str
    applied: bool
    exact: bool = True


@dataclass
class PassLog:
    """Collects rewrites and refusals; `budget` limits the number of rewrites."""

    budget: int | None = None
    entries: list[LogEntry] = field(default_factory=list)
    pass_name: str = ""
    rewrites: int = 0
    """Done so far."""
    _refused: set[LogEntry] = field(default_factory=set)

    @property
    def exhausted(self) -> bool:
        """Whether no further rewrite is allowed. Passes ask before each rewrite."""
        return self.budget is not None and self.rewrites >= self.budget

    def applied(self, where: str, what: str, exact: bool = True) -> None:
        """Record a rewrite. `exact` is False where results may change beyond rounding."""
        self.entries.append(LogEntry(self.pass_name, where, what, True, exact))
        self.rewrites += 1

    def refused(self, where: str, reason: str) -> None:
        """Record why a rewrite did not happen; the same entry is kept once."""
        entry = LogEntry(self.pass_name, where, reason, False)
        if entry not in self._refused:
            self._refused.add(entry)
            self.entries.append(entry)

    def reasons(self, where: str) -> list[str]:
        """Reasons why nothing (more) was done at this place."""
        return [f"{e.pass_name}: {e.what}" for e in self.entries if e.where == where and not e.applied]


@dataclass(frozen=True)
class Pass(ABC, Generic[IR]):
    """One step over an IR, which it changes in place. Subclasses are frozen dataclasses."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, ir: IR, log: PassLog) -> None:
        """Rewrite `ir`; ask `log.exhausted` before every rewrite and record it."""

    def __str__(self) -> str:
        options = []
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if value != option.default:
                options.append(f"{option.name.replace('_', '-')}={format_value(value)}")
        return self.name + ("{" + ", ".join(options) + "}" if options else "")


@dataclass(frozen=True)
class Pipeline(Generic[IR]):
    """Passes in order."""

    passes: tuple[Pass[IR], ...]

    def __iter__(self) -> Iterator[Pass[IR]]:
        return iter(self.passes)

    def __str__(self) -> str:
        return ",".join(str(step) for step in self.passes)

    def run(
        self,
        ir: IR,
        verify: Callable[[IR, str], None],
        log: PassLog | None = None,
        after_each: Callable[[Pass[IR], IR], None] | None = None,
    ) -> PassLog:
        """Run all passes over `ir` and its regions in place, and return the log.

        The whole is verified after each pass that rewrites, and after the last.

        `verify(ir, where)` raises VerificationError. `after_each` may dump the IR.
        """
        log = log or PassLog()
        for step in self.passes:
            if log.exhausted:
                break
            log.pass_name = step.name
            before = log.rewrites
            for part in with_regions(ir):
                step.run(part, log)
            if log.rewrites != before or step is self.passes[-1]:
                verify(ir, f"after pass {step}")
            if after_each is not None:
                after_each(step, ir)
        return log


def with_regions(ir: IR) -> Iterator[IR]:
    """The representation, behind all that its nodes or instructions hold as regions."""
    for inner in getattr(ir, "regions", tuple)():
        yield from with_regions(inner)
    yield ir


def parse_pipeline(text: str, passes: Iterable[type[Pass[IR]]]) -> Pipeline[IR]:
    """Parse `a,b{option=1}` with these passes. Raises UsageError for unknown names."""
    known = {cls.name: cls for cls in passes}
    lexer = Lexer(text)
    steps: list[Pass[IR]] = []
    while lexer.peek.kind != "end":
        name = lexer.name()
        if name not in known:
            raise UsageError(f"no pass is called '{name}'{_nearest(name, known)}")
        steps.append(_with_options(known[name], lexer))
        if lexer.peek.kind != "end":
            lexer.expect(",")
    return Pipeline(tuple(steps))


def _with_options(cls: type[Pass[IR]], lexer: Lexer) -> Pass[IR]:
    options: dict[str, Any] = {}
    names = {f.name.replace("_", "-"): f.name for f in dataclasses.fields(cls)}
    if lexer.accept("{"):
        while not lexer.accept("}"):
            name = lexer.name()
            if name not in names:
                raise UsageError(f"pass {cls.name} has no option '{name}'{_nearest(name, names)}")
            lexer.expect("=")
            options[names[name]] = parse_value(lexer)
            if not lexer.at("}"):
                lexer.expect(",")
    return cls(**options)


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(sorted(known))}"
