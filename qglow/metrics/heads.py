"""Parts of decoders: what common heads of detectors give, as boxes.

A decoder puts them together for one model: cells or priors to centres and sizes, those to corners, corners
and scores to boxes. All take and give real arrays of one image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.metrics.boxes import Boxes, Suppression, suppress


def grid(width: int, height: int) -> Array:
    """Columns and rows (x, y) of the cells of a grid, row by row, [width * height, 2].

    >>> grid(2, 2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    rows, columns = np.indices((height, width))
    return np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)


def corners_of(centres: Array, sizes: Array) -> Array:
    """Corners (x1, y1, x2, y2) [N, 4] of boxes given by centres [N, 2] and sizes [N, 2].

    >>> corners_of(np.array([[5.0, 5.0]]), np.array([[4.0, 2.0]])).tolist()
    [[3.0, 4.0, 7.0, 6.0]]
    """
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def grid_corners(rows: Array, size: tuple[int, int], strides: Sequence[int] = (8, 16, 32)) -> Array:
    """Corners of a head without anchors, as YOLOX and YuNet have, in pixels of an input of (width, height).

    rows: [cells, 4], offsets of the centre from the cell's corner in cells, then logarithms of width and
    height in cells; the cells of each stride in turn, row by row. Raises ValueError for another number of
    cells.
    """
    width, height = size
    grids = [grid(width // stride, height // stride) for stride in strides]
    if sum(map(len, grids)) != len(rows):
        wanted = f"{sum(map(len, grids))} cells of strides {', '.join(map(str, strides))}"
        raise ValueError(f"{len(rows)} rows are not the {wanted} in {width} x {height} pixels")
    scale = np.concatenate([np.full((len(g), 1), float(s)) for g, s in zip(grids, strides, strict=True)])
    real = rows.astype(np.float64)
    return corners_of((real[:, :2] + np.concatenate(grids)) * scale, np.exp(real[:, 2:4]) * scale)


def prior_corners(rows: Array, priors: Array, variances: tuple[float, float] = (0.1, 0.2)) -> Array:
    """Corners of a head with priors, as SSD has (Liu et al. 2016), in the units of the priors.

    rows: [N, 4], offsets of the centre in sizes of the prior, then logarithms of the sizes relative to it,
    both divided by their variance. priors: [N, 4], centre and size.
    """
    real = rows.astype(np.float64)
    centres = priors[:, :2] + variances[0] * real[:, :2] * priors[:, 2:]
    return corners_of(centres, priors[:, 2:] * np.exp(variances[1] * real[:, 2:4]))


def select_boxes(corners: Array, scores: Array, rule: Suppression) -> Boxes:
    """Boxes that suppression leaves of corners [N, 4] and scores [N, classes]: each class of a row is one."""
    rows, classes = np.nonzero(scores >= rule.lowest_score)
    return suppress(Boxes(corners[rows], classes, scores[rows, classes]), rule)
