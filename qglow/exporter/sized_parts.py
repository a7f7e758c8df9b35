"""Parts of the float model's file that compute constants from sizes, as nodes of an exported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, numpy_helper

from qglow.exporter.opaque import for_export
from qglow.exporter.sizes import SizeNodes
from qglow.interchange.nodes import rename


@dataclass(frozen=True)
class SizedPart:
    """A model that computes one tensor from lists of sizes; `lists`: what these are in each export."""

    model: ModelProto
    lists: Mapping[str, Sequence[Sequence[int]]]


class PartNodes:
    """Nodes of parts, in front of a model's own; equal ones are there once, as what layers share."""

    def __init__(self, work: SizeNodes) -> None:
        self._work = work
        self._made: dict[bytes, list[str]] = {}

    def of(self, name: str, part: SizedPart) -> str:
        """Name of what the part of constant `name` computes.

        Raises UnsupportedError where a list follows no sizes of the inputs, or a node has no form in the
        exported operator set; AmbiguityError where exports of more sizes would tell.
        """
        model = for_export(part.model, name)
        names = {given: self._work.list_of(given, lists) for given, lists in part.lists.items()}
        for tensor in model.graph.initializer:
            names[tensor.name] = self._work.constant(tensor.name, numpy_helper.to_array(tensor))
        for node in model.graph.node:
            self._copy(node, names)
        return names[model.graph.output[0].name]

    def _copy(self, node: NodeProto, names: dict[str, str]) -> None:
        """Add a node whose inputs have new names, and names for its results."""
        copy, key = NodeProto(), NodeProto()
        copy.CopyFrom(node)
        key.CopyFrom(node)
        rename(key, dict(names), str)
        key.ClearField("output")
        known = key.SerializeToString(deterministic=True)
        if known not in self._made:
            rename(copy, names, self._work.fresh)
            self._made[known] = list(copy.output)
            self._work.nodes.append(copy)
        names |= dict(zip(node.output, self._made[known], strict=True))
