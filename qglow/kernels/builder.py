"""A small layer over llvmlite's IRBuilder: loops, byte addresses, vectors and intrinsics.

No fast-math flag is ever set, so float32 operations are IEEE and are never contracted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

from qglow.kernels.isa import Isa

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
"""An llvmlite value; llvmlite has no annotations."""
Index = Any
"""A Python int or an i64 value."""

_SUFFIXES = {I1: "i1", I8: "i8", I16: "i16", I32: "i32", I64: "i64", F32: "f32", F64: "f64", PTR: "p0"}


def vec(element: Any, lanes: int) -> Any:
    """The vector type of `lanes` elements."""
    return ir.VectorType(element, lanes)


def suffix(kind: Any) -> str:
    """A type as intrinsics' names spell it: `v16f32`."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    return _SUFFIXES[kind]


def scalar(kind: Any, value: float) -> Value:
    """A constant of a scalar type, or of all lanes of a vector type."""
    if isinstance(kind, ir.VectorType):
        return _Splat(kind, ir.Constant(kind.element, _number(kind.element, value)))
    return ir.Constant(kind, _number(kind, value))


class _Splat(ir.Constant):  # type: ignore[misc]
    """A vector constant of equal lanes, which llvmlite would make and write one by one."""

    def __init__(self, kind: Any, lane: Value) -> None:
        self.type = kind
        self.constant = (lane,) * kind.count

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


class _Poison(ir.Constant):  # type: ignore[misc]
    """A value that nobody reads, of any type; short in text, unlike llvmlite's."""

    def __init__(self, kind: Any) -> None:
        self.type = kind
        self.constant = None

    def _get_reference(self) -> str:
        return "poison"


def poison(kind: Any) -> Value:
    """A value that nobody reads."""
    return _Poison(kind)


def constant_vector(element: Any, values: Sequence[float]) -> Value:
    """A constant vector of these elements."""
    return ir.Constant(vec(element, len(values)), [_number(element, v) for v in values])


def _number(kind: Any, value: float) -> float | int:
    return int(value) if isinstance(kind, ir.IntType) else float(value)


@dataclass
class Carry:
    """Values that a loop carries from one iteration to the next.

    Inside, `values` are those of this iteration and `next` sets those of the following one;
    after the loop `values` are the last.
    """

    index: Value
    values: list[Value]
    following: list[Value] = field(default_factory=list)

    def next(self, values: Sequence[Value]) -> None:
        """Set what the next iteration, or the code after the loop, sees."""
        self.following = list(values)


class Emitter:
    """Emits one function body. `b` is the llvmlite IRBuilder at its end.

    A function whose work several threads may share is called with the number `part` (i64) of a
    share and with how many `parts` there are. `units` says of how many pieces that work is.
    """

    def __init__(
        self, function: Any, isa: Isa, part: Value | None = None, parts: Value | None = None
    ) -> None:
        self.function = function
        self.module = function.module
        self.isa = isa
        self.units = 1
        self._part, self._parts = part, parts
        self._share: tuple[Index, Index] | None = None
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    # Shares of the work

    def share(self, units: int, shared: bool = True) -> tuple[Index, Index]:
        """First and end of those of `units` equal pieces of work that this call is to do.

        All of them unless `shared`, and in a function of one share. A function has one loop, or
        several side by side, over one number of pieces; all that stores has to be in them, in
        `first_share` or in `last_share`. Raises ValueError for another number.
        """
        if self._part is None or not shared or units <= 1:
            return 0, units
        if self._share is None:
            self.units = units
            with self.b.goto_entry_block():
                following = self.b.add(self._part, self.index(1))
                self._share = self._bound(self._part), self._bound(following)
        if units != self.units:
            raise ValueError(f"{units} pieces of work, {self.units} before")
        return self._share

    def _bound(self, part: Value) -> Value:
        return self.b.udiv(self.b.mul(part, self.index(self.units)), self._parts)

    @contextmanager
    def first_share(self) -> Iterator[None]:
        """Code for the first share only: what comes before the pieces of `share`."""
        if self._part is None:
            yield
            return
        with self.when(self.b.icmp_unsigned("==", self._part, self.index(0))):
            yield

    @contextmanager
    def last_share(self) -> Iterator[None]:
        """Code for the last share only: what is left beside the pieces of `share`."""
        if self._part is None:
            yield
            return
        following = self.b.add(self._part, self.index(1))
        with self.when(self.b.icmp_unsigned("==", following, self._parts)):
            yield

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Code in which `share` gives everything, for what one thread has to do."""
        part, self._part = self._part, None
        yield
        self._part = part

    # Constants and addresses

    def index(self, value: Index) -> Value:
        """An i64 value of a Python int; values stay."""
        return ir.Constant(I64, value) if isinstance(value, int) else value

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar value in all lanes of a vector."""
        kind = vec(value.type, lanes)
        first = self.b.insert_element(poison(kind), value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(first, poison(kind), scalar(vec(I32, lanes), 0))

    def offset(self, pointer: Value, bytes_: Index) -> Value:
        """`pointer` moved by a number of bytes."""
        if isinstance(bytes_, int) and bytes_ == 0:
            return pointer
        return self.b.gep(pointer, [self.index(bytes_)], source_etype=I8)

    def scaled(self, index: Index, factor: int) -> Index:
        """`index * factor`, folded where it is known."""
        if isinstance(index, int) or factor == 0:
            return 0 if factor == 0 else index * factor
        return index if factor == 1 else self.b.mul(index, self.index(factor))

    def plus(self, left: Index, right: Index) -> Index:
        """`left + right`, folded where it is known."""
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(left, int) and left == 0:
            return right
        if isinstance(right, int) and right == 0:
            return left
        return self.b.add(self.index(left), self.index(right))

    def minimum(self, left: Index, right: Index) -> Index:
        """The smaller of two signed indices, folded where it is known."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return self.intrinsic("llvm.smin", self.index(left), self.index(right))

    def maximum(self, left: Index, right: Index) -> Index:
        """The larger of two signed indices, folded where it is known."""
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
        """Load `lanes` elements, of which only the first `count` are read; the others are 0."""
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

        A power of two of them is a smaller vector. For one lane that is a must: LLVM 22 makes a
        masked store of one truncated lane as wide as the lane was before.
        """
        lanes = value.type.count
        if count is None or count >= lanes:
            self.store(value, pointer)
            return
        if count & (count - 1) == 0:
            self.store(self.shuffle(value, None, range(count)), pointer)
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

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """An intrinsic over one type, which is its result's too: `intrinsic("llvm.smax", a, b)`."""
        kind = arguments[0].type
        return self.call(f"{name}.{suffix(kind)}", kind, arguments)

    # Lanes

    def shuffle(self, left: Value, right: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes of `left` and `right` by number; -1 is a lane that nobody reads."""
        other = poison(left.type) if right is None else right
        # llvmlite takes numbers only; LLVM finds out by itself which lanes nobody reads.
        mask = ir.Constant(vec(I32, len(lanes)), [max(n, 0) for n in lanes])
        return self.b.shuffle_vector(left, other, mask)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Vectors of one type, a power of two of them, one after the other."""
        values = list(parts)
        while len(values) > 1:
            lanes = range(2 * values[0].type.count)
            values = [self.shuffle(a, b, lanes) for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def extract(self, vector: Value, lane: int) -> Value:
        """One lane."""
        return self.b.extract_element(vector, ir.Constant(I32, lane))

    def insert(self, vector: Value, value: Value, lane: int) -> Value:
        """The vector with one lane replaced."""
        return self.b.insert_element(vector, value, ir.Constant(I32, lane))

    # Control flow

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, name: str = "i") -> Iterator[Index]:
        """Code for every index from `start` below `stop`; known single iterations get no loop."""
        with self.carrying_loop(start, stop, (), step, name) as carry:
            yield carry.index

    @contextmanager
    def shared_loop(
        self, share: tuple[Index, Index], first: int, count: int, name: str = "i"
    ) -> Iterator[Index]:
        """Code for those of the pieces `first` ... `first + count - 1` that are in a share, from 0 on."""
        start = self.maximum(self.plus(share[0], -first), 0)
        stop = self.minimum(self.plus(share[1], -first), count)
        with self.loop(start, stop, name=name) as index:
            yield index

    @contextmanager
    def carrying_loop(
        self, start: Index, stop: Index, initial: Sequence[Value], step: int = 1, name: str = "i"
    ) -> Iterator[Carry]:
        """A loop with values that pass from iteration to iteration; see Carry."""
        trips = _trips(start, stop, step)
        if trips == 1:
            carry = Carry(start, list(initial))
            yield carry
            carry.values = list(carry.following)
            return
        before = self.b.block
        body = self.b.append_basic_block(f"{name}.body")
        done = self.b.append_basic_block(f"{name}.done")
        if trips:
            self.b.branch(body)
        else:
            self.b.cbranch(self.b.icmp_signed("<", self.index(start), self.index(stop)), body, done)
        self.b.position_at_end(body)
        index = self._phi(I64, self.index(start), before)
        carry = Carry(index, [self._phi(value.type, value, before) for value in initial])
        phis = list(carry.values)
        yield carry
        if len(carry.following) != len(phis):
            raise ValueError("every carried value needs a following one")
        following = self.b.add(index, self.index(step))
        end = self.b.block
        self.b.cbranch(self.b.icmp_signed("<", following, self.index(stop)), body, done)
        index.add_incoming(following, end)
        for phi, value in zip(phis, carry.following, strict=True):
            phi.add_incoming(value, end)
        self.b.position_at_end(done)
        carry.values = self._results(initial, carry.following, before, end, certain=bool(trips))

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        """Code for a true condition only."""
        with self.b.if_then(condition, likely=likely):
            yield

    def _phi(self, kind: Any, value: Value, block: Any) -> Any:
        phi = self.b.phi(kind)
        phi.add_incoming(value, block)
        return phi

    def _results(
        self, initial: Sequence[Value], final: Sequence[Value], before: Any, end: Any, certain: bool
    ) -> list[Value]:
        """What is carried out of a loop that may have run no iteration."""
        if certain:
            return list(final)
        results = []
        for first, last in zip(initial, final, strict=True):
            phi = self._phi(first.type, first, before)
            phi.add_incoming(last, end)
            results.append(phi)
        return results


def _trips(start: Index, stop: Index, step: int) -> int:
    """Iterations where they are known, else 0; 0 too for a loop that never runs."""
    if isinstance(start, int) and isinstance(stop, int):
        return max(0, math.ceil((stop - start) / step))
    return 0


def _mask(count: int, lanes: int) -> Value:
    return ir.Constant(vec(I1, lanes), [int(lane < count) for lane in range(lanes)])
