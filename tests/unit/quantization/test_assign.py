"""Parameters of values: own ones, tied ones, shared ones, fixed ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.errors import ProfileError
from qglow.core.passes import PassLog
from qglow.core.types import Quantization, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Mul, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.movement import Pad
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.shape import Concat, Reshape
from qglow.numerics.schema import Schema, choose_parameters
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.assign import assign_parameters
from qglow.quantization.choices import Choices
from qglow.quantization.ranges import Ranges, only_function
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe

MINMAX = Recipe(calibration=Calibration("minmax"))
SHAPE = (1, 2, 4, 4)


def profiled(low: float, high: float, seed: int = 0) -> ValueProfile:
    """Evenly spread over the range, 0 included."""
    profile = ValueProfile.of_shape((1, 1))
    profile.observe(np.linspace(low, high, 4001, dtype=np.float32)[:, None])
    return profile


def assigned(
    graph: Graph, ranges: dict[str, tuple[float, float]], options: Recipe = MINMAX
) -> tuple[dict[str, Quantization], PassLog]:
    statistics = {name: profiled(*bounds) for name, bounds in ranges.items()}
    log = PassLog()
    found = assign_parameters(graph, graph.nodes, Ranges(statistics, Choices.of(graph, options)), log)
    return {value.name: parameters for value, parameters in found.items()}, log


def asymmetric(low: float, high: float) -> Quantization:
    return choose_parameters(float(np.float32(low)), float(np.float32(high)), Schema.asymmetric)


def inputs(b: GraphBuilder, *names: str) -> list[Value]:
    return [b.input(name, float_type(*SHAPE)) for name in names]


def test_an_elementwise_result_has_its_own_range() -> None:
    b = GraphBuilder("g")
    x, y = inputs(b, "x", "y")
    found, _ = assigned(b.finish(b.node(Add(), x, y, name="z")), {"x": (-1, 1), "y": (0, 2), "z": (-1, 3)})
    assert found == {"x": asymmetric(-1, 1), "y": asymmetric(0, 2), "z": asymmetric(-1, 3)}


@pytest.mark.parametrize("schema", list(Schema))
def test_the_schema_decides_the_parameters(schema: Schema) -> None:
    b = GraphBuilder("g")
    (x,) = inputs(b, "x")
    options = Recipe(schema=schema.value, calibration=Calibration("minmax"))
    found, _ = assigned(b.finish(b.node(Relu(), x, name="y")), {"x": (-1, 3), "y": (0, 3)}, options)
    assert found["y"] == choose_parameters(0, 3, schema)


def test_a_fused_relu_starts_at_exactly_zero() -> None:
    b = GraphBuilder("g")
    x, y = inputs(b, "x", "y")
    graph = b.finish(b.node(Add(lo=0.0, hi=6.0), x, y, name="z"))
    found, _ = assigned(graph, {"x": (-1, 1), "y": (0, 2), "z": (-0.5, 7)})
    assert found["z"].zero_point == -128
    assert found["z"].scale == pytest.approx(6 / 255)


def test_data_movement_takes_its_operands_parameters() -> None:
    b = GraphBuilder("g")
    (x,) = inputs(b, "x")
    pooled = b.node(MaxPool(kernel=(2, 2)), x, name="pooled")
    padded = b.node(Pad((0, 0, 1, 1, 0, 0, 1, 1)), pooled, name="padded")
    flat = b.node(Reshape((padded.type.size,)), padded, name="flat")
    found, _ = assigned(b.finish(flat), {"x": (-4, 1)})
    assert set(found.values()) == {asymmetric(-4, 1)}


def concat(*names: str) -> Graph:
    b = GraphBuilder("g")
    return b.finish(b.node(Concat(1), *inputs(b, *names), name="y"))


def test_a_concat_shares_the_range_of_all_where_it_costs_little() -> None:
    found, _ = assigned(concat("a", "b"), {"a": (0, 1), "b": (-0.02, 0.97), "y": (-0.02, 1)})
    assert set(found.values()) == {asymmetric(-0.02, 1)}


def test_an_operand_that_would_lose_a_decibel_keeps_its_own_range() -> None:
    found, log = assigned(concat("a", "b"), {"a": (0, 1), "b": (0, 1.3), "y": (0, 1.3)})
    assert found["a"] == asymmetric(0, 1)
    assert found["b"] == found["y"] == asymmetric(0, 1.3)
    assert "'a' would lose 2.3 dB" in log.reasons("Concat_0")[0]


def test_sharing_holds_for_everything_already_in_the_group() -> None:
    b = GraphBuilder("g")
    x, y, z = inputs(b, "x", "y", "z")
    first = b.node(Concat(1), x, y, name="first")
    second = b.node(Concat(1), first, z, name="second")
    ranges = {"x": (0, 1), "y": (0, 1.1), "first": (0, 1.1), "z": (0, 1.19), "second": (0, 1.19)}
    found, log = assigned(b.finish(second), ranges)
    # 1.19 costs x 1.5 dB, although the group it is in would lose only 0.7.
    assert found["x"] == found["first"] == asymmetric(0, 1.1)
    assert found["z"] == found["second"] == asymmetric(0, 1.19)


def test_a_pool_before_a_concat_follows_it() -> None:
    b = GraphBuilder("g")
    x, y = inputs(b, "x", "y")
    pool = MaxPool(kernel=(1, 1))
    graph = b.finish(b.node(Concat(1), b.node(pool, x, name="px"), b.node(pool, y, name="py"), name="z"))
    found, _ = assigned(graph, {"x": (0, 1), "y": (0, 1.05), "px": (0, 1), "py": (0, 1.05), "z": (0, 1.05)})
    assert set(found.values()) == {asymmetric(0, 1.05)}


def test_a_range_known_in_advance_is_taken_and_never_widened() -> None:
    b = GraphBuilder("g")
    x, boxes = inputs(b, "x", "boxes")
    scores = b.node(Sigmoid(), x, name="scores")
    graph = b.finish(b.node(Concat(1), boxes, scores, name="y"))
    found, log = assigned(graph, {"x": (-6, 6), "boxes": (0, 1), "y": (0, 1)})
    assert found["scores"] == Quantization.per_tensor(1 / 256, -128)
    assert found["boxes"] == found["y"] != found["scores"]
    assert "known in advance" in log.reasons("Concat_0")[0]


def test_a_constant_operand_has_its_exact_range() -> None:
    b = GraphBuilder("g")
    (x,) = inputs(b, "x")
    factor = b.constant("factor", np.array([0.5, 2.0], np.float32).reshape(1, 2, 1, 1))
    found, _ = assigned(b.finish(b.node(Mul(), x, factor, name="y")), {"x": (-1, 1), "y": (-2, 2)})
    assert found["factor"] == asymmetric(0, 2)


def test_a_value_without_statistics_is_an_error() -> None:
    b = GraphBuilder("g")
    (x,) = inputs(b, "x")
    with pytest.raises(ProfileError, match="no statistics of value 'y'"):
        assigned(b.finish(b.node(Relu(), x, name="y")), {"x": (-1, 1)})


def test_loss_of_a_constant_range_is_that_of_its_step() -> None:
    choices = Choices.of(GraphBuilder("g").finish(), MINMAX)
    ranges = Ranges({"x": profiled(0, 1)}, choices)
    value = Value("x", float_type(1))
    assert ranges.loss(value, (0, 1), (0, 1)) == 0.0
    assert ranges.loss(value, (0, 1), (0, 2)) == pytest.approx(20 * math.log10(2), abs=0.1)


def test_one_function_that_reads_a_value_alone_decides_its_range() -> None:
    b = GraphBuilder("g")
    x, y, z = inputs(b, "x", "y", "z")
    b.node(Sigmoid(), x)
    b.node(Sigmoid(), y)
    b.node(Relu(), y)
    b.finish(b.node(Add(), z, x))
    assert only_function(x) is None and only_function(y) is None and only_function(z) is None
    wide = profiled(-40, 8)
    b = GraphBuilder("h")
    (x,) = inputs(b, "x")
    hidden = b.node(Relu(), x, name="hidden")
    result = b.node(Sigmoid(), hidden, name="y")
    graph = b.finish(result)
    choices = Choices.of(graph, Recipe(calibration=Calibration("auto")))
    statistics = {"hidden": wide}
    inside = Ranges(statistics, choices).of(hidden)
    assert Ranges(statistics, choices, frozenset({"hidden"})).of(hidden) != inside
    assert inside[1] < 8
