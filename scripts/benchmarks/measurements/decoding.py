"""Tokens per second and memory of a decoder with its cache: qglow and onnxruntime, in turns.

The model is a Llama with drawn weights, of 110 million parameters if nothing else is asked for, or the one of
--file. Each program reads --prefill tokens, then --decode others one by one. qglow runs it in float32, with
dynamic int8, with weights of 8 and 4 bits, and with the latter by dynamic int8; onnxruntime the same file,
that file with its own dynamic quantization, and with weights in 4 bits as MatMulNBits, whose activations it
rounds to int8 (level 4). With --openvino OpenVINO runs it with weights in float32, and in 8 and 4 bits as
NNCF compresses them, all with float activations. On one thread times are its processor time, in which other
processes do not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

import qglow
from qglow.core.types import Shape
from qglow.counts import parse_count
from qglow.generation import Generator, find_roles
from qglow.report.decoding import Decoder, DecodingResult, OnnxruntimeDecoder, measure_decoding
from scripts.benchmarks.frame import Benchmark, Outcome, announce
from scripts.benchmarks.rivals.decoders import weights_of_4_bits, with_dynamic_int8
from scripts.benchmarks.rivals.openvino_decoders import Weights, openvino_decoder
from scripts.benchmarks.tables import markdown_table
from scripts.random_llama import LlamaSize, random_llama

TITLES = ("program", "prefill, tokens/s", "decode, tokens/s", "memory, MB")
_LENGTH = 8
"""Tokens, and those before them, of the shapes that a model is quantized for."""


def own_shapes(model: qglow.Model) -> dict[str, Shape]:
    """Shapes of the inputs of a decoder for a few tokens."""
    roles = find_roles(model.dimensions)
    sizes = {name: _LENGTH for name in (roles.new, roles.past) if name is not None}
    shapes: dict[str, Shape] = {}
    for name, dimensions in model.dimensions.items():
        shape = []
        for dimension in dimensions or ():
            count = None if dimension is None or isinstance(dimension, int) else parse_count(dimension, sizes)
            if isinstance(dimension, int):
                shape.append(dimension)
            elif dimension == roles.total:
                shape.append(2 * _LENGTH)
            else:
                shape.append(1 if count is None else count.at(sizes))
        shapes[name] = tuple(shape)
    return shapes


def measure(
    path: Path,
    folder: Path,
    prefill: int,
    decode: int,
    texts: int,
    threads: int,
    piece: int,
    openvino: bool = False,
) -> DecodingResult:
    """Measure all programs over one file. folder: takes the models that are made of it.

    openvino: whether OpenVINO's programs are among them.
    """
    model = qglow.load_model(path)
    bound = qglow.load_model(path, own_shapes(model))
    roles = find_roles(model.dimensions)
    made: list[Generator] = []

    def ready(source: qglow.Model | qglow.QuantizedModel) -> Generator:
        context = max(prefill + decode, _LENGTH)
        made.append(qglow.load_generator(source, context=context, piece=piece, threads=threads))
        return made[-1]

    def rival(file: Path) -> OnnxruntimeDecoder:
        return OnnxruntimeDecoder(file, made[0].states, made[0].scores, roles.arrays, threads)

    def other(weights: Weights) -> Decoder:
        return openvino_decoder(path, weights, made[0].states, made[0].scores, roles.arrays, threads)

    programs: Mapping[str, Callable[[], Decoder]] = {
        "qglow float32": lambda: ready(model),
        "onnxruntime float32": lambda: rival(path),
        "OpenVINO float32": lambda: other("float32"),
        "qglow `int8` weights": lambda: ready(bound.quantize(weights="int8")),
        "OpenVINO int8 weights": lambda: other("int8"),
        "qglow `int4` weights": lambda: ready(bound.quantize(weights="int4")),
        "OpenVINO 4-bit weights": lambda: other("int4"),
        "qglow `int4` weights, `dynamic`": lambda: ready(bound.quantize(weights="int4", dynamic=True)),
        "onnxruntime MatMulNBits, 4 bits": lambda: rival(weights_of_4_bits(path, folder)),
        "qglow `dynamic`": lambda: ready(bound.quantize(dynamic=True)),
        "onnxruntime dynamic int8": lambda: rival(with_dynamic_int8(path, folder)),
    }

    if not openvino:
        programs = {name: make for name, make in programs.items() if not name.startswith("OpenVINO")}

    def drawn() -> list[int]:
        random = np.random.default_rng(0)
        return [int(token) for token in random.integers(0, made[0].vocabulary, prefill + decode)]

    # What other processes do takes time, but no processor time of the one thread.
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    return measure_decoding(programs, drawn, prefill, texts, threads=threads, clock=clock)


def rows(result: DecodingResult) -> list[tuple[str, ...]]:
    """A row for each program."""
    return [
        (name, f"{speed.prefill:.0f}", f"{speed.decode:.1f}", f"{speed.memory / 1e6:.0f}")
        for name, speed in result.speeds.items()
    ]


def _measure_all(options: argparse.Namespace) -> Outcome:
    with TemporaryDirectory(prefix="qglow-decoding-") as name:
        folder = Path(name)
        path = options.file
        if path is None:
            path = folder / "llama.onnx"
            announce("the model")
            onnx.save(
                random_llama(LlamaSize(**{f.name: getattr(options, f.name) for f in fields(LlamaSize)})), path
            )
        announce("its programs")
        sizes = (options.prefill, options.decode, options.texts, options.threads, options.piece)
        result = measure(path, folder, *sizes, options.openvino)
    return Outcome(markdown_table(TITLES, rows(result)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", type=Path, metavar="FILE", help="a decoder instead of the drawn one")
    parser.add_argument("--openvino", action="store_true", help="OpenVINO's programs too (extra bench)")
    for name, default in (("prefill", 128), ("decode", 64), ("texts", 5), ("threads", 1), ("piece", 64)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"({default})")
    for field in fields(LlamaSize):
        shown = f"of the drawn model ({field.default})"
        parser.add_argument(f"--{field.name}", type=int, default=field.default, metavar="N", help=shown)


BENCHMARK = Benchmark(__doc__, _measure_all, table="decoding", models=None, add_options=_add_options)
