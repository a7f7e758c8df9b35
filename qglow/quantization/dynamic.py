"""Products whose rows get their scales while the model runs (rules 11 and 12 of the numeric contract).

A chosen product of rows with constant weights becomes operators that exist: RowScales measures the rows, a
division, a Clip and a Quantize of scale 1 make integers of them, a Gemm of integers gives their exact sums in
float, and products with both scales and an addition of the bias finish it. With weights in blocks one
operator takes the integers and the scales of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array, TensorType
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import KeepFloat, Operator
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.rows import THEMSELVES, RowScales
from qglow.graph.rewriting import change, new_constant, operand
from qglow.numerics.blocks import largest_block_sum
from qglow.numerics.requantize import INT32_MAX, accumulator_margin
from qglow.numerics.rows import LARGEST
from qglow.numerics.weights import SMALLEST_WEIGHT_SCALE, WEIGHT_MAX, largest_weights, quantize_weights
from qglow.quantization.blocks import BlockMaker, block_operands, has_matrices, unfit_for_blocks
from qglow.quantization.single_steps import take_apart, unfit_step
from qglow.quantization.weights import unfit_weights
from qglow.recipe.choices import BlockFormat

PASS = "scale-rows"
PART = "part of a product whose rows are scaled while the model runs"
ROW_STEPS = 3
"""Operators between reals and the integers of their rows: a division, a Clip and a Quantize."""
WEIGHTS = ("w", "scales", "zero_points", "bias")
"""Operands of products with weights in blocks that have to be constants."""
SCALED = "scaled"
"""Part of a product to which its bias is added."""


@dataclass(frozen=True)
class DynamicProducts:
    """Products that were rewritten.

    margins: the int32 limit over the largest possible sum, by name of the node. reasons: why the float
    nodes that were added are float, by name. formats: those of weights in blocks, by name of the node.
    """

    margins: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)


def unfit_for_rows(node: Node, chosen: BlockFormat | None = None) -> str | None:
    """Reason why a node cannot scale its rows while the model runs; None if it can.

    chosen: the format that its weights get. Weights that are in blocks already stay as they are.
    """
    if node.operator.weight_blocks is not None:
        return _unfit_blocks(node)
    if node.operator.recurs is not None and chosen is None:
        return unfit_step(node) or _beyond_int32(node, node.operator.recurs.w)
    if chosen is not None:
        return unfit_for_blocks(node, chosen)
    if has_matrices(node):
        return "each of its rows has a matrix of its own, whose weights have to be in blocks"
    reason = unfit_weights(node, "dynamic scales")
    if reason is not None:
        return reason
    return _beyond_int32(node, "w")


def _beyond_int32(node: Node, name: str) -> str | None:
    """Reason why sums over all rows of the weights of this name are no int32; None if they are."""
    weights = node.operand(name)
    depth = 0 if weights is None else weights.type.shape[0]
    if depth * LARGEST * LARGEST > INT32_MAX:
        return f"sums over {depth} products could be beyond int32"
    return None


def rows_of(node: Node) -> Value:
    """The value whose rows a product multiplies: of a recurrent layer, the states before its first step."""
    policy = node.operator.recurs
    return operand(node, 0 if policy is None else node.operator.place_of(policy.state))


def multiplies_scaled_rows(node: Node) -> bool:
    """Whether a node multiplies integers of rows that are scaled while the model runs."""
    x = node.inputs[0] if node.inputs else None
    return x is not None and x.type.quantization == THEMSELVES and node.operator.accumulate is not None


def scaled_columns(node: Node) -> Array | None:
    """Real weights [K, N] of such a node: its integers by the scales of their columns.

    None where the sums are not multiplied as `scale_rows` has it.
    """
    w, scales = node.operand("w"), scales_of_columns(node)
    if w is None or w.data is None or scales is None:
        return None
    return np.asarray(w.data * scales, np.float32)


def scales_of_columns(node: Node) -> Array | None:
    """Scales [N] of the weights of such a node; None where `scale_rows` did not make it."""
    w, users = node.operand("w"), node.output.users()
    factors = [v.producer for user in users for v in user.inputs if v is not None and v is not node.output]
    operands = [v for factor in factors if factor is not None for v in factor.inputs if v is not None]
    constants = [value for value in operands if value.data is not None]
    if w is None or w.data is None or len(users) != 1 or len(constants) != 1:
        return None
    scales = np.asarray(constants[0].data)
    return scales if constants[0].type.is_float and scales.shape == w.data.shape[1:] else None


def real_rows(node: Node) -> Value | None:
    """The reals whose rows such a node multiplies as integers; None where `scale_rows` did not make them."""
    value: Value | None = node.inputs[0]
    for _ in range(ROW_STEPS):
        producer = None if value is None else value.producer
        value = None if producer is None else producer.inputs[0]
    return value if value is not None and value.type.is_float else None


def real_result(node: Node) -> Value | None:
    """The reals that the sums of such a node become; None where `scale_rows` did not make it."""
    if scales_of_columns(node) is None:
        return None
    (scaled,) = node.output.users()
    return (adds_bias(node) or scaled).output


def adds_bias(node: Node) -> Node | None:
    """The node that adds the bias [N] to the scaled sums of such a node; None where there is none."""
    scaled = node.output.users()
    adding = scaled[0].output.users() if len(scaled) == 1 else []
    if len(adding) != 1 or scaled[0].name != f"{adding[0].name}.{SCALED}":
        return None
    return None if operand(adding[0], 1).data is None else adding[0]


def added_bias(node: Node) -> Array | None:
    """Bias [N] that is added to the scaled sums of such a node; None where there is none."""
    adding = adds_bias(node)
    return None if adding is None else np.asarray(operand(adding, 1).data)


def rows_margin(weights: Array) -> float:
    """The int32 limit over the largest possible sum of such a node with integer weights [K, N]."""
    return accumulator_margin(np.array(_largest_sum(weights)))


def _unfit_blocks(node: Node) -> str | None:
    policy = node.operator.policy
    if isinstance(policy, KeepFloat) and not policy.scaled_by:
        return "its rows have no form of integers"
    zeros = node.operand("zero_points")
    if zeros is not None and zeros.type.is_float:
        return "its zero points are no integers"
    operands = zip(node.operator.operands, node.inputs, strict=False)
    given = [value for name, value in operands if name.strip("?") in WEIGHTS and value is not None]
    return None if all(value.data is not None for value in given) else "its weights are computed by the graph"


def scale_rows(
    graph: Graph,
    chosen: Mapping[Node, BlockFormat | None],
    log: PassLog,
    maker: BlockMaker | None = None,
    means: Mapping[str, Array] | None = None,
) -> DynamicProducts:
    """Rewrite nodes for which `unfit_for_rows` has no reason, in place; weights get their format, if any.

    maker: makes weights in blocks. means: float64[K] of the inputs of nodes by name, for which biases restore
    the mean of every column of the result. The product of integers keeps the node's name, the last operator
    gives its result.
    """
    log.pass_name = PASS
    work = _Rewriting(graph, maker or BlockMaker(), means or {})
    for node, format_ in chosen.items():
        name = node.name
        if format_ is not None or node.operator.weight_blocks is not None:
            work.rewrite_blocks(node, format_)
        elif node.operator.recurs is None:
            work.rewrite(node)
        elif (fault := unfit_step(node)) is None:
            work.rewrite(work.taken_apart(node))
        else:  # a rule may have made readers of its states int8
            log.refused(name, fault)
            continue
        weights = f", its weights are {work.made.formats[name]}" if name in work.made.formats else ""
        log.applied(name, f"its rows are scaled while the model runs{weights}", exact=False)
    return work.made


class _Rewriting:
    def __init__(self, graph: Graph, maker: BlockMaker, means: Mapping[str, Array]) -> None:
        self._graph = graph
        self._maker = maker
        self._means = means
        self._rows: dict[tuple[Value, TensorType], tuple[Value, Value]] = {}
        self.made = DynamicProducts()

    def rewrite(self, node: Node) -> None:
        """Rewrite one product; its node becomes the last operator, under another name."""
        graph, name, (lo, hi) = self._graph, node.name, node.operator.bounds
        x, weights, bias = operand(node), operand(node, 1), node.operand("bias")
        node.name = graph.unique_name(f"{name}.real")
        self.made.reasons[node.name] = PART
        integers, scales = self._rows_of(node, x)
        columns = column_scales(weights)
        whole = quantize_weights(np.asarray(weights.data), columns, 1)
        bias = self._corrected(name, bias, np.asarray(weights.data) - whole * columns.astype(np.float64))
        self.made.margins[name] = rows_margin(whole)
        stored = constant(graph.unique_name(f"{weights.name}.rows"), whole, THEMSELVES)
        sums = self._add(node, name, f"{node.output.name}.sums", Gemm(), integers, stored, None)
        factor = new_constant(graph, f"{name}.column_scales", columns)
        factors = self._part(node, "factors", Mul(), scales, factor)
        if bias is None:
            change(node, Mul(lo=lo, hi=hi), [sums, factors])
        else:
            change(node, Add(lo=lo, hi=hi), [self._part(node, SCALED, Mul(), sums, factors), bias])

    def taken_apart(self, node: Node) -> Node:
        """Return the product of a recurrent layer of one step; its cell is float."""
        return take_apart(self._graph, node, partial(self._part, node))

    def _corrected(self, name: str, bias: Value | None, error: Array) -> Value | None:
        """Return a bias with what rounding weights [K, N] by `error` takes from the mean of each column."""
        means = self._means.get(name)
        if means is None or len(means) != len(error) or (bias is not None and bias.data is None):
            return bias
        before = np.zeros(error.shape[1]) if bias is None else np.asarray(bias.data, np.float64)
        with np.errstate(invalid="ignore"):
            shifted = (before + means @ error).astype(np.float32)
        if not np.all(np.isfinite(shifted)):
            return bias
        return new_constant(self._graph, f"{name}.bias", shifted)

    def rewrite_blocks(self, node: Node, chosen: BlockFormat | None) -> None:
        """Rewrite one product to one with weights in blocks, or give such a one integers of rows."""
        x, name = operand(node), node.name
        integers, scales = self._rows_of(node, x)
        if chosen is not None and node.operator.weight_blocks is None:
            blocks, weights = block_operands(self._graph, node, chosen, self._maker)
            change(node, blocks, [x, *weights, node.operand("bias")])
        form, packed, zeros = node.operator.weight_blocks, operand(node, 1).data, node.operand("zero_points")
        assert form is not None and packed is not None
        halves = operand(node, 2).type.is_half
        points, depth = None if zeros is None else zeros.data, x.type.shape[-1]
        largest = largest_block_sum(packed, points, depth, form.bits, form.block)
        self.made.margins[name] = accumulator_margin(np.array(largest))
        self.made.formats[name] = str(BlockFormat(form.bits, form.block, zeros is None, halves))
        wanted = len(node.operator.operands) - 2  # all but the rows and their scales
        filled = [*node.inputs[1:], *[None] * wanted][:wanted]
        change(node, node.operator, [integers, *filled, scales])

    def _rows_of(self, node: Node, x: Value) -> tuple[Value, Value]:
        """Return integers of the rows of x, and their scales; products that read the same rows share them."""
        key = _unshaped(x), x.type
        if key not in self._rows:
            scales = self._part(node, "row_scales", RowScales(), x)
            divided = self._part(node, "divided", Div(), x, scales)
            clipped = self._part(node, "clipped", Clip(lo=-float(LARGEST), hi=float(LARGEST)), divided)
            integers = self._part(node, "integers", Quantize(), clipped)
            integers.type = integers.type.quantized(THEMSELVES)
            self._rows[key] = integers, scales
        return self._rows[key]

    def _part(self, node: Node, part: str, operator: Operator, *inputs: Value | None) -> Value:
        """Add a float operator before a node, named after it."""
        name = self._graph.unique_name(f"{node.name}.{part}")
        self.made.reasons[name] = PART
        return self._add(node, name, f"{node.output.name}.{part}", operator, *inputs)

    def _add(self, node: Node, name: str, result: str, operator: Operator, *inputs: Value | None) -> Value:
        kind = operator.infer([None if value is None else value.type for value in inputs])[0]
        value = Value(self._graph.unique_name(result), kind)
        self._graph.insert_before(node, Node(name, operator, inputs, [value]))
        return value


def _unshaped(x: Value) -> Value:
    """The value whose elements, in the same order, x has in another shape: each product may have its own."""
    while x.producer is not None and x.producer.operator.rearranges and x.producer.operator.states_shape:
        x = operand(x.producer)
    return x


def column_scales(weights: Value) -> Array:
    """float32 `max(max|w| / 127, 2^-100)` of every column of constant weights [K, N]."""
    largest = largest_weights(np.asarray(weights.data), 1)
    return np.asarray(np.maximum(largest / WEIGHT_MAX, SMALLEST_WEIGHT_SCALE).astype(np.float32))


def _largest_sum(weights: Array) -> int:
    """Return the largest magnitude of a sum over a column of integer weights [K, N]."""
    sums = np.abs(weights.astype(np.int64)).sum(axis=0)
    return int(np.max(sums, initial=0)) * LARGEST
