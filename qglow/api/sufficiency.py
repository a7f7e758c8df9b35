"""How many calibration samples a model needs."""

from __future__ import annotations

import json
from pathlib import Path

from qglow.api.data import Data, Progress, open_samples, start
from qglow.api.model import Model
from qglow.core.errors import UsageError
from qglow.core.files import write_atomically
from qglow.core.version import __version__
from qglow.graph.graph import Graph
from qglow.profiling.shards import profile_shards
from qglow.quantization.options import QuantizationOptions
from qglow.recipe.schema import Recipe
from qglow.report.plain import to_plain
from qglow.report.sufficiency import RESAMPLES, TOLERANCE, SufficiencyReport, sufficiency
from qglow.toolchain import CompiledEngine, CompileOptions


def calibration_sufficiency(
    model: Model,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    tolerance: float = TOLERANCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SufficiencyReport:
    """How every int8 value's scale depends on the number of calibration samples; data is read once.

    Scales over nested subsets, each twice the one before, and their 95 % interval over `resamples`
    resamples (bootstrap) drawn with `seed`. tolerance: how much a scale may move, relative. recipe: the
    choices that scales come from (calibration, schema, rules), preprocessing and names of arrays. Other
    options as for `Model.profile`.

    Raises DataError for data that does not fit or is less than two runs, UsageError for wrong options and
    for a model that is quantized already.
    """
    if model.is_quantized:
        raise UsageError(f"{model.path} is quantized already: no data calibrates it")
    chosen = recipe or Recipe()

    def graph_for_batch(batch: int) -> Graph:
        return model.with_batch(batch).graph

    engine = CompiledEngine(graph_for_batch, CompileOptions(isa=isa, threads=threads))
    opened = open_samples(data, model.inputs, recipe=chosen, select=select, samples=samples)
    advance = start(progress, opened.size)
    batch, graph = model.batch_size, model.graph
    sharded = profile_shards(graph, opened, engine, batch_size=batch, size=opened.size, advance=advance)
    options = QuantizationOptions.of(chosen)
    return sufficiency(graph, sharded, options, tolerance=tolerance, resamples=resamples, seed=seed)


def save_sufficiency(report: SufficiencyReport, path: str | Path) -> None:
    """Write the figures as JSON with the verdict, whole or not at all. Raises InputFileError."""
    content = {
        "qglow": __version__,
        **to_plain(report),
        "verdict": report.verdict(),
        "enough": report.enough(),
        "moving": [value.value for value in report.moving()],
    }
    write_atomically(Path(path), json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
