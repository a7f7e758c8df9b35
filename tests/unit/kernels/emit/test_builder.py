"""The loop builder: loops that run never, once and often, and values carried through them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite import binding, ir

from qglow.codegen.target import object_code, target_machine
from qglow.core.types import Array
from qglow.kernels.emit.builder import F32, I8, I32, I64, PTR, VOID, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.capabilities import machine
from qglow.targets.registry import find_target
from tests.runtimes import NATIVE


def run(emit: Callable[[Emitter, Value], None], data: Array, isa: VectorTarget = NATIVE[0]) -> Array:
    """`data` after code emitted over its address."""
    module = ir.Module("test")
    module.triple = isa.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), "entry")
    e = Emitter(function, isa)
    emit(e, function.args[0])
    e.b.ret_void()
    engine = binding.create_lljit_compiler(target_machine(isa))
    builder = binding.JITLibraryBuilder()
    builder.add_object_img(object_code(str(module), isa))
    builder.add_current_process()
    builder.export_symbol("entry")
    library = builder.link(engine, "test")
    result = data.copy()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library["entry"])(result.ctypes.data)
    return result


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 0, 1), (3, 2, 1), (0, 1, 1), (2, 9, 3), (0, 8, 2)])
@pytest.mark.parametrize("known", [True, False])
def test_loops_visit_every_index_once(start: int, stop: int, step: int, known: bool) -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        end = stop if known else e.load(e.offset(pointer, 8 * 9), I64)
        with e.loop(start, end, step) as index:
            slot = e.offset(pointer, e.scaled(index, 8))
            e.store(e.b.add(e.load(slot, I64), e.index(1)), slot)

    data = np.zeros(10, np.int64)
    data[9] = stop
    expected = data.copy()
    expected[start:stop:step] += 1
    assert np.array_equal(run(emit, data), expected)


@pytest.mark.parametrize("stop", [0, 1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_carried_values_reach_the_code_behind_the_loop(stop: int, known: bool) -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        end = stop if known else e.load(pointer, I64)
        with e.carrying_loop(0, end, [e.index(100)]) as carry:
            carry.next([e.b.add(carry.values[0], e.index(carry.index))])
        e.store(carry.values[0], e.offset(pointer, 8))

    assert run(emit, np.array([stop, 0], np.int64))[1] == 100 + sum(range(stop))


def test_a_carried_value_without_a_following_one_is_refused() -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        with e.carrying_loop(0, 4, [e.index(1)]):
            pass

    with pytest.raises(ValueError, match="following"):
        run(emit, np.zeros(1, np.int64))


@pytest.mark.parametrize("isa", NATIVE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 15, 16])
def test_masked_loads_and_stores_touch_only_their_lanes(isa: VectorTarget, count: int) -> None:
    """Stores of truncated lanes too, which LLVM 22 gets wrong for a mask of one lane."""

    def emit(e: Emitter, pointer: Value) -> None:
        words = e.b.zext(e.load_lanes(pointer, I8, 16, count), vec(I32, 16))
        words = e.intrinsic("llvm.smin", e.b.add(words, scalar(words.type, 1)), scalar(words.type, 255))
        e.store_lanes(e.b.trunc(words, vec(I8, 16)), e.offset(pointer, 32), count)

    data = np.arange(64, dtype=np.uint8)
    expected = data.copy()
    expected[32 : 32 + count] = data[:count] + 1
    assert np.array_equal(run(emit, data, isa), expected)


def test_lanes_move_as_told() -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        low = constant_vector(F32, [0, 1, 2, 3])
        high = constant_vector(F32, [4, 5, 6, 7])
        joined = e.concat([low, high])
        turned = e.shuffle(joined, None, range(7, -1, -1))
        e.store(e.insert(turned, e.extract(low, 1), 7), pointer)
        e.store(e.splat(e.extract(high, 2), 4), e.offset(pointer, 32))

    assert run(emit, np.zeros(12, np.float32)).tolist() == [7, 6, 5, 4, 3, 2, 1, 1, 6, 6, 6, 6]


def test_known_indices_are_folded() -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        assert e.plus(2, 3) == 5 and e.scaled(4, 8) == 32
        assert e.minimum(2, 3) == 2 and e.maximum(2, 3) == 3
        value = e.load(pointer, I64)
        assert e.plus(value, 0) is value and e.scaled(value, 1) is value and e.offset(pointer, 0) is pointer
        e.store(e.plus(e.minimum(value, 5), e.maximum(value, 5)), pointer)

    assert run(emit, np.array([7], np.int64))[0] == 12


@pytest.mark.parametrize("lanes", [16, 32, 64, 128])
@pytest.mark.parametrize("isa", NATIVE, ids=lambda isa: isa.name)
def test_lookup_of_every_width(isa: VectorTarget, lanes: int) -> None:
    def emit(e: Emitter, pointer: Value) -> None:
        for start in range(0, 256, lanes):
            place = e.offset(pointer, 256 + start)
            e.store(isa.look_up(e, e.load(place, vec(I8, lanes)), pointer), place)

    rng = np.random.default_rng(lanes)
    table, data = rng.integers(0, 256, 256), rng.permutation(256)
    result = run(emit, np.concatenate([table, data]).astype(np.uint8), isa)
    assert np.array_equal(result[256:], table[data])


@pytest.mark.parametrize(("target", "counted"), [("cortex-m4", "i32"), ("aarch64", "i64")])
def test_loops_count_in_the_size_of_an_address(target: str, counted: str) -> None:
    isa = machine(find_target(target))
    module = ir.Module("test")
    e = Emitter(ir.Function(module, ir.FunctionType(VOID, [PTR]), "entry"), isa)
    with e.loop(0, e.load(e.function.args[0], I64)) as index:
        e.store(index, e.function.args[0])
    e.b.ret_void()
    assert index.type == I64
    phis = [line for line in str(module).splitlines() if " phi " in line]
    assert len(phis) == 1 and f"phi  {counted} " in phis[0]
