"""Cost of weights in 8, 4 or 2 bits for a language model: next tokens, SQNR and size.

The model is the llama over stories. Nothing calibrates it, but for `gptq`, which rounds by the inputs of
layers over 64 other stories, and for mixed formats, which are chosen over eight of these. Rows of
onnxruntime are its own tool's, run by it; those whose packages are missing are left out. Agreement counts the
positions whose likeliest token is that of float32; top-1 those where it is the next one of the story.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.ops.blocks import BlockGather
from qglow.graph.rewriting import operand
from qglow.report.metrics import sqnr_db
from scripts.benchmarks.frame import Benchmark, Outcome, announce
from scripts.benchmarks.models.sequences import stories
from scripts.benchmarks.rivals.nbits import TOOLS, bits_of, constant_bytes, in_blocks, scores_of
from scripts.benchmarks.tables import markdown_table

FORMATS = (
    *("int8", "int8:32:symmetric", "int8:32:symmetric:float16", "int4:16", "int4:16:float16", "int4"),
    *("int4:float16", "int4:32:symmetric", "int4:32:symmetric:float16", "int4:128", "int2:16"),
)
DYNAMIC = ("int8", "int4", "int4:128")
LEARNED = (
    *("int4:16", "int4:16:float16", "int4", "int4:float16", "int4:32:symmetric", "int4:32:symmetric:float16"),
    *("int4:128", "int2:16"),
)
TABLES_TOO = ("int4:128:float16", "int4:float16", "int4:16:float16")
MIXED = ("4.5bits", "5bits", "5.5bits", "6bits")
TITLES = ("weights", "bits a weight", "MB", "next tokens as in float32", "SQNR", "top-1")
_STORIES = 128


def scores(program: qglow.Executable, tokens: Array) -> Array:
    """Scores [stories, positions, words] of the next token, for tokens [stories, positions]."""
    (name,) = program.inputs
    return np.concatenate([next(iter(program({name: row[None]}).values())) for row in tokens])


def bits_in_blocks(graph: Graph) -> float:
    """Bits for each weight in blocks, scales and zero points included; 32 where there are none."""
    stored = weights = 0
    for node in graph.nodes:
        form = node.operator.weight_blocks
        if form is None and not isinstance(node.operator, BlockGather):
            continue
        names = ("w" if form is not None else "table", "scales", "zero_points")
        constants = [value for name in names if (value := node.operand(name)) is not None]
        stored += sum(value.type.byte_size for value in constants)
        depth = operand(node).type.shape[-1] if form is not None else node.output.type.shape[-1]
        weights += depth * constants[1].type.shape[1 if form is not None else 0]
    return 8.0 * stored / weights if weights else 32.0


def row(name: str, bits: float, size: int, found: Array, real: Array, tokens: Array) -> tuple[str, ...]:
    """Figures of scores `found` where float32 gives `real`. size: bytes of the weights."""
    likeliest = found.argmax(-1)
    error = found.astype(np.float64) - real
    sqnr = sqnr_db(float(np.square(real, dtype=np.float64).sum()), float(np.square(error).sum()))
    return (
        name,
        f"{bits:.2f}",
        f"{size / 1e6:.2f}",
        f"{np.mean(likeliest == real.argmax(-1)):.1%}",
        f"{sqnr:.1f} dB" if np.isfinite(sqnr) else "",
        f"{np.mean(likeliest[:, :-1] == tokens[:, 1:]):.2%}",
    )


def measure(
    path: Path, shapes: Mapping[str, Sequence[int]], tokens: Array, calibration: Path
) -> list[tuple[str, ...]]:
    """A row for float32, one for each of `FORMATS`, of `DYNAMIC` with int8 rows, of `LEARNED` with gptq.

    Then one for each of `TABLES_TOO`, with gptq and tables of words in blocks, as mixed formats have; and
    two for each of `MIXED`, formats of layers by sensitivity: to the nearest, and with gptq.
    """
    model = qglow.load_model(path, shapes)
    real = scores(model.compile(), tokens)
    rows: list[tuple[str, ...]] = []

    def add(name: str, **options: Any) -> None:
        quantized = model.quantize(**options)
        assert quantized.report is not None
        if not rows:
            rows.append(row("float32", 32.0, quantized.report.weight_bytes_before, real, real, tokens))
        bits, size = bits_in_blocks(quantized.graph), quantized.report.weight_bytes_after
        rows.append(row(name, bits, size, scores(quantized.compile(), tokens), real, tokens))

    for name in FORMATS:
        add(f"`{name}`", weights=name)
    for name in DYNAMIC:
        add(f"`{name}`, dynamic", weights=name, dynamic=True)
    for name in LEARNED:
        add(f"`{name}`, gptq", weights=name, rounding="gptq", calibration_data=calibration)
    for name in TABLES_TOO:
        form = qglow.Recipe().with_overrides(weights=name).weights
        tables = qglow.Rule(qglow.Match(operator="Gather"), weights=form)
        recipe = qglow.Recipe(weights=form, rules=(tables,), rounding="gptq")
        add(f"`{name}`, tables too, gptq", recipe=recipe, calibration_data=calibration)
    for wanted in MIXED:
        mix = qglow.mix_weights(model, calibration, wanted)
        for rounding, title in (("nearest", ""), ("gptq", ", gptq")):
            options = {"recipe": mix.recipe, "rounding": rounding, "calibration_data": calibration}
            add(f"mixed, {wanted}{title}", **options)
    return [*rows, *rivals(path, shapes, tokens, calibration, real)]


def rivals(
    path: Path, shapes: Mapping[str, Sequence[int]], tokens: Array, calibration: Path, real: Array
) -> list[tuple[str, ...]]:
    """A row for each tool of onnxruntime's; real: scores in float32."""
    ((given, shape),) = shapes.items()
    with np.load(calibration) as arrays:
        samples = arrays[given]
    rows = []
    for tool in TOOLS:
        try:
            made = in_blocks(path, tuple(shape), samples, tool)
        except ImportError as error:
            announce(f"onnxruntime, {tool}: {error}")
            continue
        found = scores_of(made, tokens)
        name = f"onnxruntime, {tool}"
        rows.append(row(name, bits_of(made), constant_bytes(made), found, real, tokens))
    return rows


def _measure_all(options: argparse.Namespace) -> Outcome:
    with TemporaryDirectory() as folder:
        model = stories(Path(folder))
        with np.load(Path(folder) / "evaluation.npz") as arrays:
            tokens = arrays["tokens"][:_STORIES]
        rows = measure(model.path, model.shapes or {}, tokens, Path(folder) / "calibration.npz")
    return Outcome(markdown_table(TITLES, rows))


BENCHMARK = Benchmark(__doc__, _measure_all, table="weights", models=None)
