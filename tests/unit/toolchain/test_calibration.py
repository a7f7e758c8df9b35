"""Calibration samples of several sizes: longer ones are cut to those of the graph, others left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from qglow.core.errors import DataError
from qglow.core.types import Array, Dimension, ElementType, Shape, TensorType
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples

Dimensions = Mapping[str, Sequence[Dimension]]
TEXTS = {"ids": ("batch", "length"), "mask": ("batch", "length")}


def used(
    samples: list[dict[str, Array]], dimensions: Dimensions, shapes: Mapping[str, Shape], cuts: bool = True
) -> tuple[list[dict[str, Array]], str]:
    inputs = {name: TensorType(ElementType.FLOAT, shape) for name, shape in shapes.items()}
    opened, fit = CalibrationSamples(samples, dimensions=dimensions).opened(inputs, Recipe(), cuts=cuts)
    found = [dict(sample.inputs) for sample in opened]
    assert fit is not None and opened.size is None
    return found, fit.told()


def arrays(**shapes: Shape) -> dict[str, Array]:
    random = np.random.default_rng(3)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_longer_texts_are_cut_and_shorter_ones_left_out() -> None:
    samples = [arrays(ids=(1, length), mask=(1, length)) for length in (5, 4, 9, 2)]
    found, told = used(samples, TEXTS, {"ids": (1, 5), "mask": (1, 5)})
    assert [sample["ids"].shape for sample in found] == [(5,), (5,)]
    np.testing.assert_array_equal(found[1]["mask"], samples[2]["mask"][0, :5])
    assert told == (
        "calibration samples of the sizes ids=[5], mask=[5] are used: 1 longer ones are cut to them and "
        "2 others are left out"
    )


def test_nothing_is_told_where_all_are_used() -> None:
    samples = [arrays(ids=(1, 5), mask=(1, 5))] * 3
    found, told = used(samples, TEXTS, {"ids": (1, 5), "mask": (1, 5)})
    assert (len(found), told) == (3, "")


def test_samples_that_judge_are_not_cut() -> None:
    samples = [arrays(ids=(1, length), mask=(1, length)) for length in (5, 9)]
    found, _ = used(samples, TEXTS, {"ids": (1, 5), "mask": (1, 5)}, cuts=False)
    assert len(found) == 1


def test_only_what_all_inputs_share_is_cut() -> None:
    """Edges name nodes: without the last nodes they would name others."""
    declared = {"nodes": ("num_nodes", 3), "edges": (2, "num_edges")}
    samples = [arrays(nodes=(4, 3), edges=(2, 6)), arrays(nodes=(7, 3), edges=(2, 6))]
    found, _ = used(samples, declared, {"nodes": (4, 3), "edges": (2, 6)})
    assert [sample["nodes"].shape for sample in found] == [(4, 3)]


def test_a_single_input_is_cut_along_dimensions_without_names() -> None:
    found, _ = used([arrays(x=(1, 3, 9, 8))], {"x": ("batch", 3, None, None)}, {"x": (1, 3, 6, 8)})
    assert found[0]["x"].shape == (3, 6, 8)


def test_what_fits_no_sample_is_told() -> None:
    with pytest.raises(DataError, match=r"no sample has the sizes .* ids=\[20\], mask=\[20\]: profile these"):
        used([arrays(ids=(1, 5), mask=(1, 5))], TEXTS, {"ids": (1, 20), "mask": (1, 20)})


def test_common_shapes_are_those_of_most_samples() -> None:
    samples = [arrays(ids=(1, length), mask=(1, length)) for length in (5, 4, 9, 4, 9)]
    kinds = dict.fromkeys(TEXTS, ElementType.FLOAT)
    found = CalibrationSamples(samples, dimensions=TEXTS).common_shapes(kinds, Recipe())
    assert found == {"ids": (1, 9), "mask": (1, 9)}
