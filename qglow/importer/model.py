"""An ONNX file as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Graph
from qglow.importer.binding import BoundInputs, bind_inputs, real_inputs
from qglow.importer.building import GraphImport
from qglow.importer.loading import LoadedModel, check, load
from qglow.importer.rules import OLDEST_OPSET, newest_opset, supported_operators
from qglow.importer.tensors import ELEMENTS, element_name


@dataclass(frozen=True)
class ImportedModel:
    """A model as a graph, with what the import decided and where it came from.

    `bound_dimensions` are sentences on dimensions bound without being asked for; `digest` is the
    SHA-256 of the model file in hexadecimal; `inputs` and `outputs` give names and types.
    """

    path: Path
    graph: Graph
    bound_dimensions: tuple[str, ...]
    opset: int
    digest: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]


def import_model(
    path: Path | str, shapes: Mapping[str, Sequence[int]] | None = None, default_batch: int = 1
) -> ImportedModel:
    """Read an ONNX model with every dimension bound.

    `shapes` maps input names to shapes; a free symbolic first dimension becomes `default_batch`.
    Values keep their ONNX names, nodes too where they have one, else `Op_k` with their position.
    Raises ModelError for a damaged or invalid file, UnsupportedError with everything that is
    unsupported, and UsageError for shapes that do not fit.
    """
    path = Path(path)
    model = load(path)
    _check_opset(path, model.opset)
    declared = real_inputs(model.proto.graph)
    _check_input_types(path, declared)
    bound = bind_inputs(declared, shapes or {}, default_batch)
    graph = _build(path, model, bound)
    return ImportedModel(
        path,
        graph,
        bound.notes,
        model.opset,
        model.digest,
        tuple((v.name, v.type) for v in graph.inputs),
        tuple((v.name, v.type) for v in graph.outputs),
    )


def _build(path: Path, model: LoadedModel, bound: BoundInputs) -> Graph:
    types = {name: TensorType(ElementType.FLOAT, shape) for name, shape in bound.shapes.items()}
    work = GraphImport(path, model, types)
    work.scan()
    if not work.problems:
        check(path, model)
    graph = work.build()
    if not work.problems:
        return graph
    problems = [work.problems[index] for index in sorted(work.problems)]
    count = "one thing" if len(problems) == 1 else f"{len(problems)} things"
    lines = "\n".join(f"  {problem}" for problem in problems)
    raise UnsupportedError(
        f"{path} needs {count} that qglow does not support:\n{lines}\n"
        f"supported operators: {', '.join(supported_operators())}"
    )


def _check_opset(path: Path, opset: int) -> None:
    newest = newest_opset()
    if not OLDEST_OPSET <= opset <= newest:
        raise UnsupportedError(
            f"{path} uses opset {opset}; supported are {OLDEST_OPSET} to {newest}: "
            "convert it with onnx.version_converter or export it again"
        )


def _check_input_types(path: Path, inputs: Sequence[onnx.ValueInfoProto]) -> None:
    wrong = []
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"{path}: input '{value.name}' is no tensor; only tensors are supported")
        element = value.type.tensor_type.elem_type
        if ELEMENTS.get(element) is not ElementType.FLOAT:
            wrong.append(f"'{value.name}' of {element_name(element)}")
    if wrong:
        raise UnsupportedError(
            f"{path} has inputs {', '.join(wrong)}; inputs of float (32 bit) are supported"
        )
