"""Models as other tools quantize them: onnxruntime's own, and NNCF.

    python scripts/rival_models.py MODEL TOOL OUTPUT

quantizes one of the evaluated models over its calibration samples, in a process of its own so that a
tool that takes too long can be stopped. TOOL is a calibration method of onnxruntime's tool, or nncf.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import onnx
from evaluated_models import MODELS, TASK_MODELS, EvaluatedModel, chosen_models
from nncf_rival import has_nncf, quantize_with_nncf
from onnx import version_converter

from qglow import Model
from qglow.core.errors import ModelError
from qglow.core.files import sha256_hex, write_atomically
from qglow.profiling.samples import DataDigest, Sample
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.rivals import METHODS, quantize_with_onnxruntime

NNCF = "nncf"
_PER_CHANNEL_OPSET = 13
Shapes = Mapping[str, Sequence[int]]


def tools() -> tuple[str, ...]:
    """The calibration methods of onnxruntime's tool, and NNCF where it is installed."""
    return (*METHODS, *((NNCF,) if has_nncf() else ()))


@dataclass(frozen=True)
class RivalCache:
    """Models that other tools made, kept by model, calibration data and tool.

    patience: seconds that a tool may take.
    """

    folder: Path
    patience: float

    def get(self, model: EvaluatedModel, loaded: Model, tool: str) -> bytes | None:
        """What the tool made of the model; None, and a line on standard error, where it fails or takes
        too long."""
        digest = DataDigest()
        for sample in model.calibration.read(model, loaded):
            digest.add(sample.inputs)
        key = sha256_hex("\0".join((loaded.sha256, digest.hex, tool)).encode())[:32]
        path = self.folder / f"{model.name}-{tool}-{key}.onnx"
        if not path.exists() and not self._make(model, tool, path):
            return None
        return path.read_bytes()

    def _make(self, model: EvaluatedModel, tool: str, path: Path) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, model.name, tool, str(path)]
        try:
            subprocess.run(command, stdout=sys.stderr, timeout=self.patience, check=False)
        except subprocess.TimeoutExpired:
            print(f"{model.name}: {tool} takes more than {self.patience:g} s", file=sys.stderr)
        return path.exists()


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    """--cache and --patience, the fields of a RivalCache."""
    cache = Path(gettempdir()) / "qglow-rivals"
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help=f"default {cache}")
    parser.add_argument(
        "--patience", type=float, default=120.0, metavar="SECONDS", help="for another tool and model; 120"
    )


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


def title_of(tool: str) -> str:
    """What a table calls a tool."""
    return "NNCF" if tool == NNCF else f"ORT {tool}"


def _by_tool(path: Path, samples: Iterable[Sample], tool: str) -> bytes:
    for method in METHODS:
        if tool == method:
            return quantize_with_onnxruntime(path, samples, method)
    return quantize_with_nncf(path, samples)


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
    name, tool, output = arguments
    (model,) = chosen_models([name], (*MODELS, *TASK_MODELS))
    loaded = model.load()
    result = rival_model(model.path, model.calibration.read(model, loaded), tool, loaded.shapes)
    if result is None:
        return 1
    write_atomically(Path(output), result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
