"""Code of a bundle beside the kernels: the functions that C calls, and constants as objects.

    void     PREFIX_run(void *arena, const void *weights, const PREFIX_io *io)
    void     PREFIX_reset(const PREFIX_io *io)
    int32_t  PREFIX_check_as(const void *arena, const void *weights, uint32_t interface)
    int32_t  PREFIX_selftest(void *arena, const void *weights)

They use no memory but what they are given and their stack, and no library but memcpy and its like.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from qglow.bundles.interface import BundleTensor, Interface, TensorRole
from qglow.bundles.shared import add_parts, part_counts
from qglow.codegen.memory import ALIGNMENT
from qglow.codegen.module import ENTRY, TEAM_ENTRY, ModuleBuilder
from qglow.core.types import Array, ElementType
from qglow.kernels.emit.builder import F32, I8, I32, I64, PTR, VOID, Value, scalar
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget

OK, ARENA, WEIGHTS, PROCESSOR, INTERFACE, DIGEST = range(6)
"""Results of `check`: fit to run; arena or weights misaligned; the processor lacks what the code needs; a
header of another build; weights of another build."""
_POLYNOMIAL = 0xEDB88320
"""Of CRC-32, as in ISO 3309 and zlib, with its bits reversed."""
_SIGN = 0x80


@dataclass(frozen=True)
class Vectors:
    """Stored inputs of the self-test and what the program makes of them, by name, as callers have them.

    tolerances: largest difference of each float output; integers have to be equal.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    tolerances: Mapping[str, float]


def program_text(builder: ModuleBuilder, interface: Interface) -> tuple[str, tuple[int, ...]]:
    """LLVM text of kernels, of `run` and, for several threads, of `part`; and the parts of every step."""
    module = builder.joint_module()
    for name in (ENTRY, TEAM_ENTRY):
        with suppress(KeyError):
            module.globals[name].linkage = "internal"
    _add_run(module, builder, interface)
    if interface.threads == 1:
        return str(module), ()

    def table(e: Emitter, arena: Value, io: Value) -> Value:
        return _table(e, builder, interface, arena, io)

    def convert_inputs(e: Emitter, arena: Value, io: Value) -> None:
        _convert_inputs(e, interface, arena, io)

    def finish(e: Emitter, arena: Value, io: Value) -> None:
        _finish(e, interface, arena, io)

    add_parts(module, builder, interface, interface.threads, table, (convert_inputs, finish))
    return str(module), part_counts(builder, interface, interface.threads)


def check_text(target: VectorTarget, interface: Interface, fingerprint: int, digest: int) -> str:
    """LLVM text of `check`, to be compiled for the base of the target: any processor of the family runs it.

    fingerprint: of the interface. digest: CRC-32 of the weights.
    """
    module = _module(target.base)
    e = _function(module, target.base, f"{interface.prefix}_check_as", I32, [PTR, PTR, I32])
    arena, weights, given = e.function.args
    same = e.b.icmp_unsigned("==", given, ir.Constant(I32, fingerprint))
    _refuse_unless(e, same, INTERFACE)
    _refuse_unless(e, _is_aligned(e, arena), ARENA)
    _refuse_unless(e, _is_aligned(e, weights), WEIGHTS)
    _refuse_unless(e, target.processor_fits(e), PROCESSOR)
    found = _crc(e, weights, interface.weights)
    _refuse_unless(e, e.b.icmp_unsigned("==", found, ir.Constant(I32, digest)), DIGEST)
    e.b.ret(ir.Constant(I32, OK))
    return str(module)


def weights_text(target: VectorTarget, interface: Interface, weights: Array) -> str:
    """LLVM text of the constants as an object, for programs that have them in their own image."""
    module = _module(target)
    _add_bytes(module, f"{interface.prefix}_weights", weights, exported=True)
    return str(module)


def reset_text(target: VectorTarget, interface: Interface) -> str:
    """LLVM text of the function with which states begin anew."""
    module = _module(target)
    e = _function(module, target, f"{interface.prefix}_reset", VOID, [PTR])
    (io,) = e.function.args
    for tensor in interface.states:
        size = tensor.element.size
        element = ir.Constant(ir.IntType(8 * size), int.from_bytes(tensor.start.tobytes(), "little"))
        address = _given(e, interface, tensor.name, io)
        with e.loop(0, tensor.byte_size, size) as place:
            e.store(element, e.offset(address, place), align=size)
    e.b.ret_void()
    return str(module)


def selftest_text(target: VectorTarget, interface: Interface, vectors: Vectors) -> str:
    """LLVM text of the self-test with its vectors."""
    module, prefix = _module(target), interface.prefix
    run = ir.Function(module, ir.FunctionType(VOID, [PTR] * 3), f"{prefix}_run")
    e = _function(module, target, f"{prefix}_selftest", I32, [PTR, PTR])
    arena, weights = e.function.args
    places = interface.selftest_places()
    io = e.b.alloca(ir.ArrayType(I8, max(1, len(interface.tensors)) * target.pointer_bytes))
    io.align, io.type = target.pointer_bytes, PTR
    for number, tensor in enumerate(interface.tensors):
        if tensor.role is TensorRole.INPUT:
            stored = np.ascontiguousarray(vectors.inputs[tensor.name])
            address = _add_bytes(module, f"{prefix}_given{number}", stored)
        else:
            address = e.offset(arena, places[tensor.name])
        e.store(address, e.offset(io, number * target.pointer_bytes))
    if interface.states:
        reset = ir.Function(module, ir.FunctionType(VOID, [PTR]), f"{prefix}_reset")
        e.b.call(reset, [io])
    e.b.call(run, [arena, weights, io])
    for number, tensor in enumerate((*interface.outputs, *interface.declared)):
        output = tensor.output or tensor.name
        expected = np.ascontiguousarray(vectors.outputs[output])
        wanted = _add_bytes(module, f"{prefix}_expected{number}", expected)
        got = e.offset(arena, places[tensor.name])
        if tensor.element is ElementType.FLOAT:
            tolerance = vectors.tolerances.get(output, 0.0)
            _compare_floats(e, got, wanted, tensor, tolerance, number + 1)
        else:
            _compare_bytes(e, got, wanted, tensor.byte_size, number + 1)
    e.b.ret(ir.Constant(I32, 0))
    return str(module)


def table_text(target: VectorTarget, interface: Interface) -> str:
    """LLVM text of the table of tensors."""
    module, prefix = _module(target), interface.prefix
    kind = ir.LiteralStructType([PTR, PTR, I32, I32, I32, I32, F32, I32])
    entries = []
    for number, tensor in enumerate(interface.tensors):
        text = np.frombuffer(tensor.name.encode("utf-8", "backslashreplace") + b"\0", np.uint8)
        name = _add_bytes(module, f"{prefix}_name{number}", text)
        shape = _add_bytes(module, f"{prefix}_shape{number}", np.array(tensor.kind.shape, np.int32))
        role = list(TensorRole).index(tensor.role)
        numbers = len(tensor.kind.shape), tensor.byte_size, tensor.element_number, role
        words = [ir.Constant(I32, value) for value in numbers]
        last = [ir.Constant(F32, tensor.scale), ir.Constant(I32, tensor.zero_point)]
        entries.append(ir.Constant(kind, [name, shape, *words, *last]))
    whole = ir.ArrayType(kind, len(entries))
    table = ir.GlobalVariable(module, whole, f"{prefix}_tensors")
    table.initializer, table.global_constant = ir.Constant(whole, entries), True
    table.align = target.pointer_bytes
    return str(module)


def crc32(data: Array) -> int:
    """CRC-32 of bytes."""
    return zlib.crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)


def _module(target: VectorTarget) -> Any:
    module = ir.Module("bundle")
    module.triple = target.triple
    return module


def _function(module: Any, target: VectorTarget, name: str, result: Any, kinds: list[Any]) -> Emitter:
    function = ir.Function(module, ir.FunctionType(result, kinds), name)
    function.attributes.add("nounwind")
    return Emitter(function, target)


def _add_bytes(module: Any, name: str, data: Array, exported: bool = False) -> Value:
    """An aligned constant of these bytes; returns its address."""
    content = bytearray(np.ascontiguousarray(data).reshape(-1).view(np.uint8).tobytes()) or bytearray(1)
    kind = ir.ArrayType(I8, len(content))
    value = ir.GlobalVariable(module, kind, name)
    value.initializer = ir.Constant(kind, content)
    value.global_constant = True
    value.align = ALIGNMENT
    if not exported:
        value.linkage = "internal"
    value.type = PTR
    return value


def _add_run(module: Any, builder: ModuleBuilder, interface: Interface) -> None:
    target = builder.target
    e = _function(module, target, f"{interface.prefix}_run", VOID, [PTR] * 3)
    arena, weights, io = e.function.args
    _convert_inputs(e, interface, arena, io)
    e.b.call(module.globals[ENTRY], [arena, weights, _table(e, builder, interface, arena, io)])
    _finish(e, interface, arena, io)
    e.b.ret_void()


def _table(e: Emitter, builder: ModuleBuilder, interface: Interface, arena: Value, io: Value) -> Value:
    """The addresses of placeholders in the builder's order; converted inputs lie in the arena, and outputs
    that states take over."""
    size = e.target.pointer_bytes
    table = e.b.alloca(ir.ArrayType(I8, max(1, len(builder.placeholders)) * size))
    table.align, table.type = size, PTR
    copies = interface.converted_inputs() | interface.kept_outputs()
    for place, name in enumerate(builder.placeholders):
        address = e.offset(arena, copies[name]) if name in copies else _given(e, interface, name, io)
        e.store(address, e.offset(table, place * size), align=size)
    return table


def _convert_inputs(e: Emitter, interface: Interface, arena: Value, io: Value) -> None:
    copies = interface.converted_inputs()
    for tensor in interface.tensors:
        if tensor.name in copies:
            place = e.offset(arena, copies[tensor.name])
            _flip_signs(e, _given(e, interface, tensor.name, io), place, tensor.byte_size)


def _finish(e: Emitter, interface: Interface, arena: Value, io: Value) -> None:
    """Emit what follows the program: conversion of outputs, and states for the next run."""
    for tensor in interface.outputs:
        if tensor.is_converted(interface.bias):
            address = _given(e, interface, tensor.name, io)
            _flip_signs(e, address, address, tensor.byte_size)
    places = interface.kept_outputs()
    for tensor in interface.declared:
        change = _flip_signs if tensor.is_converted(interface.bias) else _copy
        source = e.offset(arena, places[tensor.output])
        change(e, source, _given(e, interface, tensor.name, io), tensor.byte_size)


def _given(e: Emitter, interface: Interface, name: str, io: Value) -> Value:
    """The address that the caller gives for a tensor."""
    size = e.target.pointer_bytes
    number = next(n for n, tensor in enumerate(interface.tensors) if tensor.name == name)
    return e.load(e.offset(io, number * size), PTR, align=size)


def _flip_signs(e: Emitter, source: Value, result: Value, size: int) -> None:
    """Add 128 to every byte, modulo 256: int8 as biased bytes, or the other way round."""
    _for_bytes(e, source, result, size, lambda value, kind: e.b.xor(value, scalar(kind, _SIGN)))


def _copy(e: Emitter, source: Value, result: Value, size: int) -> None:
    _for_bytes(e, source, result, size, lambda value, kind: value)


def _for_bytes(
    e: Emitter, source: Value, result: Value, size: int, change: Callable[[Value, Any], Value]
) -> None:
    lanes = e.target.byte_lanes
    whole = size - size % lanes
    for first, last, count in ((0, whole, lanes), (whole, size, 1)):
        if first < last:
            with e.loop(first, last, count) as place:
                kind = ir.VectorType(I8, count) if count > 1 else I8
                value = e.load(e.offset(source, place), kind)
                e.store(change(value, kind), e.offset(result, place))


def _refuse_unless(e: Emitter, condition: Value, result: int) -> None:
    with e.when(e.b.not_(condition), likely=False):
        e.b.ret(ir.Constant(I32, result))


def _is_aligned(e: Emitter, pointer: Value) -> Value:
    rest = e.b.and_(e.b.ptrtoint(pointer, I64), e.index(ALIGNMENT - 1))
    return e.b.icmp_unsigned("==", rest, e.index(0))


def _crc(e: Emitter, data: Value, size: int) -> Value:
    """CRC-32 of memory, four bits at a time."""
    table = [_nibble(number) for number in range(16)]
    kind = ir.ArrayType(I32, 16)
    values = ir.GlobalVariable(e.module, kind, "crc32_of_nibbles")
    values.initializer = ir.Constant(kind, [ir.Constant(I32, entry) for entry in table])
    values.global_constant, values.linkage = True, "internal"
    values.type = PTR
    with e.carrying_loop(0, size, [ir.Constant(I32, -1)]) as carry:
        (crc,) = carry.values
        crc = e.b.xor(crc, e.b.zext(e.load(e.offset(data, carry.index), I8), I32))
        for _ in range(2):
            low = e.b.zext(e.b.and_(crc, ir.Constant(I32, 15)), I64)
            entry = e.load(e.offset(values, e.scaled(low, 4)), I32, align=4)
            crc = e.b.xor(e.b.lshr(crc, ir.Constant(I32, 4)), entry)
        carry.next([crc])
    return e.b.not_(carry.values[0])


def _nibble(number: int) -> int:
    for _ in range(4):
        number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
    return number


def _compare_bytes(e: Emitter, got: Value, wanted: Value, size: int, result: int) -> None:
    with e.loop(0, size) as place:
        values = (e.load(e.offset(pointer, place), I8) for pointer in (got, wanted))
        _refuse_unless(e, e.b.icmp_unsigned("==", *values), result)


def _compare_floats(
    e: Emitter, got: Value, wanted: Value, tensor: BundleTensor, tolerance: float, result: int
) -> None:
    """Compare float32 within a tolerance; equal bits pass, so that infinities do, and any NaN is a NaN."""
    with e.loop(0, tensor.byte_size // 4) as number:
        place = e.scaled(number, 4)
        left, right = (e.load(e.offset(pointer, place), F32) for pointer in (got, wanted))
        near = e.intrinsic("llvm.fabs", e.b.fsub(left, right))
        fits = e.b.fcmp_ordered("<=", near, ir.Constant(F32, tolerance))
        same = e.b.icmp_unsigned("==", e.b.bitcast(left, I32), e.b.bitcast(right, I32))
        both = e.b.and_(e.b.fcmp_unordered("uno", left, left), e.b.fcmp_unordered("uno", right, right))
        _refuse_unless(e, e.b.or_(e.b.or_(fits, same), both), result)
