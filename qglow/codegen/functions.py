"""The kernels of a program as functions, each in an LLVM module of its own, or all in one for readers.

Calls with equal keys share a function. Its name is a digest of its text, so that a kernel is the same
function in every program, and its object code can be cached for all of them. Names have hidden
visibility, because other programs in the process have functions of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llvmlite import ir

from qglow.codegen.cache import CachedKernel, KernelCache, kernel_digest
from qglow.codegen.calls import Call
from qglow.codegen.symbols import symbol
from qglow.instructions.ops.elementwise import ElementAdd, ElementSub
from qglow.instructions.ops.quantize import Rescale
from qglow.instructions.program import BufferKind, Instruction
from qglow.kernels.emit.builder import I64, PTR, VOID
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.live import LiveElements, LiveRule
from qglow.kernels.emit.target import CodeSize, VectorTarget

BATCH_SIZE = 4000
"""LLVM instructions that a batch for one process should have, if at least as many are still to come."""
UNNAMED = "kernel"
"""Name of a function, and of its module, until its text is known."""

Batch = tuple[str, ...]
"""Texts of modules that are compiled one after the other."""


@dataclass(frozen=True)
class KernelFunction:
    """Name of a function, and the most parts its work splits into."""

    name: str
    units: int


class Functions(Protocol):
    """The functions that a program's entries call."""

    def __getitem__(self, call: Call) -> KernelFunction:
        """The function of a call that was added."""
        ...

    def callee(self, call: Call, module: Any) -> Any:
        """The function of a call, for use in a module."""
        ...


class KernelFunctions:
    """Finds or emits the function of one call after the other, each in a module of its own.

    `cache` has object code of kernels that were compiled before, None if there is none. `compiled` counts
    the kernels whose code it lacks.
    """

    def __init__(
        self, calls: Sequence[Call], target: VectorTarget, cache: KernelCache | None, batch_size: float
    ) -> None:
        self._isa, self._cache, self._limit = target, cache, batch_size
        self._keys, self._numbers = distinct_keys(calls)
        self._made: dict[int, KernelFunction] = {}
        self._code: dict[str, bytes | None] = {}
        self._new: list[int] = []
        self._batch: list[str] = []
        self._size = self._whole_size = self._emitted = 0
        self._entries: CachedKernel | None = None
        self._entries_key: tuple[object, ...] = ()

    def __getitem__(self, call: Call) -> KernelFunction:
        """The function of a call that was added."""
        return self._made[self._numbers[call]]

    def add(self, call: Call) -> Batch | None:
        """Find or emit the function of a new call; return the batch so far if this one begins another."""
        number = self._numbers[call]
        if number in self._made:
            return None
        cached = None if self._cache is None else self._cache.find(self._keys[number])
        if cached is not None:
            self._made[number] = KernelFunction(cached.name, cached.units)
            self._code.setdefault(cached.name, cached.code)
            return None
        full = None
        if self._size > self._limit and self._expected_size() >= self._limit:
            full = self.rest()
        self._emit(number, call)
        return full

    def rest(self) -> Batch:
        """Return the texts that are in no batch yet, as a batch."""
        batch, self._batch, self._size = tuple(self._batch), [], 0
        return batch

    def _expected_size(self) -> float:
        """Expected size of the kernels to come, if they are on average as large as those before."""
        return self._whole_size / self._emitted * (len(self._keys) - len(self._made))

    def _emit(self, number: int, call: Call) -> None:
        module = ir.Module(UNNAMED)
        module.triple = self._isa.triple
        value, units = emit_function(module, UNNAMED, call, self._isa)
        value.linkage = "hidden"
        text = str(module)
        name = f"qglow_{kernel_digest(text, self._isa)}"
        self._made[number] = KernelFunction(name, units)
        self._new.append(number)
        if name not in self._code:
            self._code[name] = None if self._cache is None else self._cache.code(name)
            if self._code[name] is None:
                self._batch.append(text.replace(f'@"{UNNAMED}"', f'@"{name}"', 1))
        size = sum(len(block.instructions) for block in value.blocks)
        self._size += size
        self._whole_size += size
        self._emitted += 1

    def callee(self, call: Call, module: Any) -> Any:
        """The function of a call, declared in a module."""
        name = self[call].name
        declared = module.globals.get(name)
        if declared is None:
            declared = _new_function(module, name, call)
            declared.linkage = "hidden"
        return declared

    def knows_entries(self, key: tuple[object, ...]) -> bool:
        """Whether code of the entries with this key is cached; else `objects` adds what it is given."""
        self._entries_key = key
        self._entries = None if self._cache is None else self._cache.find(key)
        return self._entries is not None

    @property
    def compiled(self) -> int:
        """Number of functions whose code was not in the cache."""
        return sum(code is None for code in self._code.values())

    def objects(self, made: Sequence[bytes]) -> tuple[bytes, ...]:
        """Object code of all functions in the order of their first calls, and of the entries.

        `made` is the object code of the texts in all batches, in their order. It is added to the cache.
        """
        new = iter(made)
        whole = {name: next(new) if code is None else code for name, code in self._code.items()}
        entries = next(new) if self._entries is None else self._entries.code
        if self._cache is not None:
            for number in self._new:
                function = self._made[number]
                kernel = CachedKernel(function.name, function.units, whole[function.name])
                self._cache.add(self._keys[number], kernel)
            if self._entries is None:
                name = f"entries_{kernel_digest(repr(self._entries_key), self._isa)}"
                self._cache.add(self._entries_key, CachedKernel(name, 1, entries))
        return (*whole.values(), entries)


class JointFunctions:
    """The functions of calls in the module that calls them, with readable names."""

    def __init__(self, calls: Sequence[Call], target: VectorTarget, module: Any) -> None:
        _, self._numbers = distinct_keys(calls)
        self._made: list[KernelFunction] = []
        for call in calls:
            if self._numbers[call] == len(self._made):
                name = symbol(f"kernel{len(self._made)}_{call.name}")
                value, units = emit_function(module, name, call, target)
                value.linkage = "internal"
                self._made.append(KernelFunction(name, units))

    def __getitem__(self, call: Call) -> KernelFunction:
        """The function of a call."""
        return self._made[self._numbers[call]]

    def callee(self, call: Call, module: Any) -> Any:
        """The function of a call."""
        return module.globals[self[call].name]


def call_key(call: Call) -> tuple[object, ...]:
    """Everything that the function of a call depends on, for one target."""
    live = tuple((live.extent, live.inner) for live in call.live), call.summed is not None
    return (*call.key, call.unaliased, *(live if call.counts else ()))


def distinct_keys(calls: Sequence[Call]) -> tuple[list[tuple[object, ...]], dict[Call, int]]:
    """Distinct keys in the order of their first calls, and for each call the number of its key."""
    numbers: dict[tuple[object, ...], int] = {}
    found = {call: numbers.setdefault(call_key(call), len(numbers)) for call in calls}
    return list(numbers), found


def emit_function(module: Any, name: str, call: Call, target: VectorTarget) -> tuple[Any, int]:
    """Emit the function of a call into a module; return it and the most parts its work splits into."""
    function, count = _new_function(module, name, call), len(call.buffers)
    function.attributes.add("noinline")
    for attribute in _size_attributes(target):
        function.attributes.add(attribute)
    if target.float_features is not None and _computes_floats(call):
        # Of attributes with values llvmlite knows none; it prints whatever is in the set.
        set.add(function.attributes, f'"target-features"="{target.float_features}"')
    *pointers, part, parts = function.args
    numbers = pointers[len(pointers) - len(call.counts) :]
    del pointers[len(pointers) - len(call.counts) :]
    rules = [LiveRule(n, live.extent, live.inner) for n, live in zip(numbers, call.live, strict=False)]
    live = LiveElements(tuple(rules), numbers[-1] if call.summed is not None else None)
    for argument, alone in zip(pointers, _alone(call), strict=True):
        if alone:
            argument.add_attribute("noalias")
    e = Emitter(function, target, part, parts, live if call.counts else None)
    call.emit(e, pointers[:count], pointers[count:])
    e.b.ret_void()
    return function, e.units


def _size_attributes(target: VectorTarget) -> tuple[str, ...]:
    """LLVM's attributes of a function that is to be small; the smallest has both."""
    if target.size is CodeSize.FAST:
        return ()
    return tuple(dict.fromkeys((CodeSize.SMALL.value, target.size.value)))


def _computes_floats(call: Call) -> bool:
    """Whether subnormal floats may decide a result.

    In products and sums of integers they cannot: what is rescaled is rounded to a step of the result.
    """
    stored = (b.type for b in call.buffers if b.root.kind is not BufferKind.CONSTANT)
    is_rescaled = all(_rounds(instruction) for instruction in call.group)
    return not is_rescaled or any(kind.is_float or kind.is_half for kind in stored)


def _rounds(instruction: Instruction) -> bool:
    operation = instruction.operation
    return operation.has_epilogue or isinstance(operation, ElementAdd | ElementSub | Rescale)


def _alone(call: Call) -> Iterator[bool]:
    """Flags, one for each pointer: whether no other pointer leads to the same memory."""
    yield from call.unaliased
    yield from (True for _ in call.arrays)


def _new_function(module: Any, name: str, call: Call) -> Any:
    kinds = [PTR] * (len(call.buffers) + len(call.arrays)) + [I64] * len(call.counts)
    function = ir.Function(module, ir.FunctionType(VOID, [*kinds, I64, I64]), name)
    function.attributes.add("nounwind")
    return function
