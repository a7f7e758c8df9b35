"""Calls of a program in LLVM: of kernels, of Python, and of the programs inside of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from qglow.codegen.calls import Call
from qglow.codegen.functions import Functions
from qglow.codegen.places import OperandPlaces, Roots, with_bodies
from qglow.codegen.structured import emit_structured
from qglow.kernels.emit.builder import I64, PTR, VOID, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget


class CallEmitter:
    """Emits calls into functions of one module, and the functions of programs inside of instructions.

    functions: those that kernels are called by. hosted: calls that Python executes, by their numbers.
    """

    def __init__(
        self,
        module: Any,
        functions: Functions,
        target: VectorTarget,
        places: OperandPlaces,
        hosted: Sequence[Call],
    ) -> None:
        self._module, self._functions, self._target = module, functions, target
        self._places, self._hosted = places, hosted
        self._bodies: dict[tuple[Call, int], Any] = {}

    def emit_all(self, e: Emitter, roots: Roots, calls: Sequence[Call], share: tuple[Value, Value]) -> None:
        """Emit calls in their order."""
        for call in calls:
            self.emit(e, roots, call, share)

    def emit(self, e: Emitter, roots: Roots, call: Call, share: tuple[Value, Value]) -> None:
        """Emit a call; `share` is the number of the part to do, and the number of parts."""
        arguments = [self._places.address(e, roots, buffer) for buffer in call.buffers]
        if call.hosted:
            self._call_host(e, roots, call, arguments)
            return
        if call.bodies:
            self._run_bodies(e, roots, call, arguments)
            return
        arguments += [e.offset(roots.weights, offset) for offset in self._places.packed(call)]
        arguments += [e.load(self._places.address(e, roots, count), I64) for count in call.counts]
        e.b.call(self._functions.callee(call, self._module), [*arguments, *share])

    def _run_bodies(self, e: Emitter, roots: Roots, call: Call, arguments: Sequence[Value]) -> None:
        hosts = [any(inner.hosted for inner in with_bodies(calls)) for calls in call.bodies]

        def run(number: int, arena: Value, table: Value) -> None:
            first = len(call.group[0].operation.bodies[number].placeholders)
            for place in (0, 1) if hosts[number] else ():
                target = e.offset(table, self._target.pointer_bytes * (first + place))
                e.store(roots.pointer(roots.host_at + place), target, align=self._target.pointer_bytes)
            e.b.call(self._body(call, number), [arena, roots.weights, table])

        emit_structured(e, call.group[0], arguments, run, 2 if any(hosts) else 0)

    def _body(self, call: Call, number: int) -> Any:
        """The function of a program inside of an instruction, emitted when it is first called."""
        known = self._bodies.get((call, number))
        if known is not None:
            return known
        name = f"qglow_body{len(self._bodies)}"
        function = ir.Function(self._module, ir.FunctionType(VOID, [PTR] * 3), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        self._bodies[call, number] = function
        e, first = Emitter(function, self._target), len(call.group[0].operation.bodies[number].placeholders)
        arena, weights, table = function.args
        roots = Roots(e, arena, weights, table, first)
        for inner in call.bodies[number]:
            self.emit(e, roots, inner, (e.index(0), e.index(1)))
        e.b.ret_void()
        return function

    def _call_host(self, e: Emitter, roots: Roots, call: Call, arguments: Sequence[Value]) -> None:
        function, number = (roots.pointer(roots.host_at + place) for place in range(2))
        with e.at_entry():
            operands = e.b.alloca(PTR, len(arguments))
        for place, argument in enumerate(arguments):
            e.store(argument, e.offset(operands, 8 * place))
        kind = ir.FunctionType(VOID, [I64, PTR, I64])
        node = e.index(self._hosted.index(call))
        e.call_address(function, kind, [node, operands, e.b.ptrtoint(number, I64)])
