"""Inputs of int8 and uint8: what their integers mean stands at the operators that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.types import Array, ElementType, Quantization
from qglow.importer.loading import ModelFile
from qglow.importer.node import CannotImport
from qglow.importer.tensors import QUANTIZED, Stored, element_name, to_array
from qglow.numerics.half import widen

INTEGERS = (TensorProto.INT8, TensorProto.UINT8)


def input_parameters(model: ModelFile, name: str, unsigned: bool, folder: Path | None) -> Quantization | None:
    """Parameters with which the model dequantizes an input of integers; zero points of uint8 are 128 less.

    They are those of the first operator that dequantizes it; others are held to them when they are imported.
    None where nothing dequantizes it, or DequantizeLinear with several scales: its integers are numbers then.
    Raises CannotImport where an operator dequantizes it with a computed scale, or a QLinear one with several.
    """
    initializers = model.proto.graph.initializer
    known = {tensor.name: tensor for tensor in initializers if tensor.name not in model.large}
    for node in model.nodes:
        given = _names(node, name)
        if given is None:
            continue
        scale = _read(known, given[0], folder)
        if scale is not None and scale.size > 1 and node.op_type == "DequantizeLinear":
            return None
        zero = _read(known, given[1], folder) if given[1] else None
        if scale is None or scale.size != 1 or scale.dtype != np.float32 or (given[1] and zero is None):
            readers = "DequantizeLinear or a QLinear operator reads it, with one constant scale"
            raise CannotImport(f"supported where {readers}")
        if zero is not None:
            _check_zero(known[given[1]], zero, Stored(ElementType.INT8, unsigned))
        return _parameters(float(scale.reshape(())), zero, unsigned)
    return None


def parameter_names(model: ModelFile, name: str) -> tuple[str, ...]:
    """Names of the scale and the zero point with which the model first dequantizes an input, if it does."""
    found = next(filter(None, (_names(node, name) for node in model.nodes)), ())
    return tuple(filter(None, found))


def _names(node: NodeProto, name: str) -> tuple[str, str] | None:
    """Names of scale and zero point beside an operand; None for operators that have none."""
    if node.op_type not in ("DequantizeLinear", "QGemm") and not node.op_type.startswith("QLinear"):
        return None
    for index, operand in enumerate(node.input[:-1]):
        if operand == name:
            return node.input[index + 1], node.input[index + 2] if index + 2 < len(node.input) else ""
    return None


def _read(known: dict[str, TensorProto], name: str, folder: Path | None) -> Array | None:
    if name not in known:
        return None
    try:
        return widen(to_array(known[name], folder, quantized=True, halves=True))
    except (ModelError, UnsupportedError) as error:
        raise CannotImport(str(error)) from error


def _check_zero(tensor: TensorProto, zero: Array, kind: Stored) -> None:
    if QUANTIZED.get(tensor.data_type) != kind or zero.size != 1:
        found = f"{zero.size} of {element_name(tensor.data_type)}"
        raise CannotImport(f"its zero point is {found}, the input is {kind}, which has one")


def _parameters(scale: float, zero: Array | None, unsigned: bool) -> Quantization:
    middle = Stored(ElementType.INT8, unsigned).shift if zero is None else int(zero.reshape(()))
    try:
        return Quantization.per_tensor(scale, middle)
    except ValueError as error:
        raise CannotImport(str(error)) from error
