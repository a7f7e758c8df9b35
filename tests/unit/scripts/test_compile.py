"""The measurement of compiling and loading works on the example, which is always there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo import REPOSITORY


@pytest.mark.slow
def test_quantizing_and_loading_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "compile.json"
    command = [sys.executable, "-m", "scripts.benchmarks", "compile"]
    options = ["--models", "digits", "--repeat", "1", "--json", str(path)]
    done = subprocess.run([*command, *options], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(path.read_text())["models"]
    assert row["cold"] > row["load"] > 0 and row["warm"] > row["load"]
    assert row["weight_bytes"] > 10_000 and row["peak_bytes"] > row["weight_bytes"]
    assert "| digits |" in done.stdout
