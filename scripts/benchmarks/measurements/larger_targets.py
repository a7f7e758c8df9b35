"""Bundles of larger int8 models in the emulators of other processors, where they fit: bits, counts and sizes.

Models are quantized from random inputs: ranges hardly matter for bits, counts and sizes. Bytes are those of
the outputs that differ from the compiled program's on this host, for three random inputs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import qglow
from qglow.core.types import Array
from scripts.benchmarks.frame import Benchmark, Outcome, announce
from scripts.benchmarks.measurements.targets import TITLES, known_targets, row
from scripts.benchmarks.models.evaluated import ZOO
from scripts.benchmarks.tables import markdown_table

FULL = "does not fit the memory of the board"
SAMPLES = 4
_INPUTS = 3


@dataclass(frozen=True)
class LargerModel:
    """A model of the zoo. most: largest number of an input of integers."""

    name: str
    most: int = 0

    def load(self) -> qglow.Model:
        """The float model."""
        return qglow.load_model(ZOO / "models" / f"{self.name}.onnx")


MODELS = (
    LargerModel("mlperftiny_vww96"),
    LargerModel("mlperftiny_ad01"),
    LargerModel("mobilenetv2_tin202"),
    LargerModel("llama_stories260k", most=511),
)


def _inputs(model: LargerModel, loaded: qglow.Model, count: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(0)
    kinds = loaded.compile().inputs

    def one(kind: qglow.TensorType) -> Array:
        if kind.is_float:
            return random.standard_normal(kind.shape, np.float32)
        return random.integers(0, model.most, kind.shape, kind.element.dtype, endpoint=True)

    return [{name: one(kind) for name, kind in kinds.items()} for _ in range(count)]


def _measure(options: argparse.Namespace) -> Outcome:
    rows: list[tuple[str, ...]] = []
    for model in MODELS:
        if options.models and model.name not in options.models:
            continue
        loaded = model.load()
        given = _inputs(model, loaded, SAMPLES + _INPUTS)
        data = {name: np.concatenate([one[name] for one in given[:SAMPLES]]) for name in given[0]}
        int8 = loaded.quantize(loaded.profile(data), check=False, repair=False)
        for target in options.targets or known_targets():
            announce(model.name, target)
            try:
                rows.append(row(model, int8, given[SAMPLES:], target))
            except qglow.ArtefactError as error:
                reason = FULL if "does not link" in str(error) else str(error)
                rows.append((model.name, target, reason, "", "", "", ""))
    wrong = [f"{name} on {target}: {found}" for name, target, found, *_ in rows if found not in ("0", FULL)]
    return Outcome(markdown_table(TITLES, rows), failures=wrong)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--targets", nargs="+", default=[], metavar="TARGET")


BENCHMARK = Benchmark(__doc__, _measure, table="larger targets", models=(), add_options=_add_options)
