"""How many samples are enough: scales over subsets and resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from qglow.core.errors import UsageError
from qglow.display.document import Document
from qglow.display.markdown import to_markdown
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.samples import Sample
from qglow.profiling.shards import profile_shards
from qglow.quantization.pipeline import quantize
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.report.sufficiency import ScaleStability, SufficiencyReport, sufficiency
from qglow.report.sufficiency_sections import sufficiency_section
from tests.unit.profiling.networks import profile_of, residual_network, samples

MINMAX = Recipe(calibration=Calibration("minmax"))


def of(given: Sequence[Sample], seed: int = 0) -> SufficiencyReport:
    sharded = profile_shards(residual_network(), given, InterpreterEngine(residual_network))
    return sufficiency(residual_network(), sharded, MINMAX, tolerance=0.1, resamples=20, seed=seed)


@cache
def report() -> SufficiencyReport:
    return of(samples(40))


def test_the_scale_over_all_is_that_of_quantization() -> None:
    options = replace(MINMAX, equalize=False)
    tensors = quantize(residual_network(), profile_of(40), options).report.tensors
    wanted = {tensor.value: tensor.scale for tensor in tensors}
    assert {value.value for value in report().values} == set(wanted)
    [found] = [value for value in report().values if value.value == "stem"]
    assert found.scales[-1] == pytest.approx(wanted["stem"], rel=1e-6)


def test_subsets_double_up_to_all_samples() -> None:
    assert report().subsets == (2, 3, 5, 10, 20, 40)


def test_the_range_of_more_samples_is_never_smaller() -> None:
    for value in report().values:
        assert list(value.scales) == sorted(value.scales)
        assert value.low <= value.high <= value.scales[-1] * (1 + 1e-6)


def test_it_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert of(samples(40)) == report()
    other = of(samples(40), seed=1)
    assert other != report()
    assert [value.scales for value in other.values] == [value.scales for value in report().values]


def test_equal_samples_settle_at_once() -> None:
    found = of([samples(1)[0]] * 8)
    assert found.enough() == 1 and not found.moving() and not found.late()
    assert found.verdict().startswith("1 samples suffice for 100 % of 8 values")


def test_one_sample_of_another_kind_keeps_its_values_moving() -> None:
    given = samples(40)
    given[17] = replace(given[17], inputs={"x": given[17].inputs["x"] * np.float32(10.0)})
    found = of(given)
    moving = [value.value for value in found.moving()]
    assert "x" in moving and not {value.value for value in report().moving()} >= set(moving)
    [x] = [value for value in found.values if value.value == "x"]
    assert x.change(x.low) < -0.5


def test_the_verdict_names_those_that_need_more_and_those_that_move() -> None:
    steady = [ScaleStability(f"v{i}", (1.0, 1.0, 1.0), 0.99, 1.01) for i in range(30)]
    late = ScaleStability("late", (0.5, 0.8, 1.0), 0.98, 1.02)
    moving = ScaleStability("wild", (1.0, 1.0, 1.0), 0.7, 1.3)
    found = SufficiencyReport((25, 50, 100), "kl", 0.1, (*steady, late, moving))
    assert found.verdict() == (
        "25 samples suffice for 94 % of 32 values (scales within 10 %); more are needed for 'late' (100); "
        "1 keep moving: 'wild' (-30 to +30 %)."
    )


def test_where_everything_moves_nothing_is_enough() -> None:
    found = SufficiencyReport((1, 2), "kl", 0.1, (ScaleStability("a", (1.0, 1.0), 0.5, 1.0),))
    assert found.enough() is None
    assert found.verdict() == "2 samples are not enough: every scale may move by more than 10 %."


def test_options_are_checked() -> None:
    sharded = profile_shards(residual_network(), samples(2), InterpreterEngine(residual_network))
    for tolerance, resamples in ((0.0, 20), (0.1, 3)):
        with pytest.raises(UsageError, match="at least 10 resamples"):
            sufficiency(residual_network(), sharded, MINMAX, tolerance=tolerance, resamples=resamples, seed=0)


def test_the_section_has_a_column_for_each_subset() -> None:
    text = to_markdown(Document("sufficiency", (sufficiency_section(report()),)))
    assert "Sufficiency of 40 samples" in text and "| 10 | 20 |" in text.replace(" ---: ", "")
    assert "samples suffice" in text or "not enough" in text
