"""Where the time of an int8 program goes: by kind and shape of work, and how near that is to the peak.

Every instruction is timed inside the running program, on one thread; the processor's most multiply-adds
for each instruction set are measured on the spot. Convolutions and matrix products of one shape are
one row, and so are all other instructions of one kind. The models are those whose speed misses what is
wanted unless others are named: topologies with random weights. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction
from qglow.report.kernels import multiply_adds
from qglow.targets.capabilities import timed
from qglow.targets.registry import running_names, select_target
from qglow.toolchain import selected_program
from qglow.toolchain.timing import time_instructions
from scripts.benchmarks.frame import Benchmark, Outcome, add_json_option, announce, json_document
from scripts.benchmarks.models.evaluated import EvaluatedModel
from scripts.benchmarks.models.opened import TIMED_NAMES, opened_models
from scripts.benchmarks.tables import conditions, markdown_table

MODELS = ("light_resnet50", "mobilenet_v1_224")
TITLES = ("work", "instructions", "us", "share", "of peak")
LEAST_SHARE = 0.015
"""Rows that take less are put together."""


@dataclass(frozen=True)
class Work:
    """Instructions of one kind and shape: how many, their microseconds, and multiply-adds."""

    title: str
    instructions: int
    microseconds: float
    products: int


@dataclass(frozen=True)
class Measured:
    """The work of a program, and the multiply-adds in a microsecond that its processor does at most."""

    model: str
    isa: str
    rows: tuple[Work, ...]
    peak: float

    @property
    def microseconds(self) -> float:
        """Of all rows."""
        return sum(row.microseconds for row in self.rows)


def measure(model: EvaluatedModel, isa: str) -> Measured:
    """Quantize, compile for the instruction set, and time every instruction."""
    program = selected_program(model.quantize_for_timing(model.load()).graph, isa)
    timing = time_instructions(program, timed(select_target(isa)))
    work = [
        Work(title_of(each), 1, timing.microseconds[each.name], multiply_adds(each))
        for each in program.code
        if each.kernel
    ]
    return Measured(model.name, isa, tuple(together(work)), 1e3 * timing.int8_peak.products_per_ns)


def title_of(instruction: Instruction) -> str:
    """What an instruction does; for products, in which shape."""
    operation = instruction.operation
    if not multiply_adds(instruction):
        return operation.opcode
    if not isinstance(operation, Convolution):
        sizes = ["x".join(map(str, buffer.type.shape)) for _, buffer in instruction.operands()]
        return f"{operation.opcode} {sizes[1]} by {sizes[2]}"
    (outputs, *window, channels), source = (
        instruction.operand(name).type.shape for name in ("filter", "src")
    )
    kind = "" if operation.group == 1 else f" in {operation.group} groups"
    stride = "" if max(operation.strides) == 1 else f" by {operation.strides[0]}"
    size = "x".join(map(str, window))
    return f"{size}{stride}, {channels * operation.group} to {outputs}{kind}, {source[1]}x{source[2]}"


def together(work: Iterable[Work]) -> list[Work]:
    """Rows of one title as one, the costliest first, and those of little cost as the last."""
    found: dict[str, Work] = {}
    for row in work:
        found[row.title] = _sum(row.title, [found[row.title], row] if row.title in found else [row])
    limit = LEAST_SHARE * sum(row.microseconds for row in found.values())
    ordered = sorted(found.values(), key=lambda row: -row.microseconds)
    small = [row for row in ordered if row.microseconds < limit]
    return [row for row in ordered if row.microseconds >= limit] + (
        [_sum("all else", small)] if small else []
    )


def _sum(title: str, rows: Sequence[Work]) -> Work:
    counts = sum(row.instructions for row in rows)
    return Work(title, counts, sum(r.microseconds for r in rows), sum(r.products for r in rows))


def to_markdown(found: Iterable[Measured]) -> str:
    """A table for every program."""
    return "\n\n".join([*map(_table, found), conditions()])


def _table(measured: Measured) -> str:
    total = measured.microseconds
    body = [
        (
            row.title,
            str(row.instructions),
            f"{row.microseconds:.0f}",
            f"{row.microseconds / total:.1%}",
            f"{row.products / row.microseconds / measured.peak:.0%}" if row.products else "",
        )
        for row in measured.rows
    ]
    rate = measured.peak / 1e3
    caption = f"`{measured.model}`, {measured.isa}: {total:.0f} us; peak {rate:.0f} multiply-adds a ns."
    return f"{caption}\n\n{markdown_table(TITLES, body)}"


def to_json(found: Iterable[Measured]) -> str:
    """The same as data."""
    return json_document(programs=[asdict(each) for each in found])


def _measure_all(options: argparse.Namespace) -> Outcome:
    found: list[Measured] = []
    for model in opened_models(options.models, TIMED_NAMES):
        for isa in options.isas:
            announce(model.name, isa)
            found.append(measure(model, isa))
    return Outcome(to_markdown(found), json=to_json(found))


def _add_options(parser: argparse.ArgumentParser) -> None:
    known = running_names()
    parser.add_argument("--isas", nargs="+", default=known[-1:], choices=known, metavar="NAME")
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "kernels", MODELS, _add_options)
