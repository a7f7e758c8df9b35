"""Explanation of one node: precision, parameters, rewrites, kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from qglow.core.errors import InternalError, UsageError
from qglow.core.passes import LogEntry
from qglow.core.text import format_attributes
from qglow.core.types import Quantization
from qglow.display.blocks import Block, Paragraph, Section, facts, percent, significant, table
from qglow.display.document import Document
from qglow.graph.graph import Graph, Node, Value, nested
from qglow.graph.ops.rows import THEMSELVES
from qglow.instructions.ops.control import Structured
from qglow.instructions.program import Program
from qglow.quantization.choices import Choice, Choices, names_of, shortened
from qglow.quantization.dynamic import real_rows
from qglow.quantization.regions import entries_inside, report_inside
from qglow.quantization.report import QuantizationReport, is_int8
from qglow.quantization.scaled_later import is_scaled_later, weight_scales
from qglow.quantization.tensors import TensorRange
from qglow.recipe.matching import means
from qglow.recipe.schema import Recipe
from qglow.report.diagnosis import Diagnosis, node_section
from qglow.report.policies import policy_text
from qglow.report.value_ranges import profiled_range

_CONVERSIONS = ("quantize", "dequantize")


def find_node(graph: Graph, name: str) -> tuple[str, Node]:
    """The node of this name, or the one that gives the value of this name. Raises UsageError.

    A name may be written as reports print it; one that is a name as it is comes first. Nodes of regions have
    the path of the region before their names, which is returned beside the node.
    """
    nodes = [(path, node) for path, part in nested(graph) for node in part.nodes]
    for same in (str.__eq__, means):
        for path, node in nodes:
            if any(same(name, path + known) for known in names_of(node)):
                return path, node
    known = [path + known for path, node in nodes for known in names_of(node)]
    nearest = get_close_matches(name, known, 1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else "qglow inspect lists them"
    raise UsageError(f"no node or value is called '{name}'; {hint}")


def explain(
    name: str,
    graph: Graph,
    program: Program,
    log: Iterable[LogEntry],
    report: QuantizationReport | None = None,
    source: Graph | None = None,
    recipe: Recipe | None = None,
    diagnosis: Diagnosis | None = None,
) -> Document:
    """The chain of reasons for a node of `graph`, whose `program` has its kernels selected.

    log: of every pass, those of quantization included. report, source, recipe: of an int8 graph, the
    float graph that it stands for and the choices that made it; diagnosis: what was measured of its
    errors. Raises UsageError for a name that is not there.
    """
    entries = tuple(log)
    folded = [entry for entry in entries if means(name, entry.where)]
    if folded and not _has(graph, name):
        gone = Section(f"Node {name}", (Paragraph("It is no longer in the graph: passes took it away."),))
        return Document(name, (gone, _rewrites_of(folded)))
    path, node = find_node(graph, name)
    errors = None if diagnosis is None else node_section(diagnosis, path + node.name)
    choice = None if source is None or recipe is None else _choice(source, recipe, path, node)
    if path:
        program, entries = _body(program, graph, path), entries_inside(entries, path)
        report = None if report is None else report_inside(report, path)
    sections = [_node(node, path), _precision(node, report, choice, recipe)]
    if report is not None:
        sections += _parameters(node, report)
    sections += [] if errors is None else [errors]
    sections += [_rewrites(node, entries), _kernels(node, program)]
    return Document(f"{node.operator.name} '{path}{node.name}'", tuple(sections))


def _has(graph: Graph, name: str) -> bool:
    nodes = ((path, node) for path, part in nested(graph) for node in part.nodes)
    return any(means(name, path + known) for path, node in nodes for known in names_of(node))


def _choice(source: Graph, recipe: Recipe, path: str, node: Node) -> Choice | None:
    """The choice for a node of the region at `path`, or of the float graph itself at "", if there is such."""
    parts = dict(nested(source))
    return Choices.of(parts[path], recipe, path).of_node(node) if path in parts else None


def _body(program: Program, graph: Graph, path: str) -> Program:
    """The program of the graph's region at `path`."""
    for node in graph.nodes:
        for number, name in enumerate(node.operator.region_names):
            begin = f"{node.name}.{name}/"
            if not path.startswith(begin):
                continue
            found = (i.operation for i in program.code if node.name in i.origin)
            body = next(o.bodies[number] for o in found if isinstance(o, Structured))
            rest = path.removeprefix(begin)
            return _body(body, node.operator.regions[number], rest) if rest else body
    raise InternalError(f"the program has no body at {path}")


def _node(node: Node, path: str) -> Section:
    rows = [("operator", f"{node.operator.name} {format_attributes(node.operator)}".strip())]
    for operand, value in zip(node.operator.operands, node.inputs, strict=False):
        if value is not None:
            rows.append((operand.rstrip("?*"), _described(value, path)))
    rows += [("result", _described(value, path)) for value in node.outputs]
    return Section(f"Node {path}{node.name}", (facts(rows),))


def _described(value: Value, path: str) -> str:
    if value.is_constant:
        return f"{value.name}, constant {value.type.element.name.lower()} {list(value.type.shape)}"
    begin = f"input of {path.removesuffix('/')}" if path else "input of the model"
    source = begin if value.producer is None else f"from {value.producer.name}"
    return f"{value.name}: {value.type}, {source}"


def _precision(
    node: Node, report: QuantizationReport | None, choice: Choice | None, recipe: Recipe | None
) -> Section:
    rows = [("its operator", policy_text(type(node.operator)))]
    if report is None:
        return Section("Precision", (facts([*rows, ("runs in", "float32: the model is not quantized")]),))
    rows.append(("runs in", _integers(node) if is_int8(node) else _reals(node, report)))
    if choice is not None and recipe is not None:
        listed = ", ".join(f"{n} ({shortened(str(recipe.rules[n - 1].match))})" for n in choice.rules)
        rows.append(("rules of the recipe", listed or "none fits"))
        if choice.in_attention:
            rows.append(("policy", f"transformer ({recipe.scheme})"))
    for number, island in enumerate(report.islands, start=1):
        if node.name in island.nodes:
            rows.append(("int8 region", f"{number}, of {len(island.nodes)} nodes"))
    return Section("Precision", (facts(rows),))


def _reals(node: Node, report: QuantizationReport) -> str:
    """The type of a float node and why it is one; what a node of 16 bits keeps in float32."""
    found = next((f for f in report.float_nodes if f.name == node.name), None)
    if found is None:
        return f"float32: {'it rounds to 16 bits' if node.operator.rounds_to else 'it converts'}"
    if found.dtype == "float32":
        return f"float32: {found.reason}"
    if found.dtype.startswith("int"):
        return f"float32 but for its weights: {found.reason}"
    return f"{found.reason}: its result, and its weights if it has any, are rounded to it; sums are float32"


def _integers(node: Node) -> str:
    known = [v.type.quantization for v in (*node.inputs, *node.outputs) if v is not None]
    return "int16" if any(q is not None and q.is_wide for q in known) else "int8"


def _parameters(node: Node, report: QuantizationReport) -> list[Section]:
    ranges = {tensor.value: tensor for tensor in report.tensors}
    rows = []
    for value in (*node.inputs, *node.outputs):
        scaled_later = value is not None and value.type.quantization == THEMSELVES
        if value is not None and value.type.is_quantized and not value.is_constant and not scaled_later:
            origin = "the model's own" if report.given else "not profiled: its parameters are a neighbour's"
            rows.append(_range_row(value, profiled_range(value, ranges), origin))
    blocks: list[Block] = []
    if rows:
        titles = ("value", "seen", "covers", "clipped>", "schema", "calibration", "scale>", "zero point>")
        blocks.append(table(titles, rows))
    blocks += [Paragraph(text) for text in (*_measured_rows(node), *_weights(node, report))]
    return [Section("Parameters", tuple(blocks))] if blocks else []


def _range_row(value: Value, tensor: TensorRange | None, origin: str) -> tuple[str, ...]:
    quantization, covered = value.type.quantization, value.type.real_range()
    assert quantization is not None
    final = (significant(quantization.scale, 6), str(quantization.zero_point))
    covers = "" if covered is None else f"{covered[0]:.4g} to {covered[1]:.4g}"
    if tensor is None:
        return (value.name, origin, covers, "", "", "", *final)
    seen = f"{tensor.seen_low:.4g} to {tensor.seen_high:.4g}"
    return (value.name, seen, covers, percent(tensor.clipped), tensor.schema, tensor.calibration, *final)


def _measured_rows(node: Node) -> Iterable[str]:
    if any(value is not None and value.type.quantization == THEMSELVES for value in node.inputs[:1]):
        rows = real_rows(node)
        if rows is not None:
            yield (
                f"Rows of {rows.name} are measured while the model runs: the scale of each is its largest "
                "magnitude over 127."
            )


def _weights(node: Node, report: QuantizationReport) -> Iterable[str]:
    for value in node.inputs:
        if value is None or not value.is_constant or value.type.quantization is None:
            continue
        scales = _scales(node, value.type.quantization)
        many = f"{len(scales)} scales, {min(scales):.4g} to {max(scales):.4g}"
        yield f"Weights {value.name}: {many if len(scales) > 1 else f'one scale, {scales[0]:.4g}'}."
    margin = next((n.margin for n in report.quantized if n.name == node.name), None)
    if margin is not None:
        yield f"Its largest possible int32 sum fits {margin:.1f} times: proven from weights and zero points."


def _scales(node: Node, quantization: Quantization) -> Sequence[float]:
    """Scales of the integer weights of a node, which later nodes may multiply by."""
    if not is_scaled_later(node):
        return quantization.scales
    found = weight_scales(node)
    return quantization.scales if found is None else [float(scale) for scale in found.ravel()]


def _rewrites(node: Node, log: Iterable[LogEntry]) -> Section:
    """Log entries on the node, on conversions of its values, and on nodes that became part of it."""
    values = [v.name for v in (*node.inputs, *node.outputs) if v is not None and not v.is_constant]
    places = {node.name, *(value.name for value in node.outputs)}
    places |= {f"{kind}_{name}{end}" for name in values for kind in _CONVERSIONS for end in ("", "_float")}
    return _rewrites_of([e for e in log if e.where in places or f"'{node.name}'" in e.what])


def _rewrites_of(entries: Sequence[LogEntry]) -> Section:
    if not entries:
        return Section("Rewrites", (Paragraph("No pass changed it, or said why it did not."),))
    done = {True: "done", False: "not done"}
    rows = [(e.pass_name, e.where, done[e.applied], e.what, _exactness(e)) for e in entries]
    return Section("Rewrites", (table(("pass", "at", "", "what", ""), rows),))


def _exactness(entry: LogEntry) -> str:
    if not entry.applied:
        return ""
    return "exact" if entry.exact else "approximate"


def _kernels(node: Node, program: Program) -> Section:
    rows = [
        (i.name, i.operation.opcode, i.kernel or "none", "" if i.stack is None else str(i.stack))
        for i in program.code
        if any(origin == node.name or origin.startswith(f"{node.name}.") for origin in i.origin)
    ]
    if not rows:
        return Section("Kernel", (Paragraph("No instruction is left of it: it was folded or fused away."),))
    titles = ("instruction", "operation", "kernel", "shared loop>")
    return Section("Kernel", (table(titles, rows),))
