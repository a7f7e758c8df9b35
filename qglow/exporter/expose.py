"""Intermediate values of an ONNX model as further outputs, for whoever compares layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from qglow.core.errors import UsageError


def expose_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """A serialized model whose outputs are its own and then `names`, in order, each once.

    Names of constants and of graph inputs are refused with UsageError, as are unknown ones.
    The added outputs carry no type: runtimes infer it.
    """
    proto = onnx.ModelProto.FromString(model)
    produced = {name for node in proto.graph.node for name in node.output if name}
    present = {value.name for value in proto.graph.output}
    for name in dict.fromkeys(names):
        if name not in produced:
            raise UsageError(f"no node of the model gives '{name}', so it cannot become an output")
        if name not in present:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    exposed: bytes = proto.SerializeToString(deterministic=True)
    return exposed


def produced_names(model: bytes) -> set[str]:
    """Names of every value that a node of the serialized model gives."""
    proto = onnx.ModelProto.FromString(model)
    return {name for node in proto.graph.node for name in node.output if name}
