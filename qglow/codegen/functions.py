"""The kernels of a program as functions, in one LLVM module or, where there are many, in several.

Which function lies in which module depends on the program alone. Those of all modules but the last
are hidden in the program's code, not in their object file; modules that call them declare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from qglow.codegen.calls import Call
from qglow.kernels.builder import I64, PTR, VOID, Emitter
from qglow.kernels.isa import Isa

MODULE_SIZE = 4000
"""LLVM instructions of a module, after which kernels go into another where as many are still to come."""


@dataclass(frozen=True)
class KernelFunction:
    """A function as its module defines it, and into how many shares its work can go."""

    value: Any
    units: int


class KernelFunctions:
    """Makes the functions of calls, one after the other. `module` is the one that they are added to."""

    def __init__(self, name: str, calls: Sequence[Call], isa: Isa, module_size: float) -> None:
        self._name, self._isa, self._limit = name, isa, module_size
        self._keys = {call: (*call.key, call.unaliased) for call in calls}
        self._count = len(set(self._keys.values()))
        self._made: dict[object, KernelFunction] = {}
        self._size = self._whole_size = 0
        self.module = self._new_module()

    def __getitem__(self, call: Call) -> KernelFunction:
        """The function of a call that was added."""
        return self._made[self._keys[call]]

    def add(self, call: Call) -> str | None:
        """See that a call has its function; the text of the module before, where this begins another."""
        key, full = self._keys[call], None
        if key not in self._made:
            if self._size > self._limit and self._expected_size() >= self._limit:
                full = self._finish_module()
            self._made[key] = self._emit(call)
        return full

    def _expected_size(self) -> float:
        """Of the kernels to come, if they are on average as large as those before."""
        return self._whole_size / len(self._made) * (self._count - len(self._made))

    def callee(self, call: Call) -> Any:
        """The function of a call, declared in the module where it is of an earlier one."""
        defined = self[call].value
        if defined.module is self.module:
            return defined
        declared = self.module.globals.get(defined.name)
        if declared is None:
            declared = self._new_function(defined.function_type, defined.name)
            declared.linkage = "hidden"
        return declared

    def _finish_module(self) -> str:
        for function in self._made.values():
            if function.value.module is self.module:
                function.value.linkage = "hidden"
        text = str(self.module)
        self.module, self._size = self._new_module(), 0
        return text

    def _new_module(self) -> Any:
        module = ir.Module(self._name)
        module.triple = self._isa.triple
        return module

    def _new_function(self, kind: Any, name: str) -> Any:
        function = ir.Function(self.module, kind, name)
        function.attributes.add("nounwind")
        return function

    def _emit(self, call: Call) -> KernelFunction:
        count = len(call.buffers)
        kinds = [PTR] * (count + len(call.arrays))
        kind = ir.FunctionType(VOID, [*kinds, I64, I64])
        function = self._new_function(kind, f"kernel{len(self._made)}_{call.name}")
        function.linkage = "internal"
        function.attributes.add("noinline")
        *pointers, part, parts = function.args
        for argument, alone in zip(pointers, [*call.unaliased, *(True for _ in call.arrays)], strict=True):
            if alone:
                argument.add_attribute("noalias")
        e = Emitter(function, self._isa, part, parts)
        call.emit(e, pointers[:count], pointers[count:])
        e.b.ret_void()
        size = sum(len(block.instructions) for block in function.blocks)
        self._size += size
        self._whole_size += size
        return KernelFunction(function, e.units)
