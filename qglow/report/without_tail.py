"""The files of a model without its tail, or without inputs that became constants, for other runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from qglow.core.errors import UsageError
from qglow.core.model_place import ModelPlace, file_or_bytes
from qglow.core.types import Given
from qglow.graph.graph import Graph
from qglow.report.parts import QuantizedParts, float_model, source_place
from qglow.toolchain.loaded import LoadedModel


def float_file(parts: QuantizedParts) -> Path | bytes:
    """The float model, up to what a tail reads where there is one, without inputs that became constants.

    Raises ModelError if the file is missing or has changed.
    """
    place, values = source_place(parts), parts.source.values
    if parts.int8.tail is None and not values:
        return file_or_bytes(place)
    names = [value.name for value in parts.int8.outputs]
    return _part(place, names, values, lambda: float_model(parts).graph)


def loaded_file(model: LoadedModel) -> Path | bytes:
    """The file of a model, without inputs that became constants."""
    if not model.values:
        return file_or_bytes(model.place)
    return _part(model.place, list(model.outputs), model.values, lambda: model.graph)


def _part(
    place: ModelPlace, names: Sequence[str], values: Mapping[str, Given], graph: Callable[[], Graph]
) -> bytes:
    """The part of a file that gives these outputs for these values of inputs."""
    from qglow.exporter import export_float, serialized
    from qglow.importer import part_of_file

    try:
        part = part_of_file(place, names, values)
    except UsageError:  # a name from a body, or one that was given for the tail, is in no file
        whole = graph().copy()
        whole.tail = None
        part = export_float(whole)
    return serialized(part)


def qdq_file(parts: QuantizedParts) -> bytes:
    """The model as `QuantizedParts.qdq_model` gives it, without a tail."""
    from qglow.exporter import export_qdq, serialized

    graph = parts.int8
    if graph.tail is not None:
        graph = graph.copy()
        graph.tail = None
    return serialized(export_qdq(graph, None, parts.activations(None)))
