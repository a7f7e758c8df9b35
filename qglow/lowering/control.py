"""Operators with regions as instructions with programs inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.control import If, Loop, give_own_outputs
from qglow.instructions.ops import control as instructions
from qglow.instructions.program import Buffer, Program
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(If)
def lower_if(lowering: Lowering, node: Node, operator: If) -> None:
    """Lower to one branch."""
    bodies = [_body(lowering, region) for region in operator.regions]
    condition, *captured = _read(lowering, node.inputs)
    results = [lowering.write(value) for value in node.outputs]
    given, made = len(captured), len(results)
    kept = [body.placeholders[given + made :] for body in bodies]
    state = [lowering.placeholder(buffer.name, buffer.type) for own in kept for buffer in own]
    counts = tuple(map(len, kept)) if state else ()
    first, second = bodies
    branch = instructions.Branch(first, second, results=made, captured=given, kept=counts)
    lowering.emit(branch, *results, *state, condition, *captured, _inside(lowering, node))


@lowers(Loop)
def lower_loop(lowering: Lowering, node: Node, operator: Loop) -> None:
    """Lower to one loop."""
    body = _body(lowering, operator.body)
    limit, condition, *values = (*node.inputs, None, None)[: max(len(node.inputs), 2)]
    given = _read(lowering, values)
    results = [lowering.write(value) for value in node.outputs]
    loop = instructions.Loop(
        body,
        captured=len(operator.split(given)[2]),
        limited=limit is not None,
        started=condition is not None,
        rounds=operator.rounds,
        carried=operator.carried,
        scanned=operator.scanned,
        collected=operator.collected,
        conditional=operator.conditional,
    )
    kept = body.placeholders[sum(loop.given_and_made) :]
    state = [lowering.placeholder(buffer.name, buffer.type) for buffer in kept]
    loop = replace(loop, kept=(len(state),) if state else ())
    ends = _read(lowering, [value for value in (limit, condition) if value is not None])
    lowering.emit(loop, *results, *state, *ends, *given, _inside(lowering, node))


def _body(lowering: Lowering, region: Graph) -> Program:
    """Lower a region whose outputs are results of nodes of their own."""
    give_own_outputs(region)
    return lowering.lower_region(region)


def _read(lowering: Lowering, values: Sequence[Value | None]) -> list[Buffer]:
    return [lowering.read(v, natural(v.type.shape)) for v in values if v is not None]


def _inside(lowering: Lowering, node: Node) -> Buffer:
    """Scratch memory for the bodies; the memory plan sets its size."""
    return lowering.allocate(f"{node.name}.inside", TensorType(ElementType.INT8, (0,)))
