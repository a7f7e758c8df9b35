"""Verdicts on stages of a repair, which must not be worse than that without it."""

from __future__ import annotations

from qglow.quantization.report import Repair
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.tuning.repair import _Search
from qglow.tuning.self_check import float_runs
from qglow.tuning.words import has_worse_word, is_clearly_good
from tests.unit.profiling.networks import residual_network
from tests.unit.profiling.networks import samples as images
from tests.unit.tuning.repair_networks import made


def test_changes_that_make_the_verdict_worse_are_taken_back() -> None:
    kept = images(8)
    quantizer = made(residual_network(), kept)
    search = _Search(quantizer, float_runs(quantizer.graph, kept, quantizer.options))
    plain = Recipe(calibration=Calibration.parse("minmax"))
    good, poor = search.stage(plain), search.stage(Recipe(calibration=Calibration.parse("percentile:60")))
    assert is_clearly_good(good) and not is_clearly_good(poor)
    assert has_worse_word(poor, good) and not has_worse_word(good, poor) and not has_worse_word(poor, poor)
    change = Repair("calibration percentile:60 in place of minmax", 20.0, 21.0)
    search.repairs, search._before = [change], [poor]
    assert search.with_no_worse_word(good) is good and search.repairs == [change]
    assert search.with_no_worse_word(poor) is poor and search.repairs == [change]
    search._before = [good]
    assert search.with_no_worse_word(poor) is good and search.repairs == []
