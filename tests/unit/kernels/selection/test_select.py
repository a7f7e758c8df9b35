"""Selection: kernels in words, padding where it may be, scratch for one instruction only."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.errors import InternalError, UnsupportedError
from qglow.core.types import ElementType, Quantization, TensorType
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.memory import Copy, FillPadding
from qglow.instructions.ops.quantize import Lookup, Rescale
from qglow.instructions.program import NO_PADDING, Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.elementwise.elementwise import Elementwise
from qglow.kernels.emit.kernel import KERNEL_CLASSES, parse_kernel
from qglow.kernels.selection.select import select_kernels
from qglow.targets.x86.isas import AVX512_VNNI, GENERIC

PARAMETERS = Quantization.per_tensor(0.1, 3)


def image(*shape: int) -> TensorType:
    return TensorType(ElementType.INT8, shape, PARAMETERS)


def before_convolution(reshaped: bool = False, twice: bool = False) -> Program:
    """src, rescaled into `value`, into a 3 x 3 convolution with padding."""
    builder = ProgramBuilder("conv")
    kind = image(1, 6, 6, 16)
    src, value = builder.placeholder("src", kind), builder.activation("value", kind)
    builder.emit("rescale", Rescale(), value, src)
    if twice:
        builder.emit("again", Rescale(), value, src)
    if reshaped:
        flat = builder.view("flat", value, image(36, 16))
        builder.emit("copy", Copy(), builder.placeholder("flat_out", image(36, 16)), flat)
    operands = (
        builder.constant("filter", np.ones((16, 3, 3, 16), np.int8)),
        builder.constant("bias", np.zeros(16, np.int32)),
        builder.constant("multiplier", np.full(16, 0.001, np.float32)),
    )
    builder.emit("conv", Convolution(pads=(1, 1, 1, 1)), builder.placeholder("dest", kind), value, *operands)
    return builder.finish()


@pytest.mark.parametrize("twice", [False, True])
def test_wished_padding_is_given_and_filled_once_before_the_first_writer(twice: bool) -> None:
    program = before_convolution(twice=twice)
    select_kernels(program, AVX512_VNNI)
    verify_program(program, "test")
    assert program.buffer("value").padding == (1, 1, 1, 1)
    opcodes = [i.operation.opcode for i in program.code if i.operation.touches_memory]
    assert opcodes == ["fillpadding", *["rescale"] * (1 + twice), "convolution"]


def test_a_buffer_that_is_reshaped_keeps_its_layout() -> None:
    program = before_convolution(reshaped=True)
    select_kernels(program, AVX512_VNNI)
    verify_program(program, "test")
    assert program.buffer("value").padding == NO_PADDING
    assert not any(isinstance(i.operation, FillPadding) for i in program.code)


def test_kernels_read_back_from_their_words() -> None:
    assert parse_kernel(Elementwise(64, True).describe(), AVX512_VNNI) == Elementwise(64, True)
    program = before_convolution()
    select_kernels(program, AVX512_VNNI)
    for instruction in program.code:
        if instruction.operation.touches_memory:
            assert parse_kernel(instruction.kernel, AVX512_VNNI).describe() == instruction.kernel
    with pytest.raises(InternalError, match="no kernel is called 'nothing'"):
        parse_kernel("nothing{lanes=3}", AVX512_VNNI)


def test_every_kernel_has_its_name() -> None:
    assert all(cls.name == name for name, cls in KERNEL_CLASSES.items())


def test_an_instruction_without_kernel_is_named() -> None:
    """A table that is no constant, as nothing makes it."""
    builder = ProgramBuilder("lookup")
    src, dest = (builder.placeholder(n, image(16)) for n in ("src", "dest"))
    table = builder.placeholder("table", TensorType(ElementType.INT8, (256,)))
    builder.emit("look_up", Lookup(), dest, src, table)
    with pytest.raises(UnsupportedError, match="%look_up: no generic kernel for lookup"):
        select_kernels(builder.finish(), GENERIC)
