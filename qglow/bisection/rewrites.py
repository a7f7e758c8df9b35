"""The first rewrite of a list of passes that changes results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qglow.bisection.difference import Difference, first_difference
from qglow.bisection.passes import Steps, run_steps
from qglow.bisection.texts import copy_program
from qglow.core.errors import VerificationError
from qglow.core.passes import LogEntry, PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program


@dataclass(frozen=True)
class RewriteDifference:
    """The rewrite after which results differ from those before any.

    number: it is the how-manyth, from 1. entry: the pass, the place and what it did. before, after: what it
    found and what it left; `after` is None if the verifier refuses that.
    """

    number: int
    entry: LogEntry
    difference: Difference
    before: Graph | Program
    after: Graph | Program | None


@dataclass(frozen=True)
class _State:
    """State of an IR after so many rewrites, and its outputs; `broken` is the verifier's message on it."""

    log: PassLog
    ir: Graph | Program | None
    outputs: Mapping[str, Array]
    broken: str = ""


def first_rewrite(
    ir: Graph | Program, steps: Steps, inputs: Mapping[str, Array], tolerance: float
) -> RewriteDifference | None:
    """The first rewrite of `steps` after which the interpreter's outputs differ; None if none does.

    Found by halving the number of rewrites: exact where results, once different, stay different. `ir` stays
    as it is. Passes may round floats otherwise, which `tolerance` allows, as in `difference`.
    """
    expected = _run(ir, steps, 0, inputs).outputs

    def compared(state: _State) -> Difference | None:
        if state.broken:
            return Difference("", state.broken)
        return first_difference(expected, state.outputs, tolerance)

    whole = _run(ir, steps, None, inputs)
    if compared(whole) is None:
        return None
    same, differs, found = 0, max(whole.log.rewrites, 1), whole
    while differs - same > 1:
        middle = (same + differs) // 2
        state = _run(ir, steps, middle, inputs)
        if compared(state) is None:
            same = middle
        else:
            differs, found = middle, state
    found = _run(ir, steps, differs, inputs)
    before = _run(ir, steps, same, inputs).ir
    told = compared(found)
    assert before is not None and told is not None
    entry = [entry for entry in found.log.entries if entry.applied][differs - 1]
    return RewriteDifference(differs, entry, told, before, found.ir)


def outputs_of(ir: Graph | Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name in the interpreter of the IR."""
    if isinstance(ir, Graph):
        return Interpreter(ir).run(inputs)
    planned = copy_program(ir)
    plan_memory(planned)
    return ArenaInterpreter(planned).run(inputs)


def _run(ir: Graph | Program, steps: Steps, budget: int | None, inputs: Mapping[str, Array]) -> _State:
    log = PassLog(budget=budget)
    work = ir.copy() if isinstance(ir, Graph) else copy_program(ir)
    try:
        left = run_steps(work, steps, log)
    except VerificationError as error:
        return _State(log, None, {}, str(error))
    return _State(log, left, outputs_of(left, inputs))
