"""Models as both exporters of PyTorch leave them: they load, agree in float, and hold up in int8."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.benchmarks.measurements.wild import measure
from tests.zoo import REPOSITORY

for package in ("torch", "torchvision", "transformers", "onnxscript"):
    pytest.importorskip(package, reason=f"the extra `exports` is not installed: {package}")

NAMES = (
    "unet",
    "vit",
    "lstm",
    "gru",
    "conv3d",
    "detector",
    "uint8",
    "hf_bert",
    "hf_distilbert",
    "hf_gpt2",
    "hf_gpt2_cached",
    "hf_llama",
    "hf_llama_cached",
    "hf_vit",
    "hf_whisper_encoder",
    "hf_whisper_decoder",
)
"""Those of `scripts.exports` that take seconds."""
LEAST_DB = 25.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of both exporters, and their inputs."""
    place = tmp_path_factory.mktemp("exports")
    command = [sys.executable, "-m", "scripts.exports", str(place), *NAMES]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "not exported" not in done.stdout, done.stdout + done.stderr
    return place


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["", "_dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_an_export_agrees_in_float_and_holds_up_in_int8(name: str, exporter: str, folder: Path) -> None:
    row = measure(f"{name}{exporter}", 1, folder)
    assert not row.failures and row.opaque == 0
    assert row.verdict == "good" and row.sqnr_db is not None and row.sqnr_db >= LEAST_DB
