"""Nodes in onnxruntime, as commands that run an int8 model tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.cli.output import note, say
from qglow.core.errors import DataError

if TYPE_CHECKING:
    from qglow.api import QuantizedModel
    from qglow.api.options import RunOptions


def tell_hosted(model: QuantizedModel, running: RunOptions) -> None:
    """Print how many nodes run in onnxruntime, and their measured share of the time; nothing without any.

    Reports in files leave it out: the same inputs give the same bytes there.
    """
    from qglow.api.evaluation import bench_hosted

    try:
        time = bench_hosted(model, isa=running.isa, threads=running.threads)
    except DataError as error:
        note(f"the time in onnxruntime is not measured: {error}")
        return
    if time is not None:
        say(f"{time}, measured on random inputs")
