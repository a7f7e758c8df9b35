"""Parts of the float model's file that compute constants from sizes, as nodes of an exported model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, numpy_helper

from qglow.core.types import Quantization
from qglow.exporter.opaque import for_export
from qglow.exporter.ranged import Ranged, ranged_parameters
from qglow.exporter.sizes import ReadSize, SizeNodes
from qglow.interchange.nodes import rename
from qglow.numerics.quantize import parameters

FindTensor = Callable[[Sequence[str], int, Sequence[int]], str | None]
"""The first of some tensors that has sizes at an axis, one for each export; None where none has."""


@dataclass(frozen=True)
class SizeList:
    """Sizes of a tensor from an axis on, in each export.

    tensors: that one, and others that may have the same sizes there, the nearest first.
    """

    values: Sequence[Sequence[int]]
    tensors: Sequence[str] = ()
    start: int = 0


@dataclass(frozen=True)
class SizedPart:
    """A model that computes one tensor from lists of sizes; `lists`: what these are in each export.

    quantization: of the constant that has the tensor in integers, or how its range decides it; None for the
    tensor itself.
    """

    model: ModelProto
    lists: Mapping[str, SizeList]
    quantization: Quantization | Ranged | None = None


class PartNodes:
    """Nodes of parts, in front of a model's own; equal ones are there once, as what layers share.

    find: gives the tensor of the model that has sizes at an axis, of some that may have them.
    parameters: computed scales and zero points, by the constants that have them.
    """

    def __init__(self, work: SizeNodes, find: FindTensor) -> None:
        self._work = work
        self._find = find
        self.parameters: dict[str, tuple[str, str]] = {}
        self._made: dict[bytes, list[str]] = {}

    def of(self, name: str, part: SizedPart) -> str:
        """Name of what the part of constant `name` computes.

        Raises UnsupportedError where a list follows no sizes of the inputs or of tensors, or a node has no
        form in the exported operator set; AmbiguityError where exports of more sizes would tell.
        """
        model = for_export(part.model, name)
        names = {given: self._list(given, found) for given, found in part.lists.items()}
        for tensor in model.graph.initializer:
            names[tensor.name] = self._work.constant(tensor.name, numpy_helper.to_array(tensor))
        for node in model.graph.node:
            self._copy(node, names)
        result = names[model.graph.output[0].name]
        return result if part.quantization is None else self._quantize(name, result, part.quantization)

    def _quantize(self, name: str, real: str, quantization: Quantization | Ranged) -> str:
        """Name of the integers of a constant, whose reals are computed."""
        axis = {}
        if isinstance(quantization, Ranged):
            operands = ranged_parameters(self._work, name, real, quantization)
            self.parameters[name] = operands
        else:
            scales, zeros = parameters(quantization)
            stored = (scales, zeros.astype(quantization.element.dtype))
            operands = (
                self._work.constant(f"{name}__by", stored[0]),
                self._work.constant(f"{name}__by", stored[1]),
            )
            axis = {} if quantization.axis is None else {"axis": quantization.axis}
        return self._work.emit("QuantizeLinear", [real, *operands], f"{name}__quantized", **axis)

    def _list(self, name: str, found: SizeList) -> str:
        """Name of a list of sizes; what inputs do not tell is read from a tensor of the model."""
        read: dict[int, ReadSize] = {}
        for place, sizes in enumerate(zip(*found.values, strict=True)):
            axis = found.start + place
            if len(set(sizes)) > 1 and not self._work.tell(sizes):
                tensor = self._find(found.tensors, axis, sizes)
                if tensor is not None:
                    read[place] = ReadSize(tensor, axis)
        return self._work.list_of(name, found.values, read=read)

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
