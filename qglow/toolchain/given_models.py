"""Models as callers give them: a path, bytes, or an object in memory that holds one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from qglow.core.errors import ModelError, UsageError
from qglow.core.model_place import ModelBytes, ModelPlace
from qglow.graph.graph import Graph
from qglow.graph.verifier import verify_graph


class SerializableModel(Protocol):
    """An `onnx.ModelProto`, or what serializes itself to one."""

    def SerializeToString(self) -> bytes:
        """Return the model as the bytes of an ONNX file."""
        ...


class ModelHolder(Protocol):
    """An object with an `onnx.ModelProto`, such as what `torch.onnx.export` returns."""

    @property
    def model_proto(self) -> SerializableModel:
        """The model."""
        ...


class ModelBuffer(Protocol):
    """An `io.BytesIO` with the bytes of an ONNX file."""

    def getvalue(self) -> bytes:
        """Return all bytes, wherever it was read up to."""
        ...


ModelSource = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | SerializableModel
    | ModelHolder
    | ModelBuffer
    | Graph
)
"""A path, the bytes of an ONNX file (also in an `io.BytesIO`), an `onnx.ModelProto` or what has one as
`model_proto`, as the exporters of PyTorch give it, or a graph, such as `Model.graph` after changes."""

_LARGEST = "serialize what is larger than 2 GB to a file with external data, and give its path"


def model_place(model: ModelSource) -> ModelPlace:
    """The place of a model that a caller gives.

    Raises UsageError for an object that is no model, ModelError for one that cannot be serialized.
    """
    if isinstance(model, str | os.PathLike):
        return Path(model)
    if isinstance(model, bytes | bytearray | memoryview):
        return ModelBytes(bytes(model))
    if isinstance(model, Graph):
        return ModelBytes(_exported(model))
    # Not by class: who has such an object has imported its library, who has none need not.
    if hasattr(model, "model_proto"):
        return model_place(model.model_proto)
    if hasattr(model, "getvalue"):
        return model_place(model.getvalue())
    if hasattr(model, "SerializeToString"):
        return ModelBytes(_serialized(model))
    raise UsageError(f"a {type(model).__name__} is no model: {_advice(model)}", field="model")


def _serialized(model: SerializableModel) -> bytes:
    kind = type(model).__name__
    if kind != "ModelProto":
        remedy = "; onnx.helper.make_model gives a model" if kind == "GraphProto" else ""
        raise UsageError(f"a model is an onnx.ModelProto, not a {kind}{remedy}", field="model")
    try:
        return model.SerializeToString()
    except Exception as error:  # protobuf's implementations have several errors for what is too large
        reason = " ".join(str(error).split())[:120]
        raise ModelError(f"the ModelProto cannot be serialized ({reason}): {_LARGEST}") from error


def _exported(graph: Graph) -> bytes:
    from qglow.exporter import export_float, export_qdq, serialized  # needs onnx

    verify_graph(graph, f"in graph '{graph.name}'")
    quantized = any(value.type.is_quantized for value in graph.values())
    return serialized(export_qdq(graph) if quantized else export_float(graph))


def _advice(model: object) -> str:
    if hasattr(model, "state_dict"):
        return "export it with torch.onnx.export first, and give the file or what that returns"
    if hasattr(model, "get_inputs"):
        return "a session has no model any more; give the path or the bytes that it was made from"
    return "give a path, bytes, an onnx.ModelProto or a Graph"
