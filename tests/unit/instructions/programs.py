"""Random programs, and running one before and after a change of its code."""

from __future__ import annotations

import random

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.elementwise import Clip, ElementAdd, ElementMul
from qglow.instructions.ops.memory import Copy
from qglow.instructions.ops.movement import Extract, Insert, Transpose
from qglow.instructions.ops.pool import MaxPool
from qglow.instructions.ops.quantize import Dequantize, Quantize, Rescale
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, Program
from qglow.instructions.verifier import verify_program

SHAPES = ((1, 2, 3, 4), (1, 4, 3, 2), (2, 2, 2, 3))
INT8 = ElementType.INT8


def random_program(seed: int, length: int = 12) -> Program:
    """A valid program of `length` random steps over float and int8 images."""
    return _RandomProgram(random.Random(seed), length).program()


def run_planned(program: Program, seed: int = 0) -> dict[str, Array]:
    """Verify, plan and interpret `program` on random inputs."""
    verify_program(program, "test")
    plan_memory(program)
    verify_program(program, "planned")
    rng = np.random.default_rng(seed)
    inputs = {}
    for buffer in program.inputs():
        if buffer.type.is_float:
            inputs[buffer.name] = rng.normal(size=buffer.type.shape).astype(np.float32)
        else:
            inputs[buffer.name] = rng.integers(-128, 128, buffer.type.shape).astype(np.int8)
    return ArenaInterpreter(program).run(inputs)


class _RandomProgram:
    def __init__(self, rng: random.Random, length: int) -> None:
        self._rng = rng
        self._length = length
        self._builder = ProgramBuilder("random")
        self._values: list[Buffer] = []
        self._count = 0

    def program(self) -> Program:
        for number in range(2):
            kind = self._rng.choice(
                [float_type(*self._rng.choice(SHAPES)), self._int8(self._rng.choice(SHAPES))]
            )
            self._values.append(self._builder.placeholder(f"in{number}", kind))
        steps = [self._unary, self._binary, self._concat, self._slice, self._transpose, self._reshape]
        steps += [self._copy, self._window, self._convolution]
        while self._count < self._length:
            self._rng.choice(steps)()
        for number, value in enumerate(self._rng.sample(self._values[2:], self._rng.choice([2, 5]))):
            result = self._builder.placeholder(f"out{number}", value.type)
            self._builder.emit(f"copy_out{number}", Copy(), result, value)
        return self._builder.finish()

    def _int8(self, shape: tuple[int, ...]) -> TensorType:
        quantization = Quantization.per_tensor(self._rng.choice([0.5, 0.25]), self._rng.choice([0, -3]))
        return TensorType(INT8, shape, quantization)

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _result(self, kind: TensorType) -> Buffer:
        name = self._name()
        buffer = self._builder.activation(name, kind)
        self._values.append(buffer)
        return buffer

    def _emit(self, operation: object, *buffers: Buffer) -> None:
        self._builder.emit(f"step{self._count}", operation, *buffers)  # type: ignore[arg-type]

    def _unary(self) -> None:
        src = self._rng.choice(self._values)
        if src.type.is_float and self._rng.random() < 0.5:
            self._emit(Clip(-0.5, 0.75), self._result(src.type), src)
        elif src.type.is_float:
            self._emit(Quantize(), self._result(self._int8(src.type.shape)), src)
        elif self._rng.random() < 0.6:
            self._emit(Rescale(), self._result(self._int8(src.type.shape)), src)
        else:
            self._emit(Dequantize(), self._result(float_type(*src.type.shape)), src)

    def _binary(self) -> None:
        lhs = self._rng.choice(self._values)
        alike = [
            v for v in self._values if v.type.shape == lhs.type.shape and v.type.element is lhs.type.element
        ]
        kind = lhs.type if lhs.type.is_float else self._int8(lhs.type.shape)
        operation = self._rng.choice([ElementAdd(), ElementMul(lo=-4.0, hi=4.0)])
        self._emit(operation, self._result(kind), lhs, self._rng.choice(alike))

    def _concat(self) -> None:
        first = self._rng.choice(self._values)
        axis = self._rng.randrange(len(first.type.shape))
        others = [v for v in self._values if self._concatenates(first.type, v.type, axis)]
        parts = [first, *self._rng.choices(others, k=self._rng.choice([1, 2]))]
        shape = list(first.type.shape)
        shape[axis] = sum(p.type.shape[axis] for p in parts)
        if shape[axis] > 12:
            return
        dest = self._result(first.type.with_shape(tuple(shape)))
        start = 0
        for part in parts:
            offsets = tuple(start if a == axis else 0 for a in range(len(shape)))
            self._emit(Insert(offsets), dest, part)
            start += part.type.shape[axis]

    @staticmethod
    def _concatenates(one: TensorType, other: TensorType, axis: int) -> bool:
        if one.element is not other.element or one.quantization != other.quantization:
            return False
        same = [a == b for a, b in zip(one.shape, other.shape, strict=False)]
        return len(one.shape) == len(other.shape) and all(same[:axis] + same[axis + 1 :])

    def _slice(self) -> None:
        src = self._rng.choice(self._values)
        shape = tuple(self._rng.randint(1, d) for d in src.type.shape)
        offsets = tuple(self._rng.randint(0, d - s) for d, s in zip(src.type.shape, shape, strict=True))
        self._emit(Extract(offsets), self._result(src.type.with_shape(shape)), src)

    def _transpose(self) -> None:
        src = self._rng.choice(self._values)
        perm = tuple(self._rng.sample(range(len(src.type.shape)), len(src.type.shape)))
        shape = tuple(src.type.shape[a] for a in perm)
        self._emit(Transpose(perm), self._result(src.type.with_shape(shape)), src)

    def _reshape(self) -> None:
        src = self._rng.choice([v for v in self._values if v.is_contiguous])
        shape = tuple(reversed(src.type.shape))
        view = self._builder.view(self._name(), src, src.type.with_shape(shape))
        self._values.append(view)

    def _copy(self) -> None:
        src = self._rng.choice(self._values)
        self._emit(Copy(), self._result(src.type), src)

    def _images(self) -> list[Buffer]:
        return [v for v in self._values if len(v.type.shape) == 4]

    def _window(self) -> None:
        src = self._rng.choice(self._images())
        batch, height, width, channels = src.type.shape
        kind = src.type.with_shape((batch, height + 1, width + 1, channels))
        if max(kind.shape) <= 8:
            self._emit(MaxPool(kernel=(2, 2), pads=(1, 1, 1, 1)), self._result(kind), src)

    def _convolution(self) -> None:
        images = [v for v in self._images() if not v.type.is_float]
        if not images:
            return
        src = self._rng.choice(images)
        batch, height, width, channels = src.type.shape
        rng = np.random.default_rng(self._count)
        number = self._count
        weights = self._builder.constant(
            f"w{number}", rng.integers(-9, 10, (3, 1, 1, channels)).astype(np.int8)
        )
        bias = self._builder.constant(f"b{number}", rng.integers(-99, 99, 3).astype(np.int32))
        factor = self._builder.constant(f"m{number}", rng.uniform(0.01, 0.1, 3).astype(np.float32))
        dest = self._result(self._int8((batch, height, width, 3)))
        self._emit(Convolution(), dest, src, weights, bias, factor)
