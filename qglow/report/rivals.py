"""Models quantized by onnxruntime's own tool, to compare accuracy and speed with."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from qglow.core.errors import ModelError
from qglow.core.types import Array
from qglow.profiling.samples import Sample, batches

Method = Literal["minmax", "entropy", "percentile"]
METHODS: dict[Method, CalibrationMethod] = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


def quantize_with_onnxruntime(model: Path, data: Iterable[Sample], method: Method, batch: int = 1) -> bytes:
    """The model as QDQ with uint8 activations and int8 weights per channel, calibrated over the data.

    Its memory grows with the samples for the methods other than minmax. `batch` is the batch that
    the model takes; a partial last batch is left out. Raises ModelError if the tool fails.
    """
    with TemporaryDirectory(prefix="qglow-rival-") as name, _quiet():
        prepared, quantized = Path(name) / "prepared.onnx", Path(name) / "quantized.onnx"
        try:
            quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(quantized),
                _Reader(data, batch),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=METHODS[method],
            )
        except Exception as error:  # the tool raises whatever its parts raise
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"onnxruntime's tool cannot quantize {model} by {method}: {reason}") from error
        return quantized.read_bytes()


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, data: Iterable[Sample], batch: int) -> None:
        self._inputs = _whole_batches(data, batch)

    def get_next(self) -> Mapping[str, Array] | None:
        """The inputs of the next batch; None after the last."""
        return next(self._inputs, None)


def _whole_batches(data: Iterable[Sample], batch: int) -> Iterator[dict[str, Array]]:
    return (found.inputs for found in batches(data, batch) if found.fills(batch))


@contextmanager
def _quiet() -> Iterator[None]:
    """The tool warns through the root logger of things that are settled here."""
    root: Any = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
