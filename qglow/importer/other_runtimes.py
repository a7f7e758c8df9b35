"""Facts of a model's file that other runtimes go by, and qglow does not."""

from __future__ import annotations

from qglow.core.model_place import ModelPlace
from qglow.importer.blocks import rounds_rows
from qglow.importer.cache_sizes import window_places
from qglow.importer.loading import load
from qglow.interchange.nodes import all_nodes


def places_of_windows(place: ModelPlace) -> dict[str, int]:
    """Places of sliding windows by the caches that onnxruntime wants to have as many at least."""
    return window_places(load(place).nodes)


def rounded_products(place: ModelPlace) -> int:
    """Count the products whose rows a runtime may round to int8."""
    return sum(map(rounds_rows, all_nodes(load(place).nodes)))
