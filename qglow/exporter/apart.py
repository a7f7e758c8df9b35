"""Data of large constants of several exports of one model, each content once and outside of their messages.

A message copies what it is given and keeps it as long as it lives, so that each export would have all weights
once more. A tensor whose data lie apart has their digest instead: equal tensors have equal data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from qglow.core.types import Array

LEAST = 1 << 16
"""Bytes of data from which on they lie apart."""
_KEY = "sha256"


@dataclass(frozen=True)
class DataApart:
    """Data by digest: bytes, or arrays of the graphs that are exported."""

    _data: dict[str, Array | bytes] = field(default_factory=dict)

    def initializer(self, array: Array, name: str) -> onnx.TensorProto:
        """A tensor of an array, which stays where it is if it is large. It must not change."""
        if array.nbytes < LEAST or array.dtype.hasobject:
            return numpy_helper.from_array(array, name)
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return self._taken(onnx.TensorProto(name=name, data_type=kind, dims=array.shape), array)

    def tensor(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        """A tensor under another name; its data lie apart if they are large."""
        if len(tensor.raw_data) < LEAST:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = name
            return copy
        light = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
        return self._taken(light, tensor.raw_data)

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The elements of a tensor."""
        if not _is_apart(tensor):
            return numpy_helper.to_array(tensor)
        whole = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
        whole.raw_data = self._bytes(tensor)
        return numpy_helper.to_array(whole)

    def restore(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model, in place, with all data in its tensors."""
        for tensor in model.graph.initializer:
            if _is_apart(tensor):
                data = self._bytes(tensor)
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = data
        return model

    def _taken(self, tensor: onnx.TensorProto, data: Array | bytes) -> onnx.TensorProto:
        digest = hashlib.sha256(data if isinstance(data, bytes) else np.ascontiguousarray(data).data)
        key = digest.hexdigest()
        self._data.setdefault(key, data)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key=_KEY, value=key)
        return tensor

    def _bytes(self, tensor: onnx.TensorProto) -> bytes:
        data = self._data[tensor.external_data[0].value]
        return data if isinstance(data, bytes) else data.tobytes()


def _is_apart(tensor: onnx.TensorProto) -> bool:
    return any(entry.key == _KEY for entry in tensor.external_data)
