"""Models as PyTorch and transformers export them: do they load, agree in float, and hold up in int8?

    python -m scripts.exports FOLDER        (with the extra `exports`)
    python -m scripts.benchmarks exports --folder FOLDER

Models whose names end in _dynamo are by the newer exporter, the others by TorchScript's. What is measured is
what the benchmark `wild` measures. Exits with 1 for a model that is refused, for float that differs by more
than 1e-3 of an output's largest element, and for a verdict "broken".
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qglow.core.errors import InputFileError, UnsupportedError
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option
from scripts.benchmarks.measurements.wild import WildRow, measure, to_markdown
from scripts.benchmarks.models.wild import wild_names


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows: list[WildRow] = []
    failures: list[str] = []
    names = wild_names(options.folder)
    if not names:
        raise InputFileError(f"{options.folder} has no models; python -m scripts.exports writes them")
    for name in names:
        try:
            rows.append(measure(name, options.alternations, options.folder))
        except UnsupportedError as error:
            failures.append(f"{name}: refused: {str(error).splitlines()[0]}")
    failures += [failure for row in rows for failure in row.failures]
    return Outcome(to_markdown(rows), failures=failures)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_alternations_option(parser, 15)
    parser.add_argument("--folder", type=Path, required=True, help="folder that scripts.exports has written")


BENCHMARK = Benchmark(__doc__, _measure_all, table="exports", models=None, add_options=_add_options)
