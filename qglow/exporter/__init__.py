"""Graph to ONNX: the float graph as it is, or the int8 graph with QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from qglow.exporter.files import FiledModel, filed, serialized
from qglow.exporter.plain import export_float
from qglow.exporter.qdq import (
    Activations,
    activation_type,
    export_qdq,
    quantized_constants,
    quantized_value_names,
)

__all__ = [
    "Activations",
    "FiledModel",
    "activation_type",
    "export_float",
    "export_qdq",
    "filed",
    "quantized_constants",
    "quantized_value_names",
    "serialized",
]
