"""Checks that a target can do what a caller wants; the error says what it lacks."""

from __future__ import annotations

from collections.abc import Callable

from qglow.core.errors import UsageError
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.protocol import RunningTarget, SteppedTarget, Target, TimedTarget


def running(target: Target) -> RunningTarget:
    """Return the target if this host runs it. Raises UsageError if it does not."""
    refused = target.refusal()
    if refused is not None:
        raise UsageError(f"this host cannot run ISA '{target.description.name}' ({refused})")
    if isinstance(target, RunningTarget):
        return target
    raise UsageError(_lacks(target, "gives no programs that Python can call"))


def timed(target: Target) -> TimedTarget:
    """Return the target if its instructions can be timed here. Raises UsageError if they cannot."""
    found = running(target)
    if isinstance(found, TimedTarget):
        return found
    raise UsageError(_lacks(target, "has no clock for instructions"))


def stepped(target: Target) -> SteppedTarget:
    """Return the target if its programs run kernel by kernel here. Raises UsageError if they do not."""
    found = running(target)
    if isinstance(found, SteppedTarget):
        return found
    raise UsageError(_lacks(target, "does not stop between instructions"))


def machine(target: Target) -> VectorTarget:
    """The description that the target's kernels are selected for. Raises UsageError if it has none."""
    if target.machine is not None:
        return target.machine
    raise UsageError(_lacks(target, "has no kernels"))


def form(target: Target, name: str) -> Callable[[Program], str]:
    """Function that writes a planned program in a language of the target. Raises UsageError without one."""
    if name in target.forms:
        return target.forms[name]
    raise UsageError(_lacks(target, f"has no text in the form '{name}'"))


def _lacks(target: Target, what: str) -> str:
    return f"target '{target.description.name}' {what}; choose another `isa` (see qglow targets)"
