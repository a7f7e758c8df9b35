"""What a diagnosis says of a model, of a node, and of what was tried."""

from __future__ import annotations

import math

import pytest

from qglow.display.blocks import Section
from qglow.display.document import Document
from qglow.display.plain import from_plain, to_plain
from qglow.display.terminal import to_text
from qglow.report.diagnosis import (
    Diagnosis,
    NodeDiagnosis,
    Noise,
    TriedChange,
    diagnosis_section,
    node_section,
    with_errors,
)
from tests.unit.report.test_layers import report

RULE = '  - {"match": {"name": "a"}, "calibration": "mse"}\n'
CLIPS = NodeDiagnosis(
    "clips",
    "Conv",
    "clips.result",
    Noise(0.001, 0.002, 0.007),
    18.0,
    math.inf,
    0.9,
    0.02,
    (3,),
    tuple(range(9)),
    31.0,
)
QUIET = NodeDiagnosis("quiet", "Relu", "quiet", Noise(0.0, 0.0, 0.0), rmse=0.29, saturated=0.0)
CHANGES = (
    TriedChange("a", "mse", 20.0, 26.0, (RULE,)),
    TriedChange("clips", "float", 20.0, 19.0, ("other",)),
    TriedChange("b", "kl", 20.0, 20.01, ("another",)),
)


def text(section: Section | None) -> str:
    assert section is not None
    return to_text(Document("", (section,)), 200)


def test_the_noise_of_all_nodes_adds_up() -> None:
    found = Diagnosis(4, (QUIET, CLIPS))
    assert found.noise.total == pytest.approx(0.01)
    assert found.sqnr_db == pytest.approx(20.0)
    assert found.ranked() == [CLIPS, QUIET]
    assert (found.share(CLIPS), found.share(QUIET)) == (1.0, 0.0)


def test_without_noise_nothing_is_lost() -> None:
    for nodes in ((), (QUIET,)):
        found = Diagnosis(4, nodes)
        assert found.sqnr_db == math.inf and all(found.share(node) == 0.0 for node in nodes)
        assert "equal" in text(diagnosis_section(found))


def test_only_what_helped_is_suggested_best_first() -> None:
    assert Diagnosis(4, (CLIPS,), CHANGES).suggestions() == [CHANGES[0]]
    shown = text(diagnosis_section(Diagnosis(4, (CLIPS,), CHANGES)))
    assert "mse on 'a': SQNR 20.0 -> 26.0 dB (+6.0)" in shown
    assert RULE.strip() in shown and "other" not in shown


def test_where_nothing_helped_the_best_is_told() -> None:
    shown = text(diagnosis_section(Diagnosis(4, (CLIPS,), CHANGES[1:])))
    assert "2 changes were tried, none gains 0.1 dB; the best was kl on 'b': SQNR 20.0 -> 20.0 dB." in shown
    assert "that needs the profile" in text(diagnosis_section(Diagnosis(4, (CLIPS,))))


def test_a_node_that_clips_says_so() -> None:
    shown = text(node_section(Diagnosis(4, (QUIET, CLIPS), CHANGES), "clips.result"))
    for part in (
        "100.00 % of all, place 1 of 2: 10.00 % weights, 20.00 % rounding, 70.00 % clipping",
        "18.00 dB",
        "0.900: something clips",
        "2.00 % of the elements, more than rare extremes",
        "dead channels",
        "9: 0, 1, 2, 3, 4, 5, ...; the largest reaches 31 times as far as the median",
        "float on 'clips': SQNR 20.0 -> 19.0 dB",
    ):
        assert part in shown
    assert "'a'" not in shown


def test_a_node_that_only_rounds_says_so() -> None:
    shown = text(node_section(Diagnosis(4, (QUIET, CLIPS)), "quiet"))
    assert "int8 only rounds" in shown and "more than rare extremes" not in shown
    assert node_section(Diagnosis(4, (QUIET,)), "absent") is None


def test_it_survives_the_report_file() -> None:
    found = Diagnosis(4, (QUIET, CLIPS), CHANGES)
    assert from_plain(Diagnosis, to_plain(found)) == found


def test_errors_of_layers_are_taken_over() -> None:
    layer = next(x for x in report().layers if x.rounding is not None and x.isolated is not None)
    node = NodeDiagnosis(layer.node, layer.operator, "", Noise(0.0, 0.0, 0.0))
    found = with_errors(node, report().layers)
    assert layer.isolated is not None and found.isolated_db == layer.isolated.sqnr_db
    assert (found.rmse, found.saturated) == (layer.rounding, layer.saturated)
    assert with_errors(QUIET, ()) == QUIET


def test_layers_count_what_is_out_of_range() -> None:
    shares = [x.saturated for x in report().layers if x.saturated is not None]
    assert shares and all(0.0 <= share < 0.01 for share in shares)
    assert all((x.saturated is None) == (x.rounding is None) for x in report().layers)
