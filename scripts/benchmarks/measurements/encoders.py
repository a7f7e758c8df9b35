"""Latency of an encoder of texts beside onnxruntime and OpenVINO, one thread, one text, in turns.

The encoder has the sizes of BERT-base and drawn weights, on embeddings: only its speed means something.
qglow runs it in float32, with dynamic int8, in int8 at default settings, and with scores of attention in int8
too; onnxruntime in float32 and as its own tool quantizes it dynamically; OpenVINO in float32 and in int8 as
NNCF quantizes transformers, scores included. Times are processor time of the calling thread, on which all of
them compute.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import qglow
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.report.bench import bench
from qglow.report.contenders import of_executable, of_onnxruntime, of_openvino
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, announce
from scripts.benchmarks.models.encoders import EncoderSize, drawn_encoder
from scripts.benchmarks.rivals.decoders import with_dynamic_int8
from scripts.benchmarks.tables import conditions, markdown_table

BASE = EncoderSize(layers=12, width=768, heads=12, inner=3072)
"""Sizes of BERT-base."""
SAMPLES = 4
SCORES_TOO = qglow.Recipe(rules=(qglow.Rule(qglow.Match(role="scores"), dtype="int8"),))
CALIBRATED = 64
"""Tokens of the texts that static quantization sees."""
Times = Mapping[int, Mapping[str, float]]
"""Median milliseconds by length and program."""


def texts(length: int, width: int, count: int = 1) -> Array:
    """Embeddings of some texts."""
    return np.random.default_rng(length).normal(size=(count, length, width)).astype(np.float32)


def by_nncf(path: Path, samples: Array, folder: Path) -> Path:
    """The model in int8 as NNCF quantizes transformers, for OpenVINO.

    Raises UsageError where OpenVINO or NNCF is not installed.
    """
    if importlib.util.find_spec("openvino") is None or importlib.util.find_spec("nncf") is None:
        raise UsageError('OpenVINO and NNCF are not installed: pip install "qglow[bench]"')
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):  # it shows its progress
        made: Any = nncf.quantize(
            openvino.Core().read_model(str(path)),
            nncf.Dataset([{"embeddings": sample[None]} for sample in samples]),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(samples),
        )
    written = folder / "nncf.xml"
    openvino.save_model(made, written, compress_to_fp16=False)
    return written


def measure(size: EncoderSize, lengths: Sequence[int], alternations: int, openvino: bool = True) -> Times:
    """Time all programs, those of one length in turns. openvino: whether its programs are among them."""
    samples = texts(CALIBRATED, size.width, SAMPLES)
    times: dict[int, Mapping[str, float]] = {}
    with TemporaryDirectory(prefix="qglow-encoders-") as name:
        folder, path = Path(name), Path(name) / "encoder.onnx"
        path.write_bytes(drawn_encoder(size).SerializeToString())
        model = qglow.load_model(path)
        announce("other tools")
        own = with_dynamic_int8(path, folder)
        other = by_nncf(path, samples, folder) if openvino else None
        for length in lengths:
            announce(f"{length} tokens")
            given = {"embeddings": texts(length, size.width)}
            shapes = {"embeddings": (1, length, size.width)}
            shaped = model.at(shapes)
            profile = shaped.profile({"embeddings": texts(length, size.width, SAMPLES)})
            programs: dict[str, qglow.Model | qglow.QuantizedModel] = {
                "qglow float32": shaped,
                "qglow `dynamic`": shaped.quantize(dynamic=True),
                "qglow int8": shaped.quantize(profile),
                "qglow int8, scores too": shaped.quantize(profile, SCORES_TOO),
            }
            contenders = {n: of_executable(p.compile(threads=1), given) for n, p in programs.items()}
            contenders["ORT float32"] = of_onnxruntime(path, given)
            contenders["ORT dynamic int8"] = of_onnxruntime(own, given)
            if other is not None:
                contenders["OpenVINO float32"] = of_openvino(path, given)
                contenders["OpenVINO int8"] = of_openvino(other, given)
            found = bench(contenders, alternations, warmup=1, clock=time.thread_time_ns).latencies
            times[length] = {n: one.median_ms for n, one in found.items()}
    return times


def to_markdown(times: Times) -> str:
    """The table of the documentation: a row for each program, lengths in columns."""
    names = list(next(iter(times.values())))
    rows = [(name, *(f"{found[name]:.1f}" for found in times.values())) for name in names]
    titles = ("program", *(f"{length} tokens, ms" for length in times))
    return f"{markdown_table(titles, rows)}\n\nMedians. {conditions()}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    size = EncoderSize(**{f.name: getattr(options, f.name) for f in fields(EncoderSize)})
    return Outcome(to_markdown(measure(size, options.lengths, options.alternations, not options.no_openvino)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512], metavar="N")
    parser.add_argument("--no-openvino", action="store_true", help="without OpenVINO (extra bench)")
    for field in fields(EncoderSize):
        default = getattr(BASE, field.name)
        parser.add_argument(f"--{field.name}", type=int, default=default, metavar="N", help=f"({default})")
    add_alternations_option(parser, 9)


BENCHMARK = Benchmark(__doc__, _measure_all, table="encoders", models=None, add_options=_add_options)
