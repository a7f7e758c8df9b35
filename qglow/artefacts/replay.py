"""An int8 graph for other input shapes than those that it was quantized with.

Quantization is repeated over the float graph of the other shapes, with the same profile, the recipe that was
found, and every node as int8 or float as it was. Parameters come out the same, since they do not depend on
shapes; weights and biases are taken over, because their rounding may have looked at samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from qglow.core.batch import may_be_batch
from qglow.core.errors import DataError, ProfileError, UnsupportedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.memory import release_after
from qglow.core.types import Array, Dimension, Shape
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.profiling.profile import Profile
from qglow.quantization.blocks import KnownBlocks
from qglow.quantization.imported import quantize_imported
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.regions import region_paths
from qglow.quantization.report import PASSED_ON, QuantizationReport
from qglow.quantization.scaled_inputs import scale_inputs_as
from qglow.quantization.table_rows import table_of
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.parts import QuantizedParts, source_place
from qglow.runtime.executable import check_input_names
from qglow.toolchain.bounded import Narrowed, ResizableModel
from qglow.toolchain.bounded_inputs import BoundedInputs
from qglow.toolchain.loaded import LoadedModel, read_model
from qglow.toolchain.specialised import Specialised
from qglow.toolchain.undecided import Kept, Specialisation


class Replay:
    """Int8 graphs of one quantized model, for the shapes of each call; threads may share it."""

    def __init__(self, parts: QuantizedParts) -> None:
        self._parts = parts
        self._kept: Kept[Graph] = Kept()

    def __call__(self, inputs: Mapping[str, Array]) -> Specialised:
        """The graph for these inputs.

        Raises DataError for shapes that do not fit the model, ModelError if its file is missing or changed.
        """
        check_input_names(inputs, self._parts.inputs)
        shapes = {name: np.shape(inputs[name]) for name in self._parts.inputs}
        key = Specialisation.of(inputs, ())
        return Specialised(self._kept.get(key, lambda: graph_at(self._parts, shapes)), inputs, key)


def replay_model(
    parts: QuantizedParts, dimensions: BoundedInputs, narrowed: Narrowed | None = None
) -> ResizableModel:
    """A quantized model in any sizes of its dimensions. Raises ModelError as `source_place`."""

    def at(shapes: Mapping[str, Shape], kept: KeptImports) -> Graph:
        graph = graph_at(parts, shapes, kept)
        # The float graph and what was tried with it go at once, not when Python next collects.
        release_after(sum(value.type.byte_size for value in graph.constants()))
        return graph

    return ResizableModel(source_place(parts), dimensions, at, narrowed, values=parts.source.values)


def open_dimensions(parts: QuantizedParts) -> dict[str, tuple[Dimension, ...]] | None:
    """Dimensions of the inputs of a model whose file leaves more than their batch open; None for others.

    Raises ModelError if the float model's file is missing or has changed.
    """
    if parts.profile is None:
        return None
    from qglow.importer import declared_dimensions  # needs onnx, which running int8 programs does without

    declared = declared_dimensions(source_place(parts))
    dimensions = {name: tuple(declared.get(name) or shape) for name, shape in parts.shapes.items()}
    behind = [size for sizes in dimensions.values() for size in sizes[may_be_batch(sizes) :]]
    return None if all(isinstance(size, int) for size in behind) else dimensions


def graph_at(parts: QuantizedParts, shapes: Mapping[str, Shape], kept: KeptImports | None = None) -> Graph:
    """The int8 graph of a quantized model for these shapes of its inputs; `kept` as for `read_model`.

    Raises DataError for shapes that do not fit, ModelError if the float model is missing or has changed.
    """
    assert parts.profile is not None and parts.report is not None, "the file leaves no dimensions open"
    place = source_place(parts)
    try:
        model = read_model(place, shapes, values=parts.source.values, kept=kept)
        graph = _quantized(model, parts, parts.profile())
    except UsageError as error:
        raise DataError(str(error)) from error
    except ProfileError as error:  # what the shapes decide makes another graph, of other values
        reason = str(error).partition(";")[0]
        raise UnsupportedError(
            f"{_text(shapes)} makes another graph than the shapes of the profile: {reason}; bind these "
            "shapes when it is profiled, for an int8 model of their own (`shapes`)"
        ) from error
    for own, known in _twins(graph, parts.int8):
        _take_weights(own, known)
    scale_inputs_as(graph, parts.int8)
    for own, known in _twins(graph, parts.int8):
        _check_parameters(own, known, shapes)
    return graph


def _quantized(model: LoadedModel, parts: QuantizedParts, profile: Profile) -> Graph:
    """The int8 graph by ranges of the profile, or by the parameters that the model itself has."""
    assert parts.report is not None
    if model.is_quantized:
        return quantize_imported(model.graph, parts.recipe).graph
    statistics = profile.at_other_shapes(model.graph)
    recipe = _settled(parts.recipe, parts.report, parts.int8)
    blocks = KnownBlocks(parts.int8, parts.real)
    return quantize_with(model.graph, statistics, profile.samples, recipe, known_blocks=blocks).graph


def _settled(recipe: Recipe, report: QuantizationReport, known: Graph) -> Recipe:
    """The recipe with rules that make every node int8 or float as it was."""
    rules = list(recipe.rules)
    # A rule of int8 would give a table one scale for all rows, and values of 16 bits 8.
    others = {table_of(node.name) for node in report.float_nodes}
    nodes = dict(_named(known))
    others |= {name for name, node in nodes.items() if any(map(_is_wide, (*node.inputs, *node.outputs)))}
    # A rule of float for a node with regions would keep all that is inside of it in float.
    outside = {name for name, node in nodes.items() if node.operator.regions}
    int8 = [node for node in report.quantized if not (node.dynamic or node.name in others)]
    for dtype, names in (
        ("int8", [node.name for node in int8]),
        (
            "float",
            [
                node.name
                for node in report.float_nodes
                if node.dtype == "float32" and node.reason != PASSED_ON and node.name not in outside
            ],
        ),
    ):
        if names:
            rules.append(Rule(Match(name="|".join(map(re.escape, names))), dtype=dtype))
    return replace(recipe, rules=tuple(rules), strict=False)


def _named(graph: Graph, path: str = "") -> Iterator[tuple[str, Node]]:
    """The nodes of a graph and its regions, with the names that reports and rules have for them."""
    for node in graph.nodes:
        yield path + node.name, node
        for inner, region in zip(region_paths(node), node.operator.regions, strict=True):
            yield from _named(region, path + inner)


def _twins(graph: Graph, known: Graph) -> Iterator[tuple[Graph, Graph]]:
    """A graph beside the one that it repeats, and each of its regions beside that of the node's twin."""
    yield graph, known
    nodes = {node.name: node for node in known.nodes}
    for node in graph.nodes:
        twin = nodes.get(node.name)
        if twin is not None and twin.operator.name == node.operator.name:
            for own, other in zip(node.operator.regions, twin.operator.regions, strict=True):
                yield from _twins(own, other)


def _is_wide(value: Value | None) -> bool:
    """Whether a value has 16 bits."""
    quantization = None if value is None else value.type.quantization
    return quantization is not None and quantization.is_wide


def _take_weights(graph: Graph, known: Graph) -> None:
    """Replace integer weights and biases by those of the nodes of the same name in `known`.

    Their rounding may differ, their scales not: then they are other weights. Raises UnsupportedError.
    Nodes that share a constant go on to share it.
    """
    shared: dict[tuple[Value, Value], Value] = {}
    nodes = {node.name: node for node in known.nodes}
    for node in graph.nodes:
        policy, twin = node.operator.accumulate, nodes.get(node.name)
        if twin is None or twin.operator.name != node.operator.name:
            continue
        if policy is not None:
            names = {name for name in (policy.w, policy.bias) if name}
        elif node.operator.weight_blocks is not None:
            names = {"w", "scales", "zero_points"}
        else:
            continue
        places = [i for i, name in enumerate(node.operator.operands) if name.rstrip("?") in names]
        node.inputs = tuple(
            _taken(node, twin, i, shared) if i in places else v for i, v in enumerate(node.inputs)
        )


def _taken(node: Node, twin: Node, index: int, shared: dict[tuple[Value, Value], Value]) -> Value | None:
    """Return the constant operand of the twin, or the node's own where the twin has none like it."""
    own, other = node.inputs[index], twin.inputs[index] if index < len(twin.inputs) else None
    if own is None or other is None or own.data is None or other.data is None:
        return own
    if own.type.shape != other.type.shape:
        return own
    if own.type.quantization != other.type.quantization:
        raise UnsupportedError(
            f"weights of node '{node.name}' depend on shapes, so the model cannot be had for others; bind "
            "the shapes when it is profiled (`shapes`)"
        )
    if (own, other) not in shared:
        shared[own, other] = constant(own.name, other.data, other.type.quantization)
    return shared[own, other]


def _check_parameters(graph: Graph, known: Graph, shapes: Mapping[str, Shape]) -> None:
    """Raise UnsupportedError where a value or an operand has other parameters than it was quantized with."""
    expected = {value.name: value.type.quantization for value in known.values() if not value.is_constant}
    pairs = [(v.name, v.type.quantization, expected[v.name]) for v in graph.values() if v.name in expected]
    twins = {node.name: node for node in known.nodes}
    for node in graph.nodes:
        twin = twins.get(node.name)
        if twin is not None and twin.operator.name == node.operator.name:
            operands = zip(node.inputs, twin.inputs, strict=False)
            pairs += [
                (own.name, own.type.quantization, other.type.quantization)
                for own, other in operands
                if own is not None and other is not None and not (own.is_constant or other.is_constant)
            ]
    for name, own, other in pairs:
        if own != other:
            raise UnsupportedError(
                f"parameters of '{name}' depend on shapes, so the model cannot be had for {_text(shapes)}; "
                "bind these shapes when it is profiled (`shapes`)"
            )


def _text(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name}={list(shape)}" for name, shape in shapes.items())
