"""Every multiplication of a target does what its reference in numpy says, on operands that reach the ends."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from qglow.codegen.jit import link
from qglow.codegen.memory import aligned_bytes
from qglow.codegen.target import object_code
from qglow.core.types import Array
from qglow.kernels.emit.builder import I8, I16, I32, PTR, VOID, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile, lane_products, matrix_products, saturated_pairs
from qglow.targets.portable.description import WORDS
from qglow.targets.x86.amx import REGISTERS, ROW_BYTES, TILE_BYTES, Registers
from qglow.targets.x86.isas import AMX_EMULATED, GENERIC
from tests.portable_target import PORTABLE
from tests.runtimes import NATIVE, RUNNABLE

TYPES = {"u8": np.uint8, "s8": np.int8, "s16": np.int16}
ROUNDS = 50
VECTOR_TILES = [
    (isa, tile, bits)
    for isa in (*RUNNABLE, PORTABLE)
    for tile in isa.tiles
    for bits in (128, 256, 512)
    if tile.is_vector and (bits == isa.register_bits or (tile.is_exact and bits < isa.register_bits))
]
VECTOR_TILES.append((PORTABLE, WORDS, 128))  # operands of half a register


def draw(random: np.random.Generator, kind: str, size: int | tuple[int, int]) -> Array:
    """Operands of an element type, half of them at the ends of its range; words as bytes are widened."""
    limits = np.iinfo(TYPES[kind] if kind != "s16" else np.int8)
    low, high = (limits.min, limits.max) if kind != "s16" else (-128, 255)
    values = random.integers(low, high, size, endpoint=True)
    ends = random.choice([low, high], size)
    return np.where(random.random(size) < 0.5, ends, values).astype(TYPES[kind])


def run(isa: VectorTarget, text: str, memory: Array) -> None:
    """Call `f(memory)` of an LLVM module."""
    linked = link([object_code(text, isa)], isa, ["f"])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.addresses["f"])(memory.ctypes.data)


def started(isa: VectorTarget) -> Emitter:
    module = ir.Module("tile")
    module.triple = isa.triple
    return Emitter(ir.Function(module, ir.FunctionType(VOID, [PTR]), "f"), isa)


@pytest.mark.parametrize(
    ("isa", "tile", "bits"),
    VECTOR_TILES,
    ids=[f"{isa.name}-{tile.name}-{n}" for isa, tile, n in VECTOR_TILES],
)
def test_vector_tile_is_its_reference(isa: VectorTarget, tile: Tile, bits: int) -> None:
    lanes = bits // 32
    e = started(isa)
    (memory,) = e.function.args
    element = I16 if tile.lhs == "s16" else I8
    kind, size = vec(element, lanes * tile.k), bits // 8
    lhs, rhs = (e.load(e.offset(memory, size * place), kind) for place in (1, 2))
    e.store(tile.add(e, e.load(memory, vec(I32, lanes)), lhs, rhs), memory)
    e.b.ret_void()
    random, room = np.random.default_rng(lanes), aligned_bytes(3 * size)
    text = str(e.module)
    linked = link([object_code(text, isa)], isa, ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.addresses["f"])
    for _ in range(ROUNDS):
        sums = random.integers(-(1 << 31), 1 << 31, lanes).astype(np.int32)
        left, right = (draw(random, name, lanes * tile.k) for name in (tile.lhs, tile.rhs))
        for place, part in enumerate((sums, left, right)):
            room[size * place :][: part.nbytes] = part.view(np.uint8)
        call(room.ctypes.data)
        assert np.array_equal(room[:size].view(np.int32), tile.reference(sums, left, right))


@pytest.mark.parametrize(
    ("isa", "tile"), [(isa, tile) for isa in RUNNABLE for tile in isa.tiles if tile.join is not None]
)
@pytest.mark.parametrize("steps", [2, 3, 4])
def test_joined_steps_are_steps_one_by_one(isa: VectorTarget, tile: Tile, steps: int) -> None:
    lanes, size = isa.register_bits // 32, isa.register_bits // 8
    e = started(isa)
    (memory,) = e.function.args
    kind = vec(I8, lanes * tile.k)
    parts = [e.load(e.offset(memory, size * place), kind) for place in range(1, 2 * steps + 1)]
    joined = list(zip(parts[0::2], parts[1::2], strict=True))
    e.store(tile.add_all(e, e.load(memory, vec(I32, lanes)), joined), memory)
    e.b.ret_void()
    random, room = np.random.default_rng(steps), aligned_bytes((1 + 2 * steps) * size)
    linked = link([object_code(str(e.module), isa)], isa, ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.addresses["f"])
    most = 128 // steps // 2  # the largest weights whose sums stay within 16 bits
    for _ in range(ROUNDS):
        sums = random.integers(-(1 << 31), 1 << 31, lanes).astype(np.int32)
        expected = sums
        room[:size] = sums.view(np.uint8)
        for step in range(steps):
            left = draw(random, tile.lhs, lanes * tile.k)
            right = random.choice([-most, most, 1], lanes * tile.k).astype(np.int8)
            for place, part in enumerate((left, right), 1 + 2 * step):
                room[size * place :][:size] = part.view(np.uint8)
            expected = tile.reference(expected, left, right)
        call(room.ctypes.data)
        assert np.array_equal(room[:size].view(np.int32), expected)


@pytest.mark.skipif(GENERIC not in NATIVE, reason="the host is no x86-64")
def test_matrix_tile_is_its_reference() -> None:
    """Of AMX, by its emulation, which is plain code."""
    (tile,) = (tile for tile in AMX_EMULATED.tiles if not tile.is_vector)
    e = started(GENERIC)
    (memory,) = e.function.args
    registers = Registers(e, emulated=True)
    registers.configure([tile.m] * REGISTERS)
    for register in range(3):
        registers.load(register, e.offset(memory, register * TILE_BYTES), ROW_BYTES)
    registers.multiply(0, 1, 2)
    registers.store(0, memory, ROW_BYTES)
    e.b.ret_void()
    random, room = np.random.default_rng(1), aligned_bytes(3 * TILE_BYTES)
    sums = random.integers(-(1 << 31), 1 << 31, (tile.m, tile.n)).astype(np.int32)
    lhs, rhs = draw(random, tile.lhs, (tile.m, tile.k)), draw(random, tile.rhs, (tile.k // 4, 4 * tile.n))
    room[:] = np.concatenate([part.reshape(-1).view(np.uint8) for part in (sums, lhs, rhs)])
    run(GENERIC, str(e.module), room)
    assert np.array_equal(
        room[:TILE_BYTES].view(np.int32).reshape(tile.m, tile.n), tile.reference(sums, lhs, rhs)
    )


def test_references() -> None:
    assert lane_products(np.array([1]), np.array([2, 3]), np.array([5, 7])).tolist() == [32]
    assert lane_products(np.array([(1 << 31) - 1]), np.array([1, 0]), np.array([1, 0])).tolist() == [
        -(1 << 31)
    ]
    full = np.array([255] * 4), np.array([127] * 4)
    assert saturated_pairs(np.array([0]), *full).tolist() == [2 * 32767]
    lhs, rhs = np.arange(8).reshape(2, 4), np.arange(8).reshape(1, 8)
    expected = lhs @ np.array([[0, 4], [1, 5], [2, 6], [3, 7]])
    assert np.array_equal(matrix_products(np.zeros((2, 2), int), lhs, rhs), expected)
