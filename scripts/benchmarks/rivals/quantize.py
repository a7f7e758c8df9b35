"""Quantizes one of the evaluated models by another tool over its calibration samples.

    python -m scripts.benchmarks.rivals.quantize MODEL TOOL OUTPUT [SAMPLES]

is a process of its own, so that a tool that takes too long can be stopped. It writes the seconds that the
tool took beside OUTPUT, with reading the samples and without imports. TOOL is a calibration method of
onnxruntime's tool, `dynamic` for its quantization without samples, or nncf. SAMPLES is how many of the
calibration samples it sees (default: all).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import version_converter
from onnxruntime.quantization import QuantType, quantize_dynamic

from qglow.core.errors import ModelError
from qglow.core.files import write_atomically
from qglow.profiling.samples import Sample
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.rivals import METHODS, quantize_with_onnxruntime
from scripts.benchmarks.models.opened import found_names, opened_models
from scripts.benchmarks.rivals.nncf_tool import quantize_with_nncf

DYNAMIC = "dynamic"
SECONDS = ".seconds"
"""Suffix of the file beside a model that says how long the tool took."""
_PER_CHANNEL_OPSET = 13
Shapes = Mapping[str, Sequence[int]]


def rival_model(path: Path, samples: Iterable[Sample], tool: str, shapes: Shapes) -> bytes | None:
    """The model as a tool quantizes it; None, and a line on standard error, where it fails.

    onnxruntime's tool writes scales per channel into models of any opset, though only 13 and later have them:
    models of earlier ones are converted first, and initializers that are listed as inputs are not listed.
    """
    try:
        with TemporaryDirectory(prefix="qglow-rival-") as folder:
            modern = _modern(path, Path(folder) / "modern.onnx")
            with contextlib.redirect_stdout(sys.stderr):  # the tool prints as it goes
                result = _by_tool(modern, samples, tool)
        OnnxruntimeModel(result, shapes=shapes)
    except ModelError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return None
    return result


def _by_tool(path: Path, samples: Iterable[Sample], tool: str) -> bytes:
    for method in METHODS:
        if tool == method:
            return quantize_with_onnxruntime(path, samples, method)
    if tool == DYNAMIC:
        return _dynamically(path)
    return quantize_with_nncf(path, samples)


def _dynamically(path: Path) -> bytes:
    """The model with int8 weights by channel and activations that are quantized while it runs.

    Raises ModelError where the tool fails.
    """
    with TemporaryDirectory(prefix="qglow-rival-") as folder:
        written = Path(folder) / "dynamic.onnx"
        try:
            quantize_dynamic(path, written, per_channel=True, weight_type=QuantType.QInt8)
        except Exception as error:  # the tool raises whatever its parts raise
            raise ModelError(f"onnxruntime's tool cannot quantize it dynamically: {error}") from error
        return written.read_bytes()


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


def main(arguments: Sequence[str]) -> int:
    """Quantize one model by one tool; 1 where that fails."""
    name, tool, output, *count = arguments
    for model in opened_models([name], found_names()):
        loaded = model.load()
        samples = model.calibration.read(model, loaded, int(count[0]) if count else None)
        start = time.perf_counter()
        result = rival_model(model.path, samples, tool, loaded.shapes)
        seconds = time.perf_counter() - start
        if result is None:
            return 1
        write_atomically(Path(output).with_suffix(SECONDS), f"{seconds:.3f}\n")
        write_atomically(Path(output), result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
