"""The memory of a program, placed within the limit of the process."""

from __future__ import annotations

from qglow.core.memory import require_memory
from qglow.instructions.plan import MemoryPlan, program_memory
from qglow.instructions.program import Program
from qglow.targets.protocol import Target


def plan_within_limit(program: Program, target: Target, *, reuse: bool = True) -> MemoryPlan:
    """Place activations as `Target.plan`. Raises MemoryLimitError before any of the memory is taken."""
    plan = target.plan(program, reuse=reuse)
    require_memory(program_memory(program), f"program '{program.name}'")
    return plan
