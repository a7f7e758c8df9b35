"""Control flow that data decides: operators that run graphs. https://onnx.ai/onnx/operators/ If, Loop, Scan

A region reads its inputs and constants of its own, and nothing else: values from outside are operands of the
node, `captured`, which are the last inputs of the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import KeepFloat, Operator, Policy, RunRegion, register, require
from qglow.graph.ops.rules import Arrays, Types
from qglow.graph.ops.shape import Identity
from qglow.numerics.loops import Rounds

FLAG = TensorType(ElementType.BOOL, ())
COUNT = TensorType(ElementType.INT64, ())


def run_region(region: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Compute the outputs of a region with the graph interpreter."""
    return Interpreter(region).run_in_order(inputs)


class Structured(Operator):
    """Base of the operators with regions, which are executed by whoever runs graphs."""

    policy: ClassVar[Policy] = KeepFloat("it runs graphs, which are quantized by themselves")

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with the graph interpreter."""
        return self.run_regions(inputs, run_region)


@register
@dataclass(frozen=True)
class If(Structured):
    """The results of `then_body` where `condition` holds, else of `else_body`; both take `captured`."""

    name: ClassVar[str] = "If"
    operands: ClassVar[tuple[str, ...]] = ("condition", "captured*?")
    region_names: ClassVar[tuple[str, ...]] = ("then_body", "else_body")

    then_body: Graph = field(metadata={"text": False})
    else_body: Graph = field(metadata={"text": False})

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The types of both regions, which are the same."""
        require(bool(inputs) and inputs[0] == FLAG, f"condition is {next(iter(inputs), None)}, not {FLAG}")
        for region in self.regions:
            _require_inputs(region, inputs[1:])
        results, others = (_results(region) for region in self.regions)
        require(results == others, f"then_body gives {_listed(results)}, else_body {_listed(others)}")
        return results

    def run_regions(self, inputs: Arrays, run: RunRegion) -> tuple[Array, ...]:
        """Run one of the regions."""
        condition, *captured = (array for array in inputs if array is not None)
        return tuple(run(self.then_body if bool(condition) else self.else_body, captured))


@register
@dataclass(frozen=True)
class Loop(Rounds, Structured):
    """Rounds of `body`, until `limit`, `rounds` or a condition ends them.

    Operands are `values`: first what is `carried` from round to round, then what is `scanned`, one slice of
    axis 0 a round, from the last on where its entry is True, then what is captured. `body` takes the number
    of the round (int64), what is carried, slices and what is captured; it gives whether there is another
    round if the loop is `conditional`, what is carried, and a row a round of all that is `collected`, in
    reverse where its entry is True. Results are what is carried at the end, and the rows.

    What is scanned or collected has `rounds` slices, so that nothing else may end such a loop.
    """

    name: ClassVar[str] = "Loop"
    operands: ClassVar[tuple[str, ...]] = ("limit?", "condition?", "values*?")
    region_names: ClassVar[tuple[str, ...]] = ("body",)

    body: Graph = field(metadata={"text": False})

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """Types of what the body gives to carry, and of the rows."""
        limit, condition, *values = (*inputs, None, None)[: max(len(inputs), 2)]
        for name, end, scalar in (("limit", limit, COUNT), ("condition", condition, FLAG)):
            require(end in (None, scalar), f"{name} is {end}, not {scalar}")
        fault = self.fault(limit is not None or condition is not None)
        require(fault is None, str(fault))
        starts, sources, captured = self.split([kind for kind in values if kind is not None])
        for kind in sources:
            fits = bool(kind.shape) and kind.shape[0] == self.rounds
            require(fits, f"a value is {kind}, it is scanned in {self.rounds} rounds")
        slices = [kind.with_shape(kind.shape[1:]) for kind in sources]
        _require_inputs(self.body, [COUNT, *starts, *slices, *captured])
        results = _results(self.body)
        if self.conditional:
            require(results[:1] == (FLAG,), f"body gives {_listed(results[:1])} first, not {FLAG}")
            results = results[1:]
        wanted = self.carried + len(self.collected)
        require(len(results) == wanted, f"body gives {len(results)} values, not {wanted}")
        fits = list(results[: self.carried]) == starts
        require(fits, f"body gives {_listed(results[: self.carried])} to carry, it takes {_listed(starts)}")
        rows = [kind.with_shape((self.rounds or 0, *kind.shape)) for kind in results[self.carried :]]
        return (*results[: self.carried], *rows)

    @property
    def carried_results(self) -> Sequence[int]:
        """Places behind the condition."""
        return range(int(self.conditional), int(self.conditional) + self.carried)

    def run_regions(self, inputs: Arrays, run: RunRegion) -> tuple[Array, ...]:
        """Run the body as often as there are rounds."""
        limit, condition, *values = (*inputs, None, None)[: max(len(inputs), 2)]
        given = [array for array in values if array is not None]
        starts, sources, captured = self.split(given)
        kinds = [value.type for value in self.body.outputs[len(self.body.outputs) - len(self.collected) :]]
        rows = [np.empty((self.rounds or 0, *kind.shape), kind.element.dtype) for kind in kinds]
        states = list(starts)
        for number in self.counted(limit, condition):
            slices = [source[place] for source, place in zip(sources, self.taken(number), strict=True)]
            results = run(self.body, [np.array(number, np.int64), *states, *slices, *captured])
            goes_on = bool(results.pop(0)) if self.conditional else True
            states = results[: self.carried]
            for array, place, row in zip(rows, self.given(number), results[self.carried :], strict=True):
                array[place] = row
            if not goes_on:
                break
        return (*states, *rows)


def give_own_outputs(region: Graph) -> None:
    """Let every output of a region be a result of a node of its own, in place."""
    seen: set[Value] = set(region.inputs)
    outputs = []
    for output in region.outputs:
        if output in seen or output.is_constant:
            copied = Value(region.unique_name(f"{output.name}.given"), output.type)
            region.nodes.append(
                Node(region.unique_name(f"{output.name}.give"), Identity(), [output], [copied])
            )
            output = copied
        seen.add(output)
        outputs.append(output)
    region.outputs = outputs


def _require_inputs(region: Graph, kinds: Types) -> None:
    wanted = [value.type for value in region.inputs]
    require(list(kinds) == wanted, f"{region.name} takes {_listed(wanted)}, not {_listed(kinds)}")


def _results(region: Graph) -> tuple[TensorType, ...]:
    return tuple(value.type for value in region.outputs)


def _listed(kinds: Types) -> str:
    return ", ".join(map(str, kinds)) or "nothing"
