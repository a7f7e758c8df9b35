"""The valid files that cases change: made once for a campaign by the commands themselves."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from qglow.cli.main import main
from tests.fuzz.networks import feeds, networks, write_data

RECIPE = """\
preprocessing: {resize: [8, 8], layout: NCHW, channels: GRAY, scale: 1/255, mean: [0.5], std: [0.25]}
schema: asymmetric
calibration: minmax
per_tensor: false
keep_float: [Gemm_4]
correct_bias: false
"""
BASELINE = """\
models:
  image:
    quantized: image.quantized
    data: image.npz
    metric: sqnr
    tolerance: 0.5
    max_latency_ratio: {float32: 9, int8: 9, baseline: 1.5}
    max_artefact_bytes: 10M
    max_arena_bytes: 1000000
    measured: {value: 30.0, int8_nodes: 4, float_nodes: 0, islands: 1, bytes: 9000}
  float:
    model: image.onnx
    calibration: image.npz
    recipe: plain.yaml
    data: image.npz
    metric: top1
    tolerance: 1
    max_latency_ratio: 9
    max_bytes: 1M
"""
LABELS = "file,class_index\na.png,1\nb.png,2\nc.png,3\n"


@dataclass(frozen=True)
class Workbench:
    """A folder with image.onnx and all that is made of it, and every network's bytes."""

    folder: Path

    @cached_property
    def networks(self) -> dict[str, bytes]:
        """Every valid model by its name."""
        return networks()

    def bytes_of(self, name: str) -> bytes:
        """Content of one of the files."""
        if name not in self._contents:
            self._contents[name] = (self.folder / name).read_bytes()
        return self._contents[name]

    @cached_property
    def _contents(self) -> dict[str, bytes]:
        return {}


FILES = (
    "image.onnx",
    "image.npz",
    "profile.yaml",
    "recipe.yaml",
    "plain.yaml",
    "baseline.yaml",
    "model.qglow",
)


def make_workbench(folder: Path) -> Workbench:
    """Write the files; raises RuntimeError where a command fails on them."""
    bench = Workbench(folder)
    model = folder / "image.onnx"
    model.write_bytes(bench.networks["image"])
    arrays = feeds(model.read_bytes(), 6)
    data = write_data(folder / "image.npz", {**arrays, "label": np.arange(6) % 10})
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "plain.yaml").write_text("calibration: minmax\nkeep_float: []\n")
    (folder / "baseline.yaml").write_text(BASELINE)
    pictures = folder / "images"
    pictures.mkdir()
    rng = np.random.default_rng(2)
    for name in "abc":
        Image.fromarray(rng.integers(0, 256, (9, 10)).astype(np.uint8)).save(pictures / f"{name}.png")
    (pictures / "labels.csv").write_text(LABELS)
    _succeed("profile", model, "--data", data, "-o", folder / "profile.yaml")
    _succeed("quantize", "--profile", folder / "profile.yaml", "-o", folder / "image.quantized")
    _succeed("compile", folder / "image.quantized", "-o", folder / "model.qglow")
    return bench


def _succeed(*words: object) -> None:
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main([str(word) for word in words])
    if code != 0:
        raise RuntimeError(f"qglow {words[0]} fails on a valid file: {error.getvalue()}")
