"""Operators with regions as If, Loop and Scan of ONNX, whose bodies read values around the node by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from qglow.exporter.proto import ProtoBuilder
from qglow.graph.graph import Graph, Node
from qglow.graph.operator import Operator
from qglow.graph.ops.control import COUNT, FLAG, If, Loop, give_own_outputs

WriteRegion = Callable[[ProtoBuilder, Graph], None]
"""Writes the nodes of a region."""


def export_structured(builder: ProtoBuilder, node: Node, inputs: Sequence[str], write: WriteRegion) -> None:
    """Write a node with regions; `inputs` are the names of its operands, empty for absent ones."""
    _WRITERS[type(node.operator)](builder, node, inputs, write)


def _export_branch(builder: ProtoBuilder, node: Node, inputs: Sequence[str], write: WriteRegion) -> None:
    condition, *captured = inputs
    bodies = {
        name: _body(builder, region, captured, write)
        for name, region in zip(("then_branch", "else_branch"), node.operator.regions, strict=True)
    }
    builder.node_of_several("If", node.name, [condition], [v.name for v in node.outputs], **bodies)


def _body(
    builder: ProtoBuilder, region: Graph, captured: Sequence[str], write: WriteRegion
) -> onnx.GraphProto:
    """The body of a branch: a graph without inputs."""
    region = _named_apart(builder, region)
    for value, name in zip(region.inputs, captured, strict=True):
        value.name = name
    inside = builder.inside()
    write(inside, region)
    return inside.body(region.name, [], [(v.name, v.type) for v in region.outputs])


def _export_loop(builder: ProtoBuilder, node: Node, inputs: Sequence[str], write: WriteRegion) -> None:
    """Write a Scan where slices tell the number of rounds, which fits every length; else a Loop."""
    operator: Any = node.operator
    limit, condition, *values = (*inputs, "", "")[: max(len(inputs), 2)]
    starts, sources, captured = operator.split(values)
    region = _named_apart(builder, operator.body)
    number, *given = region.inputs
    if sources and not number.users() and not operator.conditional:
        _export_scan(builder, node, (starts, sources, captured), region, write)
        return
    carried, slices, own = operator.split(given)
    for value, name in zip(own, captured, strict=True):
        value.name = name
    inside, label = builder.inside(), node.name
    places = dict.fromkeys((False, *operator.scanned), number.name)
    if True in places:
        last = builder.constant(f"{label}__last", np.array((operator.rounds or 0) - 1, np.int64))
        places[True] = inside.node(
            "Sub", f"{label}__place", [last, number.name], builder.fresh(f"{label}__place")
        )
    for value, source, back in zip(slices, sources, operator.scanned, strict=True):
        inside.node("Gather", f"{label}__slice", [source, places[back]], value.name, axis=0)
    write(inside, region)
    goes_in = builder.fresh(f"{label}__go")
    results = [(value.name, value.type) for value in region.outputs]
    if not operator.conditional:
        goes_on = inside.node("Identity", f"{label}__go_on", [goes_in], builder.fresh(f"{label}__go_on"))
        results.insert(0, (goes_on, FLAG))
    taken = [(number.name, COUNT), (goes_in, FLAG), *((v.name, v.type) for v in carried)]
    body = inside.body(region.name, taken, results, sized=False)
    most = _most(builder, node, operator, limit)
    if not condition and not starts:
        condition = builder.constant(f"{label}__always", np.array(True))  # two inputs are the least
    rows = node.outputs[operator.carried :]
    names = {
        v: builder.fresh(f"{v.name}__rows") for v, back in zip(rows, operator.collected, strict=True) if back
    }
    outputs = [names.get(value, value.name) for value in node.outputs]
    builder.node_of_several("Loop", label, [most, condition, *starts], outputs, body=body)
    for value, name in names.items():
        order = builder.constant(f"{label}__order", np.arange(operator.rounds or 0, dtype=np.int64)[::-1])
        builder.node("Gather", f"{label}__turn", [name, order], value.name, axis=0)


def _export_scan(
    builder: ProtoBuilder, node: Node, values: Sequence[list[str]], region: Graph, write: WriteRegion
) -> None:
    """Write a Scan. values: names of what is carried, scanned and captured. region: with names of its own."""
    operator: Any = node.operator
    starts, sources, captured = values
    carried, slices, own = operator.split(region.inputs[1:])
    for value, name in zip(own, captured, strict=True):
        value.name = name
    inside = builder.inside()
    write(inside, region)
    taken, results = (
        [(value.name, value.type) for value in part] for part in ((*carried, *slices), region.outputs)
    )
    builder.node_of_several(
        "Scan",
        node.name,
        [*starts, *sources],
        [value.name for value in node.outputs],
        body=inside.body(region.name, taken, results, sized=False),
        num_scan_inputs=len(sources),
        scan_input_directions=list(map(int, operator.scanned)),
        scan_output_directions=list(map(int, operator.collected)),
    )


def _most(builder: ProtoBuilder, node: Node, operator: Any, limit: str) -> str:
    """Name of the most rounds; empty where only conditions end the loop."""
    if operator.rounds is None:
        return limit
    most = builder.constant(f"{node.name}__rounds", np.array(operator.rounds, np.int64))
    if not limit:
        return most
    return builder.node("Min", f"{node.name}__most", [limit, most], builder.fresh(f"{node.name}__most"))


def _named_apart(builder: ProtoBuilder, region: Graph) -> Graph:
    """A copy of a region whose values have names that no others have, and whose outputs are its own."""
    copy = region.copy()
    give_own_outputs(copy)
    for value in list(copy.values()):
        value.name = builder.fresh(value.name)
    return copy


_WRITERS: dict[type[Operator], Callable[[ProtoBuilder, Node, Sequence[str], WriteRegion], None]] = {
    If: _export_branch,
    Loop: _export_loop,
}
