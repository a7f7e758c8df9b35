"""What default settings make of every model, beside each plain calibration method and other tools.

Every model of the zoo (QGLOW_ZOO) and of other people's (QGLOW_WILD) that qglow loads is quantized with
qglow's defaults; with each plain method and no repair; by onnxruntime's static quantization with each of its
methods, and by its dynamic one; and by NNCF where it is installed (extra `bench`). All that calibrate do so
on the same samples, and all are judged by the smallest SQNR of the float outputs in dB, beside the share of
samples with the same best class where there are classes, against float32 in onnxruntime. Of the recipes in
recipes/ only preprocessing and names of arrays are used, none of their choices. Models with labelled data are
judged on samples that did not calibrate; other people's have a few samples, which do both; models without
data run on random inputs. The figures of the last two are a warning sign and no accuracy.

A row is printed to standard error when it is known, and kept in the file of --json. With --again that file's
figures of plain methods and other tools are kept, so that a change to the defaults is judged quickly; with
--resume its rows are, so that a measurement goes on. What the tools made is kept in --cache.

Exits with 1, and a line for each, where the default is more than 0.5 dB behind the best plain method, where
the best other tool is ahead in the mean, where a broken model (below 6 dB) calls itself good, and where qglow
fails on a model that it loads.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from qglow import Model, QuantizedModel, Recipe
from qglow.core.errors import ModelError, QglowError, UsageError
from qglow.core.files import write_atomically
from qglow.core.types import ElementType
from qglow.graph.work import node_multiply_adds
from qglow.profiling.samples import Sample, batches
from qglow.quantization.report import is_int8
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner, run_samples
from scripts.benchmarks.default_rows import (
    DEFAULT,
    PLAIN,
    Figures,
    Row,
    failures,
    row_of,
    summary,
    to_json,
    to_markdown,
)
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_json_option,
    add_limit_option,
    announce,
    read_rows,
)
from scripts.benchmarks.models.evaluated import EvaluatedModel, check_names
from scripts.benchmarks.models.opened import found_names, has_drawn_inputs, opened_models
from scripts.benchmarks.models.wild import WILD
from scripts.benchmarks.rivals.cache import RivalCache, add_cache_options, all_tools, title_of
from scripts.benchmarks.tables import conditions, with_other_rows

_PARAMETERS = inspect.signature(Model.quantize).parameters
PLAINLY = {name: False for name in ("repair", "check") if name in _PARAMETERS}
"""What a plain method is asked for besides its calibration: nothing that looks at the result."""
DRAWN = 128
"""Random inputs that judge a model without data: over eight, methods that are equal are 1 dB apart."""


@dataclass(frozen=True)
class Measured:
    """A quantized model, the processor time in seconds that quantizing took, and its compiled program."""

    model: QuantizedModel
    seconds: float
    program: Runner


def measure(model: EvaluatedModel, options: argparse.Namespace, known: Row | None) -> Row:
    """The row of one model; of what `known` has, the default alone is measured again.

    Raises QglowError where qglow refuses the model, or float onnxruntime does.
    """
    loaded = model.load()
    if loaded.is_quantized:
        raise UsageError("quantized already: it has its own parameters")
    judged = list(model.evaluation.read(model, loaded, options.limit))
    reference = OnnxruntimeModel(model.path, shapes=loaded.shapes)
    ours = _made_by_qglow(model, loaded, (DEFAULT, *PLAIN) if known is None else (DEFAULT,))
    programs = {name: each.program for name, each in ours.items()}
    if known is None:
        programs |= _made_by_others(model, loaded, options, judged[0])
    floats = [name for name, kind in loaded.outputs.items() if kind.element is ElementType.FLOAT]
    found = _figures(programs, reference, judged, floats)
    found |= {name: _with_report(found[name], ours[name]) for name in ours}
    default = found.pop(DEFAULT)
    plain = {name: found[name] for name in PLAIN if name in found}
    others = {name: figures for name, figures in found.items() if name not in PLAIN}
    if known is not None:
        plain, others = dict(known.plain), dict(known.others)
    calibrated = sum(1 for _ in model.calibration.read(model, loaded))
    verdict = getattr(ours[DEFAULT].model, "verdict", None)
    word = None if verdict is None else str(getattr(verdict, "word", verdict))
    return Row(model.name, _judged_on(model), calibrated, len(judged), default, plain, others, word)


def _made_by_qglow(model: EvaluatedModel, loaded: Model, wanted: Sequence[str]) -> dict[str, Measured]:
    """Programs of the default and of plain methods. Raises QglowError where the default is refused."""
    kept = model.recipe
    recipe = Recipe(preprocessing=kept.preprocessing, data=kept.data)
    profile = model.profile(loaded)
    made = {}
    for name in wanted:
        choices: dict[str, Any] = {} if name == DEFAULT else {"calibration": name, **PLAINLY}
        start = time.process_time()
        quantized = loaded.quantize(profile, recipe, **choices)
        made[name] = Measured(quantized, time.process_time() - start, quantized.compile())
    return made


def _made_by_others(
    model: EvaluatedModel, loaded: Model, options: argparse.Namespace, trial: Sample
) -> dict[str, Runner]:
    """Programs of other tools that run the sample `trial`, by the title of the tool."""
    cache = RivalCache(options.cache, options.patience)
    [batch] = batches([trial], 1)
    made: dict[str, Runner] = {}
    for tool in options.tools:
        content = cache.get(model, loaded, tool)
        if content is None:
            continue
        try:
            program = OnnxruntimeModel(content, shapes=loaded.shapes, exact_sums=True)
            run_samples(program, batch.inputs)
        except Exception as error:  # onnxruntime raises errors of its own for models that it cannot run
            print(f"{model.name}: {tool}: {error}", file=sys.stderr)
            continue
        made[title_of(tool)] = program
    return made


def _figures(
    programs: Mapping[str, Runner], reference: Runner, judged: Sequence[Sample], floats: Sequence[str]
) -> dict[str, Figures]:
    """Figures of all programs in one pass over the samples."""
    first, *more = programs
    rivals = {name: programs[name] for name in more}
    comparison = compare(programs[first], reference, judged, rivals=rivals)
    return {name: _compared(comparison, INT8 if name == first else name, floats) for name in (first, *more)}


def _compared(comparison: Comparison, program: str, floats: Sequence[str]) -> Figures:
    """Figures of one program. An output that is zero in float has no SQNR, and does not count.

    Raises ModelError where no output counts.
    """
    pairing = comparison.pairing(program, FLOAT)
    outputs = [pairing.outputs[name] for name in floats]
    counted = [
        -math.inf if each.non_finite else each.sqnr_db
        for each in outputs
        if each.non_finite or each.sqnr_db > -math.inf
    ]
    if not counted:
        raise ModelError("no output is float and anything but zero")
    agreement = None if pairing.agreement is None else 100.0 * pairing.agreement.top1
    return Figures(min(counted), agreement)


def _with_report(figures: Figures, measured: Measured) -> Figures:
    """The figures with those of quantizing."""
    nodes = measured.model.graph.nodes
    work = [(node_multiply_adds(node), is_int8(node)) for node in nodes]
    everything = math.fsum(count for count, _ in work)
    share = math.fsum(count for count, int8 in work if int8) / everything if everything else None
    report = measured.model.report
    assert report is not None
    count = len(report.quantized)
    all_nodes = count + len(report.float_nodes)
    return replace(figures, seconds=measured.seconds, int8=count, nodes=all_nodes, int8_work=share)


def _judged_on(model: EvaluatedModel) -> str:
    if model.root == WILD and model.calibration.data == model.evaluation.data:
        return "its own samples"
    return "random inputs" if has_drawn_inputs(model.name) else "evaluation split"


def _measure_all(options: argparse.Namespace) -> Outcome:
    """A row for each model that qglow takes; the JSON file has all that are known after each."""
    known = _known(options)
    rows: dict[str, Row] = dict(known)
    refused, broken = [], []
    check_names(_names(options), found_names())
    for name in _names(options):
        announce(name)
        if options.resume and name in known:
            continue
        try:
            [row] = [measure(model, options, known.get(name)) for model in _limited(name, options)]
        except QglowError as error:
            refused.append(f"{name}: {' '.join(str(error).split())[:150]}")
            print(f"  refused: {refused[-1]}", file=sys.stderr, flush=True)
            continue
        except Exception as error:  # a model that breaks qglow is a finding, not the end of the others
            broken.append(f"{name}: {type(error).__name__}: {error}")
            print(f"  broken: {broken[-1]}", file=sys.stderr, flush=True)
            continue
        rows[name] = row
        print(f"  {' | '.join(row.cells()[2:])}{_costs(row)}", file=sys.stderr, flush=True)
        if options.json is not None:
            write_atomically(options.json, to_json(rows.values()))
    measured = [rows[name] for name in _names(options) if name in rows]
    names = ", ".join(line.partition(":")[0] for line in refused) or "none"
    note = f"{summary(measured)}. Refused: {names}. {_amounts(options)} {conditions()}"
    table = f"{to_markdown(measured)}\n\n{note}"
    kept = partial(with_other_rows, "defaults", table, found_names())
    return Outcome(table, kept, to_json(rows.values()), [*failures(measured), *broken])


def _known(options: argparse.Namespace) -> dict[str, Row]:
    """Rows of the file of --json, where an option asks for them. Raises UsageError without a file."""
    if not (options.again or options.resume):
        return {}
    if options.json is None:
        raise UsageError("--again and --resume take up the file of --json, which is not given")
    return read_rows(options.json, row_of) if options.json.exists() or options.again else {}


def _limited(name: str, options: argparse.Namespace) -> Iterator[EvaluatedModel]:
    """The model, with at most as many samples of calibration as the options say."""
    for model in opened_models([name], found_names(), DRAWN):
        split = model.calibration
        if model.root == WILD:  # all of the few samples, of which a batch may need many
            yield model
            continue
        fewer = options.calibration if split.samples is None else min(options.calibration, split.samples)
        yield replace(model, calibration=replace(split, samples=fewer)) if fewer else model


def _names(options: argparse.Namespace) -> Sequence[str]:
    return options.models or found_names()


def _amounts(options: argparse.Namespace) -> str:
    judged = "all" if options.limit is None else f"at most {options.limit}"
    return f"At most {options.calibration} samples calibrated, {judged} of the others judged."


def _costs(row: Row) -> str:
    """Processor time of quantizing by default, and by the slowest plain method, and what is in int8."""
    slowest = max((each.seconds or 0.0 for each in row.plain.values()), default=0.0)
    default = row.default
    share = "" if default.int8_work is None else f", {default.int8_work:.0%} of the multiply-adds"
    times = f"{default.seconds:.1f} s, plain {slowest:.1f} s"
    return f" | {times}, {default.int8} of {default.nodes} nodes{share}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_limit_option(parser, 200)
    parser.add_argument(
        "--calibration", type=int, default=64, metavar="N", help="calibrate on the first N samples only (64)"
    )
    parser.add_argument(
        "--tools", nargs="*", default=all_tools(), choices=all_tools(), metavar="TOOL", help="only these"
    )
    parser.add_argument("--again", action="store_true", help="measure the default alone again")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the JSON file has")
    add_json_option(parser)
    add_cache_options(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "defaults", add_options=_add_options)
