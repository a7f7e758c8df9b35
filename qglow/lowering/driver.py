"""Graph to program: decompose, schedule, choose orders, emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

# The family files fill the table of rules when they are imported.
from qglow.core.errors import UnsupportedError
from qglow.graph.graph import Graph, Node
from qglow.graph.verifier import verify_graph
from qglow.instructions.ops.memory import Copy
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program
from qglow.lowering import (  # noqa: F401
    blocks,
    control,
    conv,
    elements,
    elementwise,
    experts,
    functions,
    linear,
    logic,
    normalization,
    opaque,
    pool,
    quantize,
    ranking,
    recurrence,
    reduce,
    resize,
    rows,
    selection,
    shape,
    softmax,
    standardize,
)
from qglow.lowering.backend import ANY, Backend
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import decompose, is_table
from qglow.lowering.joins import find_joins, lower_join
from qglow.lowering.live import NO_LIMITS, LiveResults, spread_live
from qglow.lowering.quantize import lower_table
from qglow.lowering.rules import RULES, LoweringRule
from qglow.lowering.schedule import schedule
from qglow.lowering.strips import compute_in_strips
from qglow.lowering.thrift import Thrift
from qglow.passes.pipeline import lowering_pipeline

NOTHING: Mapping[str, object] = MappingProxyType({})


def lower(
    graph: Graph,
    backend: Backend = ANY,
    thrift: Thrift | None = None,
    *,
    live: Mapping[str, object] = NOTHING,
    limits: LiveResults = NO_LIMITS,
    whole: bool = True,
) -> Program:
    """Lower a copy of `graph` to a program of instructions.

    thrift: what is done so that less memory lives at one time; it is told what was done. live: inputs that
    tell which places of an axis count, the first ones, each with what their number follows from. limits:
    results of which only some places matter, see `instructions.program.Live`. whole: several nodes may become
    one instruction, which does not write the values between them. Raises UnsupportedError, which lists every
    operator without a lowering.
    """
    work = graph.copy()
    lowering_pipeline(observed=not whole).run(work, verify_graph)
    program = _lower(work, _Manner(backend, thrift, live, limits, whole))
    verify_program(program, "after lowering")
    return program


@dataclass(frozen=True)
class _Manner:
    """The options of `lower`."""

    backend: Backend
    thrift: Thrift | None
    live: Mapping[str, object]
    limits: LiveResults
    whole: bool


def _lower(work: Graph, manner: _Manner, outside: Lowering | None = None) -> Program:
    """Lower a graph, which this changes. outside: the lowering of what runs it, for a region."""
    decompose(work, manner.backend)
    verify_graph(work, "after decomposition")
    missing = [n for n in work.nodes if _rule(n) is None]
    if missing:
        listed = ", ".join(f"{n.operator.name} '{n.name}'" for n in missing)
        raise UnsupportedError(f"no lowering for {listed}")
    _order(work, manner.thrift)
    names = None if outside is None else outside.names
    inside, limits = replace(manner, thrift=None, limits=NO_LIMITS), manner.limits
    places = spread_live(work, limits.places)
    lowering = Lowering(
        work, lambda region, caller: _lower(region, inside, caller), names, places, limits.summed
    )
    joins = find_joins(work, manner.live, places) if manner.whole and manner.backend.joins else []
    joined = {node: join for join in joins for node in join.nodes}
    for node in work.nodes:
        if node in joined:
            if node is joined[node].place:
                lowering.begin(node)
                lower_join(lowering, joined[node])
            continue
        lowering.begin(node)
        rule = _rule(node)
        assert rule is not None
        rule(lowering, node, node.operator)
    _return_outputs(lowering)
    return lowering.finish()


def _order(graph: Graph, thrift: Thrift | None) -> None:
    schedule(graph, search=thrift is not None)
    if thrift is not None and thrift.most is not None:
        thrift.done = compute_in_strips(graph, thrift.most)
        verify_graph(graph, "after strips")


def _rule(node: Node) -> LoweringRule[Any] | None:
    """The rule of the node's operator; an int8 function without one is looked up in its table."""
    rule = RULES.get(type(node.operator))
    return lower_table if rule is None and is_table(node) else rule


def _return_outputs(lowering: Lowering) -> None:
    """Bring every graph output that was not written in place into its placeholder."""
    for value in dict.fromkeys(lowering.graph.outputs):
        target = lowering.output_placeholder(value)
        found = lowering.read(value, natural(value.type.shape))
        if found.root is not target:
            lowering.emit(Copy(), target, found, suffix=".return")
