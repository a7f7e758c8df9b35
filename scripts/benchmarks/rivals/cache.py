"""What other tools made of the evaluated models, kept from one run to the next."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from qglow import Model
from qglow.core.files import sha256_hex
from qglow.profiling.samples import DataDigest
from qglow.report.rivals import METHODS
from scripts.benchmarks.models.evaluated import REPOSITORY, EvaluatedModel
from scripts.benchmarks.rivals.nncf_tool import has_nncf
from scripts.benchmarks.rivals.quantize import DYNAMIC, SECONDS

NNCF = "nncf"


def tools() -> tuple[str, ...]:
    """The calibration methods of onnxruntime's tool, and NNCF where it is installed."""
    return (*METHODS, *((NNCF,) if has_nncf() else ()))


def all_tools() -> tuple[str, ...]:
    """The same, and onnxruntime's dynamic quantization, which reads no samples."""
    return (*METHODS, DYNAMIC, *tools()[len(METHODS) :])


@dataclass(frozen=True)
class RivalCache:
    """Models that other tools made, kept by model, calibration data and tool.

    patience: seconds that a tool may take.
    """

    folder: Path
    patience: float

    def get(self, model: EvaluatedModel, loaded: Model, tool: str) -> bytes | None:
        """What the tool made of the model; None, and a line on standard error, where it fails or takes
        too long. A tool that failed is not asked again; one that took too long is.

        It sees the samples that `model.calibration` has, and those that its `samples` counts only.
        """
        path = self._path(model, loaded, tool)
        failed = path.with_suffix(".failed")
        if path.exists():
            return path.read_bytes()
        if failed.exists():
            print(f"{model.name}: {tool} failed before ({failed})", file=sys.stderr)
            return None
        self._make(model, tool, path, failed)
        return path.read_bytes() if path.exists() else None

    def seconds(self, model: EvaluatedModel, loaded: Model, tool: str) -> float | None:
        """How long the tool took for what `get` gives, in seconds; None where that is not known."""
        try:
            return float(self._path(model, loaded, tool).with_suffix(SECONDS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _path(self, model: EvaluatedModel, loaded: Model, tool: str) -> Path:
        digest = DataDigest()
        for sample in model.calibration.read(model, loaded):
            digest.add(sample.inputs)
        key = sha256_hex("\0".join((loaded.sha256, digest.hex, tool)).encode())[:32]
        return self.folder / f"{model.name}-{tool}-{key}.onnx"

    def _make(self, model: EvaluatedModel, tool: str, path: Path, failed: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        module = "scripts.benchmarks.rivals.quantize"
        command = [sys.executable, "-m", module, model.name, tool, str(path.resolve())]
        if model.calibration.samples is not None:
            command.append(str(model.calibration.samples))
        try:
            done = subprocess.run(
                command, cwd=REPOSITORY, stdout=sys.stderr, timeout=self.patience, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{model.name}: {tool} takes more than {self.patience:g} s", file=sys.stderr)
        else:
            if done.returncode == 1:
                failed.write_text(f"{tool} cannot quantize {model.name}\n", encoding="utf-8")


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    """--cache and --patience, the fields of a RivalCache."""
    cache = Path(gettempdir()) / "qglow-rivals"
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help=f"default {cache}")
    parser.add_argument(
        "--patience", type=float, default=120.0, metavar="SECONDS", help="for another tool and model; 120"
    )


def title_of(tool: str) -> str:
    """What a table calls a tool."""
    return "NNCF" if tool == NNCF else f"ORT {tool}"
