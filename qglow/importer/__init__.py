"""ONNX to graph: reading untrusted files, binding shapes, one import function an operator."""

from __future__ import annotations

from qglow.importer.cutting import part_of_file
from qglow.importer.model import ImportedModel, import_model
from qglow.importer.shape_constants import (
    ComputedTensor,
    ReadShape,
    ShapePart,
    missing_tensors,
    sized_part,
    stating_tensors,
)
from qglow.importer.stored import declared_dimensions, stored_arrays
from qglow.importer.tensors import read_tensor

__all__ = [
    "ComputedTensor",
    "ImportedModel",
    "ReadShape",
    "ShapePart",
    "declared_dimensions",
    "import_model",
    "part_of_file",
    "read_tensor",
    "stored_arrays",
    "missing_tensors",
    "sized_part",
    "stating_tensors",
]
