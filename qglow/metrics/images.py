"""Outputs that are images or maps of classes, against those of the float model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array


def psnr(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Peak signal-to-noise ratio of all outputs against float, in dB; infinite if nothing differs.

    outputs, expected: arrays by name, of equal shapes. The peak is the largest range of a float output.
    Raises ValueError if outputs differ from float outputs that are constant.

    >>> expected = {"y": np.array([0.0, 1.0])}
    >>> psnr({"y": np.array([0.1, 1.0])}, expected)  # mean squared error 0.005
    23.010...
    >>> psnr(expected, expected)
    inf
    """
    peak = max(float(np.max(array)) - float(np.min(array)) for array in expected.values())
    squares = [np.square(np.float64(outputs[name]) - array).ravel() for name, array in expected.items()]
    error = float(np.mean(np.concatenate(squares)))
    return math.inf if error == 0.0 else 20.0 * math.log10(peak) - 10.0 * math.log10(error)


def miou(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Mean intersection over union of predicted classes with those of the float model, in per cent.

    The first output has scores [N, classes, ...]; the best class is taken at each position. The mean is over
    the classes that either model chooses anywhere. Raises ValueError for an output without positions.

    >>> expected = {"y": np.array([[[0.9, 0.8, 0.1, 0.2], [0.1, 0.2, 0.9, 0.8]]])}  # classes 0 0 1 1
    >>> outputs = {"y": np.array([[[0.9, 0.1, 0.1, 0.2], [0.1, 0.2, 0.9, 0.8]]])}  # classes 0 1 1 1
    >>> miou(outputs, expected)  # the mean of 1/2 and 2/3
    58.333...
    """
    name, reference = next(iter(expected.items()))
    if reference.ndim < 3:
        raise ValueError(f"output '{name}' of shape {list(reference.shape)} is not [N, classes, ...]")
    found, true = outputs[name].argmax(1).ravel(), reference.argmax(1).ravel()
    count = reference.shape[1]
    pairs = np.bincount(true * count + found, minlength=count * count).reshape(count, count)
    common = np.diag(pairs)
    union = pairs.sum(0) + pairs.sum(1) - common
    return 100.0 * float(np.mean(common[union > 0] / union[union > 0]))
