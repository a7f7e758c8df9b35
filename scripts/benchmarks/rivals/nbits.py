"""Language models whose products onnxruntime's own tool puts into blocks of 4 bits (MatMulNBits).

The tool needs the package onnx-ir, and PyTorch for all but the nearest integers.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization.calibrate import CalibrationDataReader

from qglow.core.types import Array

TOOLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "nearest, blocks of 32": ("DefaultWeightOnlyQuantConfig", {"block_size": 32}),
    "nearest, blocks of 16": ("DefaultWeightOnlyQuantConfig", {"block_size": 16}),
    "k-quant, blocks of 32": ("KQuantWeightOnlyQuantConfig", {}),
    "HQQ, blocks of 32": ("HQQWeightOnlyQuantConfig", {"block_size": 32}),
    "GPTQ, blocks of 32": ("GPTQWeightOnlyQuantConfig", {"block_size": 32}),
}
"""Settings of onnxruntime's tool by the name of the row: class of its settings, and what these are given."""


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """Calibration samples, one a run."""

    def __init__(self, name: str, tokens: Array) -> None:
        self._name, self._tokens = name, tokens
        self.rewind()

    def get_next(self) -> dict[str, Array] | None:
        """Inputs of the next run; None behind the last one."""
        row = next(self._rows, None)
        return None if row is None else {self._name: row[None]}

    def rewind(self) -> None:
        """Begin again."""
        self._rows: Iterator[Array] = iter(self._tokens)


def in_blocks(path: Path, shape: tuple[int, ...], tokens: Array, tool: str) -> onnx.ModelProto:
    """The model with 4-bit weights by a tool of `TOOLS`.

    shape: of its only input, which the tool needs to know. tokens: calibration samples. Raises ImportError
    where a package is missing.
    """
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    model = onnx.load(path)
    (given,) = model.graph.input
    for dimension, size in zip(given.type.tensor_type.shape.dim, shape, strict=True):
        dimension.dim_value = size
    kind, settings = TOOLS[tool]
    if kind.startswith("GPTQ"):
        settings = {**settings, "calibration_data_reader": _Samples(given.name, tokens)}
    config = getattr(nbits, kind)(**settings)
    block = 16 if "16" in tool else 32
    with contextlib.redirect_stdout(io.StringIO()), _quiet():
        quantizer = nbits.MatMulNBitsQuantizer(model, bits=4, block_size=block, algo_config=config)
        quantizer.process()
    made: onnx.ModelProto = quantizer.model.model
    return made


def bits_of(model: onnx.ModelProto) -> float:
    """Bits for each weight of its products in blocks, scales and zero points included."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    stored = weights = 0
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            sizes = {a.name: a.i for a in node.attribute}
            weights += sizes["K"] * sizes["N"]
            stored += sum(arrays[name].nbytes for name in node.input[1:] if name)
    return 8.0 * stored / weights


def constant_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all its constants."""
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)


def scores_of(model: onnx.ModelProto, tokens: Array) -> Array:
    """Scores [stories, positions, words] in onnxruntime, a story a run."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return np.concatenate([session.run(None, {given.name: row[None]})[0] for row in tokens])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the tool logs."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
