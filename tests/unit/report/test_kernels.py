"""Lists of kernels: products are counted, times and shares of the peak fit together."""

from __future__ import annotations

import math

import pytest

from qglow.codegen.peak import Peak
from qglow.core.errors import UsageError
from qglow.display.blocks import Grid
from qglow.display.document import Document
from qglow.instructions.program import Program
from qglow.report.kernels import kernel_document, multiply_adds
from qglow.report.stages import stage_text
from qglow.targets.capabilities import timed
from qglow.targets.registry import find_target
from qglow.toolchain import selected_program
from qglow.toolchain.timing import Timing, time_instructions
from tests.runtimes import PLAIN, machine
from tests.unit.report.digits import example

MACHINE = machine(PLAIN)


def table_of(document: Document) -> Grid:
    [found] = [part for part in document.sections[0].blocks if isinstance(part, Grid)]
    return found


def program() -> Program:
    return selected_program(example().quantized.graph, PLAIN)


def test_products_of_the_example_are_those_of_its_layers() -> None:
    products = {name: multiply_adds(i) for i in program().code for name in i.origin if multiply_adds(i)}
    layers = [node for node in example().quantized.graph.nodes if type(node.operator).__name__ == "Conv"]
    assert len(layers) >= 8
    for node in layers:
        filters = node.operand("w")
        assert filters is not None
        pixels = math.prod(node.output.type.shape[2:])
        assert products[node.name] == math.prod(filters.type.shape) * pixels


def test_times_and_rates_are_shown_beside_estimates() -> None:
    made = program()
    names = [i.name for i in made.code if i.kernel]
    timing = Timing(dict.fromkeys(names, 2.0), Peak(100.0, 1.0), Peak(10.0, 1.0))
    for row in table_of(kernel_document(made, MACHINE, timing)).rows:
        products, share, rate = row[3], row[-3], row[-2]
        assert row[6] == "2.0" and share == f"{100.0 / len(names):.1f} %"
        assert rate == (f"{int(products) / 2e3:.1f}" if products else "")
    plain = table_of(kernel_document(made, MACHINE))
    assert [row[0] for row in plain.rows] == names and len(plain.columns) == 6


def test_instructions_are_timed() -> None:
    made = program()
    timing = time_instructions(made, timed(find_target(PLAIN)), runs=5)
    assert {i.name for i in made.code} == set(timing.microseconds)
    assert sum(timing.microseconds.values()) > 1.0
    assert "of peak" in stage_text(example().quantized.graph, "kernels", PLAIN, measure=True)


def test_other_stages_have_no_times() -> None:
    with pytest.raises(UsageError, match="measure the stage kernels"):
        stage_text(example().quantized.graph, "asm", measure=True)
