"""onnxruntime's own quantization of models as they are, and of old ones that it would write wrongly."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import version_converter

from qglow.core.errors import ModelError
from qglow.profiling.samples import Sample
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.rivals import Method, quantize_with_onnxruntime

_PER_CHANNEL_OPSET = 13
Shapes = Mapping[str, Sequence[int]]


def rival_model(path: Path, samples: Iterable[Sample], method: Method, shapes: Shapes) -> bytes | None:
    """The model as onnxruntime's tool quantizes it; None, and a line on standard error, where it fails.

    The tool writes scales per channel into models of any opset, though only 13 and later have them:
    models of earlier ones are converted first, and initializers that are listed as inputs are not listed.
    """
    try:
        with TemporaryDirectory(prefix="qglow-rival-") as folder:
            modern = _modern(path, Path(folder) / "modern.onnx")
            with contextlib.redirect_stdout(sys.stderr):  # the tool prints as it goes
                result = quantize_with_onnxruntime(modern, samples, method)
        OnnxruntimeModel(result, shapes=shapes)
    except ModelError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return None
    return result


def _modern(path: Path, target: Path) -> Path:
    """The file itself, or `target` with the model in a later opset. Raises ModelError."""
    model = onnx.load(path)
    if model.opset_import[0].version >= _PER_CHANNEL_OPSET:
        return path
    try:
        converted = version_converter.convert_version(model, _PER_CHANNEL_OPSET)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"cannot be converted to opset {_PER_CHANNEL_OPSET}: {error}") from error
    constants = {tensor.name for tensor in converted.graph.initializer}
    for value in [value for value in converted.graph.input if value.name in constants]:
        converted.graph.input.remove(value)
    converted.ir_version = max(converted.ir_version, 8)
    onnx.save(converted, target)
    return target
