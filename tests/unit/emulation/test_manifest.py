"""Manifests of bundles, and what was changed in them afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow

DIGITS = Path(__file__).parents[3] / "calib_data" / "digits.onnx"
CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a smaller arena": lambda plain: plain.update(arena_bytes=64),
    "an arena beyond all memory": lambda plain: plain.update(arena_bytes=10**40),
    "a smaller arena of the self-test": lambda plain: plain.update(selftest_bytes=64),
    "a larger output": lambda plain: plain["tensors"][1].update(type="float<1 x 100000>"),
    "a smaller input": lambda plain: plain["tensors"][0].update(type="float<1 x 1 x 1 x 1>"),
    "another order": lambda plain: plain["tensors"].reverse(),
    "another target": lambda plain: plain.update(target="cortex-m4"),
    "other parts": lambda plain: plain.update(parts=[3]),
    "another interface": lambda plain: plain.update(interface=1),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "made"
    qglow.load_model(DIGITS).save_bundle(folder, threads=2)
    return folder


def test_a_bundle_with_parts_is_read(made: Path) -> None:
    given = {"input": np.zeros((1, 1, 8, 8), np.float32)}
    assert json.loads((made / "digits.json").read_text())["threads"] == 2
    assert qglow.load_bundle(made)(given)["logits"].shape == (1, 10)


@pytest.mark.parametrize("change", CHANGES)
def test_sizes_and_tensors_are_those_of_the_code(made: Path, change: str) -> None:
    """They decide how much memory is given to code that writes it without a question."""
    path = made / "digits.json"
    kept = path.read_text()
    plain = json.loads(kept)
    CHANGES[change](plain)
    path.write_text(json.dumps(plain))
    try:
        with pytest.raises(
            qglow.ArtefactError,
            match="of a bundle, its sizes and tensors are not those that its code was made for: write",
        ):
            qglow.load_bundle(made)
    finally:
        path.write_text(kept)
