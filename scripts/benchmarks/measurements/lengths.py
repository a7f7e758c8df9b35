"""Time of one program for all lengths up to a bound, beside a program for each very length, in turns.

The model is an encoder with drawn weights, in float32, in int8 at default settings, and with dynamic int8.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

import qglow
from qglow.core.types import Array
from qglow.report.bench import Contender, bench
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, announce
from scripts.benchmarks.models.encoders import LENGTH, EncoderSize, drawn_encoder
from scripts.benchmarks.tables import conditions, markdown_table

SAMPLES = 4
Times = Mapping[tuple[str, int], tuple[float, float]]
"""Median milliseconds of the length's own program and of the one for all, by form of the model and length."""


def sample(length: int, width: int) -> Array:
    """Embeddings of one text."""
    return np.random.default_rng(length).normal(size=(1, length, width)).astype(np.float32)


def measure(size: EncoderSize, bound: int, lengths: Sequence[int], alternations: int, threads: int) -> Times:
    """Time all programs, those of one form and length in turns. Raises ValueError where bits differ."""
    model = qglow.load_model(drawn_encoder(size).SerializeToString())
    shaped = model.at({"embeddings": (1, bound, size.width)})
    samples = np.concatenate([sample(bound + place, size.width)[:, :bound] for place in range(SAMPLES)])
    announce("int8")
    forms: dict[str, qglow.Model | qglow.QuantizedModel] = {
        "float32": model,
        "int8": model.quantize(model.profile({"embeddings": samples})),
        "dynamic int8": shaped.quantize(dynamic=True),
    }
    times: dict[tuple[str, int], tuple[float, float]] = {}
    for name, form in forms.items():
        announce(name)
        general = form.compile(bounds={"batch": 1, LENGTH: bound}, threads=threads)
        own = form.compile(threads=threads)
        for length in lengths:
            given = {"embeddings": sample(length, size.width)}
            (one,), (other,) = general(given).values(), own(given).values()
            if one.tobytes() != other.tobytes():
                raise ValueError(f"{name}, length {length}: the program for all lengths has other bits")
            contenders: dict[str, Contender] = {
                "own": lambda own=own, given=given: own(given) and None,  # type: ignore[misc]
                "general": lambda general=general, given=given: general(given) and None,  # type: ignore[misc]
            }
            found = bench(contenders, alternations).latencies
            times[name, length] = found["own"].median_ms, found["general"].median_ms
    return times


def to_markdown(times: Times, lengths: Sequence[int], bound: int) -> str:
    """The table of the documentation."""
    forms = list(dict.fromkeys(name for name, _ in times))
    titles = [
        "length",
        *(part for name in forms for part in (f"{name}: own program, ms", "one for all, ms", "ratio")),
    ]
    body = []
    for length in lengths:
        cells = []
        for name in forms:
            own, general = times[name, length]
            cells += [f"{own:.3f}", f"{general:.3f}", f"{general / own:.2f}"]
        body.append((str(length), *cells))
    return f"{markdown_table(titles, body)}\n\nBound {bound}, medians of calls from Python. {conditions()}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    size = EncoderSize(**{f.name: getattr(options, f.name) for f in fields(EncoderSize)})
    lengths = options.lengths or [
        length for length in (8, 16, 32, 64, 96, 128, 192, 256) if length <= options.bound
    ]
    times = measure(size, options.bound, lengths, options.alternations, options.threads)
    return Outcome(to_markdown(times, lengths, options.bound))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bound", type=int, default=256, metavar="N", help="largest length (256)")
    parser.add_argument("--lengths", type=int, nargs="+", metavar="N", help="lengths to measure")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(1)")
    for field in fields(EncoderSize):
        parser.add_argument(
            f"--{field.name}", type=int, default=field.default, metavar="N", help=f"({field.default})"
        )
    add_alternations_option(parser, 30)


BENCHMARK = Benchmark(__doc__, _measure_all, table="lengths", models=None, add_options=_add_options)
