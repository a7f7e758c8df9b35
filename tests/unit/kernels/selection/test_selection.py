"""Kernel selection keeps the rules of the instruction IR."""

from __future__ import annotations

import numpy as np

from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.text import parse_program
from qglow.instructions.verifier import verify_program
from qglow.targets.registry import select_target

STACKED_PRODUCER = """function f
declare {
  %w = WeightVar i8<16 x 3 x 3 x 16> const
  %b = WeightVar i32<16> const
  %m = WeightVar float<16> const
  %x = WeightVar i8[S:0.5 O:1]<1 x 8 x 8 x 16> mutable
  %y = WeightVar i8[S:0.5 O:1]<1 x 8 x 8 x 16> mutable
}
code {
  %a = allocactivation i8[S:0.5 O:0]<1 x 8 x 8 x 16>
  %z = allocactivation i8[S:0.25 O:1]<1 x 8 x 8 x 16>
  %Rescale = rescale @out %z, @in %x stack 0
  %Add = elementadd @out %a, @in %z, @in %x stack 0
  %Conv = convolution @out %y, @in %a, @in %w, @in %b, @in %m {pads=[1, 1, 1, 1]}
  %free = deallocactivation @out %a
  %free_z = deallocactivation @out %z
}
"""


def test_padding_is_filled_before_a_stack_and_not_inside() -> None:
    constants = {
        "w": np.ones((16, 3, 3, 16), np.int8),
        "b": np.zeros(16, np.int32),
        "m": np.ones(16, np.float32),
    }
    program = parse_program(STACKED_PRODUCER, constants)
    select_target(None).select(program)
    fills = [n for n, i in enumerate(program.code) if isinstance(i.operation, FillPadding)]
    stacked = [n for n, i in enumerate(program.code) if i.stack == 0]
    assert len(stacked) == 2
    assert all(fill < stacked[0] for fill in fills)
    verify_program(program, "after kernel selection")
