"""Explanations of nodes, and the listings of operators, kernels and memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qglow.core.errors import UsageError
from qglow.core.passes import LogEntry
from qglow.display.document import Document
from qglow.display.plain import from_plain, to_plain
from qglow.display.terminal import to_text
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.quantization.report import QuantizationReport
from qglow.recipe import Calibration, Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.explain import explain
from qglow.report.operator_matrix import instructions_without_kernel, operator_matrix, operator_sections
from qglow.report.stages import stage_text
from qglow.toolchain import selected_program
from tests.unit.profiling.networks import profile_of, residual_network

OPTIONS = Recipe(calibration=Calibration("minmax"))


def quantized(*rules: Rule) -> QuantizedGraph:
    return quantize(residual_network(), profile_of(), replace(OPTIONS, rules=rules))


def explained(name: str, found: QuantizedGraph, log: tuple[LogEntry, ...] = ()) -> str:
    program = selected_program(found.graph, "generic")
    entries = (*log, *found.report.log)
    document: Document = explain(
        name, found.graph, program, entries, found.report, found.source, found.recipe
    )
    return to_text(document, 200)


def test_an_int8_node_is_explained_from_policy_to_kernel() -> None:
    text = explained("stem", quantized())
    for part in ("accumulates x x w", "runs in", "int8", "minmax", "asymmetric", "clipped", "int32 sum fits"):
        assert part in text
    assert "convolution" in text and "none fits" in text


def test_a_node_under_a_rule_names_the_rule() -> None:
    found = quantized(Rule(Match(name="pointwise"), dtype="float"))
    text = explained("pointwise", found)
    assert "float32: kept by rule 1 (name pointwise)" in text
    assert "1 (name pointwise)" in text and "depthwise" in text


def test_a_node_that_passes_took_away_says_where_it_went() -> None:
    entry = LogEntry("fold-batchnorm", "bn", "folded into Conv 'Conv_0'", True)
    assert "folded into Conv 'Conv_0'" in explained("bn", quantized(), (entry,))
    assert "folded into Conv 'Conv_0'" in explained("Conv_0", quantized(), (entry,))


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'pointwise'"):
        explained("pointwize", quantized())


def test_a_float_graph_is_explained_without_a_report() -> None:
    graph = residual_network()
    text = to_text(explain("stem", graph, selected_program(graph, "generic"), ()), 160)
    assert "the model is not quantized" in text and "No pass changed it" in text


def test_reports_survive_json() -> None:
    report = quantized(Rule(Match(operator="Gemm"), dtype="float", schema="symmetric")).report
    assert from_plain(QuantizationReport, json.loads(json.dumps(to_plain(report)))) == report


def test_damaged_reports_are_refused() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_plain(QuantizationReport, {"quantized": []})
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_plain(QuantizationReport, [])


def test_memory_is_shown_over_time() -> None:
    text = stage_text(quantized().graph, "memory", "generic")
    assert "used/bound" in text and "Memory over time" in text and "#" * 40 in text


def test_kernels_are_listed_with_their_share_of_the_cost() -> None:
    text = stage_text(quantized().graph, "kernels", "avx2")
    shares = [float(line.split()[-2]) for line in text.splitlines() if line.endswith(" %")]
    assert len(shares) > 5 and sum(shares) == pytest.approx(100.0, abs=1.0)


@pytest.mark.parametrize("facets", operator_matrix(), ids=lambda facets: facets.name)
def test_every_operator_has_the_facets_that_its_policy_promises(facets: object) -> None:
    assert facets.missing == ()  # type: ignore[attr-defined]


def test_every_instruction_has_a_kernel() -> None:
    assert instructions_without_kernel() == ()


def test_the_matrix_shows_who_promises_what() -> None:
    sections = {section.title: section for section in operator_sections()}
    (promises,) = sections["What passes ask"].blocks
    rows = dict(promises.rows)  # type: ignore[union-attr]
    assert rows["additive"] == "Add, Sub" and rows["clamps"] == "Clip, Relu"
    assert rows["summed_elements"] == "AveragePool, GlobalAveragePool, ReduceMean"


def test_the_matrix_prints() -> None:
    text = "\n".join(to_text(Document("", (section,)), 200) for section in operator_sections())
    assert "Conv " in text and "accumulates x x w" in text and "convolution" in text
