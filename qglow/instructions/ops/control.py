"""Instructions with programs inside: one of two, or one that is run round by round.

The placeholders of a body are its inputs, its results, then its state, in the order of the operands that they
stand for. Its arena lies in the scratch memory of the instruction, whose size the memory plan sets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.operation import (
    Access,
    Arrays,
    Operand,
    Operation,
    Types,
    inout,
    out,
    read,
    register,
    require,
)
from qglow.instructions.plan import ALIGNMENT
from qglow.instructions.program import Program
from qglow.numerics.loops import Rounds

_FLAG = TensorType(ElementType.BOOL, ())
_COUNT = TensorType(ElementType.INT64, ())
SCRATCH = Operand("scratch", Access.SCRATCH)


@dataclass(frozen=True)
class BodyPlaces:
    """Numbers of the placeholders of a body: inputs, results, and the state operands that it keeps."""

    inputs: int
    results: int
    state: range

    @property
    def whole(self) -> int:
        """Number of all placeholders."""
        return self.inputs + self.results + len(self.state)


class Structured(Operation):
    """Base of the operations with bodies. Each instance has operands of its own."""

    varies: ClassVar[bool] = True

    captured: int
    kept: tuple[int, ...]
    """Numbers of the state operands of each body; empty without any."""

    @property
    @abstractmethod
    def signature(self) -> tuple[Operand, ...]:  # type: ignore[override]
        """Results, state, what is read, and last the memory of the bodies."""

    @property
    @abstractmethod
    def given_and_made(self) -> tuple[int, int]:
        """Numbers of inputs and of results that each body has."""

    def places(self, number: int) -> BodyPlaces:
        """Placeholders of the body of this number."""
        first = sum(self.kept[:number])
        return BodyPlaces(*self.given_and_made, range(first, first + sum(self.kept[number : number + 1])))

    @property
    def written_slots(self) -> tuple[int, ...]:  # type: ignore[override]
        """Numbers of the results and the state."""
        return self._slots(Access.OUT, Access.INOUT)

    @property
    def read_slots(self) -> tuple[int, ...]:  # type: ignore[override]
        """Numbers of all that is read, the state included."""
        return self._slots(Access.IN, Access.INOUT)

    @property
    def state_slots(self) -> tuple[int, ...]:
        """Numbers of the state."""
        return self._slots(Access.INOUT)

    def _slots(self, *accesses: Access) -> tuple[int, ...]:
        return tuple(slot for slot, spec in enumerate(self.signature) if spec.access in accesses)

    @property
    def spares(self) -> tuple[TensorType, ...]:
        """Types of values in the memory of the bodies, before their arena."""
        return ()

    @property
    def arena_start(self) -> int:
        """Offset of the arena of the bodies in the scratch memory, in bytes."""
        return sum(map(aligned_size, self.spares))

    @property
    def inside_bytes(self) -> int:
        """Bytes of the scratch memory. Only for bodies whose memory is planned."""
        return self.arena_start + max((body.arena_size or 0 for body in self.bodies), default=0)

    def verify(self, types: Types) -> None:
        """Bodies have the placeholders that the operands ask for."""
        interface, state = self.placeholder_types(types), _types(types, "state")
        require(not self.kept or len(self.kept) == len(self.bodies), "kept has a number for each body")
        for number, (name, body) in enumerate(zip(self.body_names, self.bodies, strict=True)):
            parts = self.places(number)
            wanted = [*interface, *(state[place] for place in parts.state)]
            found = [buffer.type for buffer in body.placeholders]
            fits = found == wanted and parts.whole == len(wanted)
            require(fits, f"{name} has placeholders {_listed(found)}, not {_listed(wanted)}")
            require(body.inputs() == body.placeholders[: parts.inputs], f"{name} writes what it is given")
            behind = len(wanted) - len(parts.state)
            require(body.state() == body.placeholders[behind:], f"{name} has other state than it should")
        scratch = types["scratch"]
        fits = scratch.element is ElementType.INT8 and len(scratch.shape) == 1
        require(fits, f"scratch is {scratch}, not a row of int8")

    @abstractmethod
    def placeholder_types(self, types: Types) -> list[TensorType]:
        """Types of the inputs and results of each body, by the types of the operands."""

    def run_body(self, number: int, arrays: Arrays, given: Sequence[Array], results: Sequence[Array]) -> None:
        """Run the body of a number once on arrays in the order of its placeholders, and on its state."""
        body, start, parts = self.bodies[number], self.arena_start, self.places(number)
        inner = ArenaInterpreter(body, arrays["scratch"][start : start + (body.arena_size or 0)])
        places, kept = body.placeholders, [arrays[f"state{place}"] for place in parts.state]
        state = [inner.state[buffer.name] for buffer in places[parts.inputs + parts.results :]]
        for own, outer in zip(state, kept, strict=True):
            own[...] = outer
        names = [buffer.name for buffer in places[: parts.inputs]]
        found = inner.run(dict(zip(names, given, strict=True)))
        made = places[parts.inputs : parts.inputs + parts.results]
        for buffer, result in zip(made, results, strict=True):
            result[...] = found[buffer.name]
        for own, outer in zip(state, kept, strict=True):
            outer[...] = own


@register
@dataclass(frozen=True)
class Branch(Structured):
    """result0, ... = the results of then_body where `condition` holds, else of else_body."""

    opcode: ClassVar[str] = "branch"
    body_names: ClassVar[tuple[str, ...]] = ("then_body", "else_body")
    operand_words: ClassVar[tuple[str, ...]] = (
        "@out result0, ...",
        "@inout state0, ...",
        "@in condition",
        "@in captured0, ...",
        "@scratch scratch",
    )

    then_body: Program = field(metadata={"text": False})
    else_body: Program = field(metadata={"text": False})
    results: int = 0
    captured: int = 0
    kept: tuple[int, ...] = ()

    @property
    def signature(self) -> tuple[Operand, ...]:  # type: ignore[override]
        """Results, state, the condition, what the bodies read."""
        return (
            *(out(f"result{number}") for number in range(self.results)),
            *(inout(f"state{number}") for number in range(sum(self.kept))),
            read("condition"),
            *(read(f"captured{number}") for number in range(self.captured)),
            SCRATCH,
        )

    @property
    def given_and_made(self) -> tuple[int, int]:
        """Numbers of captured values and of results."""
        return self.captured, self.results

    def placeholder_types(self, types: Types) -> list[TensorType]:
        """Types of what is captured and of the results."""
        require(types["condition"] == _FLAG, f"condition is {types['condition']}, not {_FLAG}")
        return [*_types(types, "captured"), *_types(types, "result")]

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Interpret one of the bodies."""
        number = 0 if bool(arrays["condition"]) else 1
        given = [arrays[f"captured{place}"] for place in range(self.captured)]
        self.run_body(number, arrays, given, [arrays[f"result{place}"] for place in range(self.results)])


@register
@dataclass(frozen=True)
class Loop(Rounds, Structured):
    """result0, ... = what is carried after the last round of body; rows0, ... = a row of each round.

    Rounds are as `Rounds` has them. The body is given the number of the round, what is carried, slices of
    source0, ... and what is captured. `limited`, `started`: whether there are operands limit and condition.
    The result of a round and what the next one makes of it lie in the result and a spare by turns.
    """

    opcode: ClassVar[str] = "loop"
    body_names: ClassVar[tuple[str, ...]] = ("body",)
    operand_words: ClassVar[tuple[str, ...]] = (
        "@out result0, ...",
        "@out rows0, ...",
        "@inout state0, ...",
        "@in limit?",
        "@in condition?",
        "@in start0, ...",
        "@in source0, ...",
        "@in captured0, ...",
        "@scratch scratch",
    )

    body: Program = field(metadata={"text": False})
    captured: int = 0
    kept: tuple[int, ...] = ()
    limited: bool = False
    started: bool = False

    @property
    def signature(self) -> tuple[Operand, ...]:  # type: ignore[override]
        """Results, rows, state, what decides the rounds, what they begin with and read."""
        return (
            *(out(f"result{number}") for number in range(self.carried)),
            *(out(f"rows{number}") for number in range(len(self.collected))),
            *(inout(f"state{number}") for number in range(sum(self.kept))),
            *((read("limit"),) if self.limited else ()),
            *((read("condition"),) if self.started else ()),
            *(read(f"start{number}") for number in range(self.carried)),
            *(read(f"source{number}") for number in range(len(self.scanned))),
            *(read(f"captured{number}") for number in range(self.captured)),
            SCRATCH,
        )

    @property
    def given_and_made(self) -> tuple[int, int]:
        """Numbers of values that a round is given, and that it gives."""
        given = 1 + self.carried + len(self.scanned) + self.captured
        return given, int(self.conditional) + self.carried + len(self.collected)

    @property
    def spares(self) -> tuple[TensorType, ...]:
        """A second place for each carried value."""
        return tuple(buffer.type for buffer in self.body.placeholders[1 : 1 + self.carried])

    def placeholder_types(self, types: Types) -> list[TensorType]:
        """Types of the number of the round, what it takes, whether it goes on, and what it gives."""
        fault = self.fault(self.limited or self.started)
        require(fault is None, str(fault))
        for name, wanted in (("limit", _COUNT), ("condition", _FLAG)):
            require(types.get(name, wanted) == wanted, f"{name} is not {wanted}")
        starts, results = _types(types, "start"), _types(types, "result")
        require(starts == results, f"results are {_listed(results)}, the first round takes {_listed(starts)}")
        whole = [*_types(types, "source"), *_types(types, "rows")]
        fits = all(kind.shape[:1] == (self.rounds,) for kind in whole)
        require(fits, f"not all of {_listed(whole)} have {self.rounds} slices")
        slices, rows = ([k.with_shape(k.shape[1:]) for k in _types(types, n)] for n in ("source", "rows"))
        goes_on = [_FLAG] if self.conditional else []
        given = [_COUNT, *starts, *slices, *_types(types, "captured")]
        return [*given, *goes_on, *results, *rows]

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Interpret the body round by round."""
        states = _arrays(arrays, "start")
        pairs = list(zip(_arrays(arrays, "result"), self._spare_arrays(arrays["scratch"]), strict=True))
        goes_on = np.ones((), np.bool_)
        for number in self.counted(arrays.get("limit"), arrays.get("condition")):
            following = [
                spare if state is end else end for state, (end, spare) in zip(states, pairs, strict=True)
            ]
            slices = [s[p] for s, p in zip(_arrays(arrays, "source"), self.taken(number), strict=True)]
            rows = [r[p, ...] for r, p in zip(_arrays(arrays, "rows"), self.given(number), strict=True)]
            given = [np.array(number, np.int64), *states, *slices, *_arrays(arrays, "captured")]
            results = [*([goes_on] if self.conditional else []), *following, *rows]
            self.run_body(0, arrays, given, results)
            states = following
            if not goes_on:
                break
        for state, (end, _) in zip(states, pairs, strict=True):
            if state is not end:
                end[...] = state

    def _spare_arrays(self, scratch: Array) -> Iterator[Array]:
        start = 0
        for kind in self.spares:
            memory = scratch[start : start + kind.byte_size]
            yield memory.view(kind.element.dtype).reshape(kind.shape)
            start += aligned_size(kind)


def aligned_size(kind: TensorType) -> int:
    """Bytes of a value, rounded up to the alignment."""
    return -(-kind.byte_size // ALIGNMENT) * ALIGNMENT


def _numbered(names: Iterable[str], prefix: str) -> list[str]:
    return [name for name in names if name.rstrip("0123456789") == prefix]


def _types(types: Types, prefix: str) -> list[TensorType]:
    return [types[name] for name in _numbered(types, prefix)]


def _arrays(arrays: Arrays, prefix: str) -> list[Array]:
    return [arrays[name] for name in _numbered(arrays, prefix)]


def _listed(kinds: Sequence[TensorType]) -> str:
    return ", ".join(map(str, kinds)) or "nothing"
