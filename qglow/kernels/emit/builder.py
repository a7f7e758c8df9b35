"""A small layer over llvmlite's IRBuilder: loops, byte addresses, vectors and intrinsics, for any target.

No fast-math flag is ever set, so float32 operations are IEEE and are never contracted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

VOID = ir.VoidType()
I1 = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
PTR = ir.PointerType()

Value = Any
"""An llvmlite value; `Any` because llvmlite has no type annotations."""
Index = Any
"""A Python int or an i64 value."""

_SUFFIXES = {I1: "i1", I8: "i8", I16: "i16", I32: "i32", I64: "i64", F32: "f32", F64: "f64", PTR: "p0"}


def vec(element: Any, lanes: int) -> Any:
    """The vector type of `lanes` elements."""
    return ir.VectorType(element, lanes)


def suffix(kind: Any) -> str:
    """Suffix of a type in the names of LLVM intrinsics, such as `v16f32`."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    return _SUFFIXES[kind]


class PerCall(ABC):
    """A number that is known only when the function runs, not when its code is emitted."""

    @abstractmethod
    def spread(self, kind: Any) -> Value:
        """Return the number as a scalar of this type, or broadcast to all lanes of a vector type."""


Number = Any
"""A Python number, known when code is emitted, or a `PerCall`."""


def scalar(kind: Any, value: Number) -> Value:
    """Return a number as a value of a scalar type, or broadcast to all lanes of a vector type.

    A Python number becomes a constant.
    """
    if isinstance(value, PerCall):
        return value.spread(kind)
    if isinstance(kind, ir.VectorType):
        return _Splat(kind, ir.Constant(kind.element, _number(kind.element, value)))
    return ir.Constant(kind, _number(kind, value))


class _Splat(ir.Constant):  # type: ignore[misc]
    """A vector constant of equal lanes, written as `splat (...)`; llvmlite would write every lane."""

    def __init__(self, kind: Any, lane: Value) -> None:
        self.type = kind
        self.constant = (lane,) * kind.count

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


class _Poison(ir.Constant):  # type: ignore[misc]
    """LLVM's `poison` of any type, for values that are never read; shorter in text than llvmlite's own."""

    def __init__(self, kind: Any) -> None:
        self.type = kind
        self.constant = None

    def _get_reference(self) -> str:
        return "poison"


class _Callee(ir.Value):  # type: ignore[misc]
    """An address with the type of the function there, because llvmlite asks callees for their type."""

    def __init__(self, address: Value, kind: Value) -> None:
        self.type, self.function_type = address.type, kind
        self._address = address

    def get_reference(self) -> str:
        """The address."""
        return str(self._address.get_reference())


def poison(kind: Any) -> Value:
    """Return LLVM's `poison` of a type, for a value that is never read."""
    return _Poison(kind)


def constant_vector(element: Any, values: Sequence[float]) -> Value:
    """A constant vector of these elements."""
    return ir.Constant(vec(element, len(values)), [_number(element, v) for v in values])


def _number(kind: Any, value: float) -> float | int:
    return int(value) if isinstance(kind, ir.IntType) else float(value)


@dataclass
class Carry:
    """Values that a loop carries from one iteration to the next.

    In the body `values` are those that the iteration starts with, and `next` sets those of the next one.
    After the loop `values` are the final ones. `index` is the loop index.
    """

    index: Value
    values: list[Value]
    following: list[Value] = field(default_factory=list)

    def next(self, values: Sequence[Value]) -> None:
        """Set the values that the next iteration, or the code after the last one, gets."""
        self.following = list(values)


class Builder:
    """Emits the body of one function. `b` is the llvmlite IRBuilder, positioned where code is added.

    `counter`: integer type that loops count in. Indices are i64 everywhere else.
    """

    def __init__(self, function: Any, counter: Any = I64) -> None:
        self.function = function
        self.counter = counter
        self.module = function.module
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self._at_entry = False
        self._rooms: dict[str, tuple[int, Value]] = {}

    # Constants and addresses

    def index(self, value: Index) -> Value:
        """Convert a Python int to an i64 constant; an i64 value is returned unchanged."""
        return ir.Constant(I64, value) if isinstance(value, int) else value

    def splat(self, value: Value, lanes: int) -> Value:
        """Broadcast a scalar value to all lanes of a vector."""
        kind = vec(value.type, lanes)
        first = self.b.insert_element(poison(kind), value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(first, poison(kind), scalar(vec(I32, lanes), 0))

    def offset(self, pointer: Value, bytes_: Index) -> Value:
        """Address that lies `bytes_` bytes after `pointer`."""
        if isinstance(bytes_, int) and bytes_ == 0:
            return pointer
        return self.b.gep(pointer, [self.index(bytes_)], source_etype=I8)

    def scaled(self, index: Index, factor: int) -> Index:
        """`index * factor`; a Python int where the result is known, else emitted."""
        if isinstance(index, int) or factor == 0:
            return 0 if factor == 0 else index * factor
        return index if factor == 1 else self.b.mul(index, self.index(factor))

    def plus(self, left: Index, right: Index) -> Index:
        """`left + right`; a Python int where both are, else emitted."""
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(left, int) and left == 0:
            return right
        if isinstance(right, int) and right == 0:
            return left
        return self.b.add(self.index(left), self.index(right))

    def minimum(self, left: Index, right: Index) -> Index:
        """The smaller of two signed indices; a Python int where both are, else emitted."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return self.intrinsic("llvm.smin", self.index(left), self.index(right))

    def maximum(self, left: Index, right: Index) -> Index:
        """The larger of two signed indices; a Python int where both are, else emitted."""
        if isinstance(left, int) and isinstance(right, int):
            return max(left, right)
        return self.intrinsic("llvm.smax", self.index(left), self.index(right))

    # Memory

    def load(self, pointer: Value, kind: Any, align: int = 1) -> Value:
        """Load a scalar or a vector; no alignment is assumed unless given."""
        return self.b.load(pointer, align=align, typ=kind)

    def store(self, value: Value, pointer: Value, align: int = 1) -> None:
        """Store a scalar or a vector; no alignment is assumed unless given."""
        self.b.store(value, pointer, align=align)

    def load_lanes(self, pointer: Value, element: Any, lanes: int, count: int | None = None) -> Value:
        """Load a vector of `lanes` elements, of which only the first `count` are read; the others are 0."""
        if count is None or count >= lanes:
            return self.load(pointer, vec(element, lanes))
        return self.load_where(pointer, element, _mask(count, lanes))

    def load_where(self, pointer: Value, element: Any, mask: Value) -> Value:
        """Load the elements where a vector of i1 is true; the others are 0, and their memory is not read."""
        kind = vec(element, mask.type.count)
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        return self.call(name, kind, [pointer, mask, scalar(kind, 0)])

    def store_lanes(self, value: Value, pointer: Value, count: int | None = None) -> None:
        """Store a vector, or its first `count` lanes.

        Where `count` is a power of two, a smaller vector is stored instead of using a mask, and for one
        lane a scalar: LLVM 22 writes too many bytes of a single truncated lane under a mask, and fails on
        a one-lane vector taken from a splat.
        """
        lanes = value.type.count
        if count is None or count >= lanes:
            self.store(value, pointer)
            return
        if count & (count - 1) == 0:
            part = self.shuffle(value, None, range(count)) if count > 1 else self.extract(value, 0)
            self.store(part, pointer)
            return
        arguments = [value, pointer, _mask(count, lanes)]
        self.call(f"llvm.masked.store.{suffix(value.type)}.p0", VOID, arguments)

    # Calls

    def call(self, name: str, result: Any, arguments: Sequence[Value]) -> Value:
        """Call a function or intrinsic by its full name, declaring it at first use."""
        function = self.module.globals.get(name)
        if function is None:
            kinds = [argument.type for argument in arguments]
            function = ir.Function(self.module, ir.FunctionType(result, kinds), name)
        return self.b.call(function, list(arguments))

    def call_address(self, address: Value, kind: Any, arguments: Sequence[Value]) -> Value:
        """Call the function of this type at an address."""
        return self.b.call(_Callee(address, kind), list(arguments))

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """Call an intrinsic whose arguments and result have one type: `intrinsic("llvm.smax", a, b)`."""
        kind = arguments[0].type
        return self.call(f"{name}.{suffix(kind)}", kind, arguments)

    # Lanes

    def shuffle(self, left: Value, right: Value | None, lanes: Sequence[int]) -> Value:
        """Select lanes by number, those of `right` counted after `left`'s; -1 is a lane never read."""
        other = poison(left.type) if right is None else right
        # llvmlite accepts lane numbers only, so 0 stands for -1; LLVM finds out which lanes are unused.
        mask = ir.Constant(vec(I32, len(lanes)), [max(n, 0) for n in lanes])
        return self.b.shuffle_vector(left, other, mask)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Concatenate vectors of one type, whose number is a power of two."""
        values = list(parts)
        while len(values) > 1:
            lanes = range(2 * values[0].type.count)
            values = [self.shuffle(a, b, lanes) for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def extract(self, vector: Value, lane: int) -> Value:
        """Extract one lane as a scalar."""
        return self.b.extract_element(vector, ir.Constant(I32, lane))

    def insert(self, vector: Value, value: Value, lane: int) -> Value:
        """Return the vector with one lane replaced."""
        return self.b.insert_element(vector, value, ir.Constant(I32, lane))

    # Control flow

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, name: str = "i") -> Iterator[Index]:
        """Emit a loop over the indices from `start` below `stop`; a known single iteration gets no loop."""
        with self.carrying_loop(start, stop, (), step, name) as carry:
            yield carry.index

    @contextmanager
    def carrying_loop(
        self, start: Index, stop: Index, initial: Sequence[Value], step: int = 1, name: str = "i"
    ) -> Iterator[Carry]:
        """Emit a loop with values that pass from iteration to iteration (see Carry).

        The condition is tested at the end of the body; a test before the loop is left out where bounds are
        known and at least one iteration runs.
        """
        trips = _trips(start, stop, step)
        if trips == 1:
            carry = Carry(start, list(initial))
            yield carry
            carry.values = list(carry.following)
            return
        first, last = self._counted(start), self._counted(stop)
        before = self.b.block
        body = self.b.append_basic_block(f"{name}.body")
        done = self.b.append_basic_block(f"{name}.done")
        if trips:
            self.b.branch(body)
        else:
            self.b.cbranch(self.b.icmp_signed("<", first, last), body, done)
        self.b.position_at_end(body)
        number = self._phi(self.counter, first, before)
        phis = [self._phi(value.type, value, before) for value in initial]
        carry = Carry(number if self.counter == I64 else self.b.sext(number, I64), list(phis))
        yield carry
        if len(carry.following) != len(phis):
            raise ValueError("every carried value needs a following one")
        following = self.b.add(number, self._counted(step))
        end = self.b.block
        self.b.cbranch(self.b.icmp_signed("<", following, last), body, done)
        number.add_incoming(following, end)
        for phi, value in zip(phis, carry.following, strict=True):
            phi.add_incoming(value, end)
        self.b.position_at_end(done)
        carry.values = self._results(initial, carry.following, before, end, certain=bool(trips))

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        """Emit code that runs only if the condition is true."""
        with self.b.if_then(condition, likely=likely):
            yield

    def replaced(self, condition: Value, value: Value, other: Callable[[], Value]) -> Value:
        """Give `value`, or what `other` emits where the condition is true, which is unlikely."""
        before = self.b.block
        with self.b.if_then(condition, likely=False):
            instead = other()
            end = self.b.block
        result = self._phi(value.type, value, before)
        result.add_incoming(instead, end)
        return result

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Emit code into the function's entry block, so that it runs once a call, outside of all loops."""
        if self._at_entry:
            yield
            return
        self._at_entry = True
        with self.b.goto_entry_block():
            yield
        self._at_entry = False

    def room(self, name: str, size: int, align: int) -> Value:
        """Reserve so many bytes of stack memory for the whole call; returns their address.

        name: whose memory it is. What has been reserved by that name before is used again where it is large
        enough.
        """
        reserved, found = self._rooms.get(name, (0, None))
        if found is None or reserved < size:
            with self.at_entry():
                found = self.b.alloca(ir.ArrayType(I8, size))
            found.align = align
            # llvmlite makes a typed pointer of it, which fits no opaque one.
            found.type = PTR
            self._rooms[name] = size, found
        return found

    def _counted(self, index: Index) -> Value:
        """Convert an index to the type that loops count in."""
        if isinstance(index, int):
            return ir.Constant(self.counter, index)
        return index if self.counter == I64 else self.b.trunc(index, self.counter)

    def _phi(self, kind: Any, value: Value, block: Any) -> Any:
        phi = self.b.phi(kind)
        phi.add_incoming(value, block)
        return phi

    def _results(
        self, initial: Sequence[Value], final: Sequence[Value], before: Any, end: Any, certain: bool
    ) -> list[Value]:
        """Values after a loop: the initial ones if no iteration ran, which `certain` rules out."""
        if certain:
            return list(final)
        results = []
        for first, last in zip(initial, final, strict=True):
            phi = self._phi(first.type, first, before)
            phi.add_incoming(last, end)
            results.append(phi)
        return results


def _trips(start: Index, stop: Index, step: int) -> int:
    """Number of iterations where both bounds are known, else 0; also 0 for a loop that never runs."""
    if isinstance(start, int) and isinstance(stop, int):
        return max(0, math.ceil((stop - start) / step))
    return 0


def _mask(count: int, lanes: int) -> Value:
    return ir.Constant(vec(I1, lanes), [int(lane < count) for lane in range(lanes)])
