"""Bundles of int8 models for other processors, in their emulators: differing bytes, instructions and sizes.

Models are quantized from a few samples and given others of them. Bytes are those of the outputs that differ
from the compiled program's on this host. Instructions are those of one call on zeros; they are counted
exactly, and say nothing of the time of each. Bundles for x86-64 run on this host, which does not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import qglow
from qglow.core.types import Array
from qglow.emulation.machines import EMULATORS
from qglow.targets.registry import find_target
from scripts.benchmarks.frame import Benchmark, Named, Outcome
from scripts.benchmarks.models.evaluated import chosen_models
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.tables import markdown_table

TITLES = ("model", "target", "differing bytes", "instructions a call", "code, kB", "weights, kB", "arena, kB")
WASM = ("wasm32", "wasm32-simd128")
X86 = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-vnni", "x86-64-amx")
_INPUTS = 3


def row(
    model: Named, int8: qglow.QuantizedModel, inputs: Sequence[dict[str, Array]], target: str
) -> tuple[str, ...]:
    """Figures of one model on one target."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "bundle"
        int8.save_bundle(made, isa=target)
        bundle, program = qglow.load_bundle(made), int8.compile()
        differing = sum(_differing(bundle(given), program(given)) for given in inputs)
        counted, known = "not counted" if target in X86 else f"{bundle.instructions():,}", bundle.manifest
        sizes = (f"{size / 1000:.1f}" for size in (known.code_bytes, known.weights_bytes, known.arena_bytes))
    return model.name, target, f"{differing}", counted, *sizes


def known_targets() -> list[str]:
    """Targets of bundles that run here, in emulators or on this processor."""
    return [*EMULATORS, *WASM, *(name for name in X86 if find_target(name).refusal() is None)]


def _differing(found: dict[str, Array], wanted: dict[str, Array]) -> int:
    return sum(
        int(np.count_nonzero(np.ascontiguousarray(found[name]).view(np.uint8) != wanted[name].view(np.uint8)))
        for name in wanted
    )


def _inputs(int8: qglow.QuantizedModel) -> list[dict[str, Array]]:
    random = np.random.default_rng(0)
    kinds = int8.compile().inputs
    return [
        {name: random.standard_normal(kind.shape, np.float32) for name, kind in kinds.items()}
        for _ in range(_INPUTS)
    ]


def _measure(options: argparse.Namespace) -> Outcome:
    rows = []
    for model in chosen_models(options.models, MODELS):
        int8 = model.quantize_for_timing(model.load())
        inputs = _inputs(int8)
        rows += [row(model, int8, inputs, target) for target in options.targets]
    wrong = [
        f"{name} on {target}: {bytes_} bytes differ" for name, target, bytes_, *_ in rows if bytes_ != "0"
    ]
    return Outcome(markdown_table(TITLES, rows), failures=wrong)


def _add_options(parser: argparse.ArgumentParser) -> None:
    known = known_targets()
    parser.add_argument("--targets", nargs="+", default=known, choices=known, metavar="TARGET")


BENCHMARK = Benchmark(__doc__, _measure, table="targets", models=("digits",), add_options=_add_options)
