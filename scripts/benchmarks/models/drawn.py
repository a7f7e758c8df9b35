"""Files of networks whose weights are drawn at random: the model, and samples of its input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from qglow.core.types import Array

SAMPLES = 16
TILE = 14
"""Edge of a tile in pixels; 16 of them are an input's edge."""


def drawn_samples(model: ModelProto, count: int = SAMPLES) -> dict[str, Array]:
    """Images of 16 x 16 random tiles with noise, stacked along the batch axis, by the input's name.

    Noise alone looks the same everywhere, so that a network would answer all samples alike.
    """
    random = np.random.default_rng(7)
    [value] = model.graph.input
    _, channels, height, width = (d.dim_value for d in value.type.tensor_type.shape.dim)
    tiles = random.standard_normal((count, channels, height // TILE, width // TILE), np.float32)
    images = tiles.repeat(TILE, axis=2).repeat(TILE, axis=3)
    images += np.float32(0.3) * random.standard_normal(images.shape, np.float32)
    return {value.name: images}


def write_network(model: ModelProto, name: str, folder: Path, samples: int = SAMPLES) -> tuple[Path, Path]:
    """Write NAME.onnx, and NAME.npz with some samples of its input; their paths."""
    paths = folder / f"{name}.onnx", folder / f"{name}.npz"
    onnx.save(model, paths[0])
    np.savez(paths[1], **drawn_samples(model, samples))  # type: ignore[arg-type]
    return paths
