"""Where the real models and labelled data of the zoo lie; they are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ZOO = Path(os.environ.get("QGLOW_ZOO", REPOSITORY.parent / "shared" / "zoo"))


def wild_path(name: str) -> Path:
    """A file of the folder of other people's models, beside the zoo; QGLOW_WILD names another place for it.

    The calling test is skipped where it is absent.
    """
    path = Path(os.environ.get("QGLOW_WILD", ZOO.parent / "wild")) / name
    if not path.exists():
        pytest.skip(f"needs {path}")
    return path


def zoo_path(relative: str) -> Path:
    """A file or directory of the zoo, such as "models/squeezenet1.1.onnx".

    The calling test is skipped where it is absent; QGLOW_ZOO names another place for the zoo.
    """
    path = ZOO / relative
    if not path.exists():
        pytest.skip(f"needs {path}")
    return path


def zoo_model(name: str) -> Path:
    """An ONNX model of the zoo by its name without ".onnx"; "digits" is the one in calib_data/."""
    if name == "digits":
        return REPOSITORY / "calib_data" / "digits.onnx"
    return zoo_path(f"models/{name}.onnx")
