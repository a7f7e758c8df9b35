"""The files of a model without its tail, for runners that are compared with the graph alone."""

from __future__ import annotations

from pathlib import Path

from qglow.core.errors import UsageError
from qglow.core.model_place import file_or_bytes
from qglow.report.parts import QuantizedParts, float_model, source_place


def float_file(parts: QuantizedParts) -> Path | bytes:
    """The float model, up to what a tail reads where there is one, without inputs that became constants.

    Raises ModelError if the file is missing or has changed.
    """
    from qglow.exporter import export_float, serialized
    from qglow.importer import part_of_file

    place = source_place(parts)
    values = parts.source.values
    if parts.int8.tail is None and not values:
        return file_or_bytes(place)
    names = [value.name for value in parts.int8.outputs]
    try:
        part = part_of_file(place, names, values)
    except UsageError:  # a name from a body, or one that was given for the tail, is in no file
        graph = float_model(parts).graph.copy()
        graph.tail = None
        part = export_float(graph)
    return serialized(part)


def qdq_file(parts: QuantizedParts) -> bytes:
    """The model as `QuantizedParts.qdq_model` gives it, without a tail."""
    from qglow.exporter import export_qdq, serialized

    graph = parts.int8
    if graph.tail is not None:
        graph = graph.copy()
        graph.tail = None
    return serialized(export_qdq(graph, None, parts.activations(None)))
