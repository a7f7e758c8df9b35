"""Roundings of weights in blocks for a language model: next tokens, SQNR and what making them takes.

The model is the llama over stories. All but the nearest and hqq look at 64 stories; those after them are
evaluated. Seconds are processor time of quantizing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import qglow
from qglow.tuning.reconstruction import WITHOUT_SAMPLES
from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.measurements.weights import bits_in_blocks, row, scores
from scripts.benchmarks.models.sequences import stories
from scripts.benchmarks.tables import markdown_table

FORMATS = ("int4:16:float16", "int4:float16", "int4:32:symmetric:float16", "int4:128:float16", "int2:16")
ROUNDINGS = ("nearest", "hqq", "awq", "gptq", "awq-gptq")
TITLES = ("weights", "rounding", "bits a weight", "next tokens as in float32", "SQNR", "top-1", "s")
_STORIES = 128


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows = []
    with TemporaryDirectory() as folder:
        story = stories(Path(folder))
        calibration = Path(folder) / "calibration.npz"
        with np.load(Path(folder) / "evaluation.npz") as arrays:
            tokens = arrays["tokens"][:_STORIES]
        model = qglow.load_model(story.path, story.shapes or {})
        real = scores(model.compile(), tokens)
        for chosen in FORMATS:
            for rounding in ROUNDINGS:
                begun = time.process_time()
                samples = None if rounding in WITHOUT_SAMPLES else calibration
                made = model.quantize(weights=chosen, rounding=rounding, calibration_data=samples)
                seconds = time.process_time() - begun
                found = scores(made.compile(), tokens)
                _, bits, _, *figures = row("", bits_in_blocks(made.graph), 0, found, real, tokens)
                rows.append((f"`{chosen}`", rounding, bits, *figures, f"{seconds:.1f}"))
    return Outcome(markdown_table(TITLES, rows))


BENCHMARK = Benchmark(__doc__, _measure_all, table="roundings", models=None)
