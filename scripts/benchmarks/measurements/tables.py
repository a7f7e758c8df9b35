"""Lists the measured tables of the documentation: the benchmark that writes each, and the page it is in.

A table stands between two comments that name it; the option --update-docs of its benchmark replaces it.
Exits with 1, and a line for each, where a table has no place in any page.
"""

from __future__ import annotations

import argparse

from qglow.core.errors import InputFileError
from scripts.benchmarks.catalogue import ENTRIES
from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.tables import REPOSITORY, markdown_table, page_of


def _listed(options: argparse.Namespace) -> Outcome:
    rows, failures = [], []
    for entry in ENTRIES:
        table = entry.load().table
        if table is None:
            continue
        try:
            rows.append((table, entry.name, str(page_of(table).relative_to(REPOSITORY))))
        except InputFileError as error:
            failures.append(str(error))
    return Outcome(markdown_table(("table", "benchmark", "page"), rows), failures=failures)


BENCHMARK = Benchmark(__doc__, _listed, models=None)
