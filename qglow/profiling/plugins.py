"""Kinds of data that other packages bring.

A package declares an entry point of the group `qglow.data_sources`:

    [project.entry-points."qglow.data_sources"]
    waves = "package.module:open_waves"

Data called `waves:REST` is then opened by `open_waves(rest, specs)`, which gives a `SampleSource` for a
model with these inputs. It raises DataError or ValueError if it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from qglow.core.errors import DataError, QglowError, UsageError
from qglow.profiling.samples import InputSpecs
from qglow.profiling.sources import SampleSource

GROUP = "qglow.data_sources"

OpenSource = Callable[[str, InputSpecs], SampleSource]


def open_plugin(data: str, specs: InputSpecs) -> SampleSource | None:
    """The source of `NAME:REST` where a package declares NAME; None if no package does.

    Raises DataError for what the package cannot open, UsageError for a package that cannot be used.
    """
    name, colon, rest = data.partition(":")
    points = entry_points(group=GROUP) if colon else ()
    found = next((point for point in points if point.name == name), None)
    if found is None:
        return None
    where = f"data source '{name}' ({found.value})"
    try:
        opener: OpenSource = found.load()
    except Exception as error:
        raise UsageError(
            f"{where} cannot be loaded: {error}; repair or uninstall the package that brings it"
        ) from error
    try:
        source = opener(rest, specs)
    except QglowError:
        raise
    except Exception as error:
        raise DataError(f"{where} cannot open '{rest}': {error}") from error
    if not isinstance(source, SampleSource):
        given = type(source).__name__
        raise UsageError(f"{where} gives a {given}, not a qglow.profiling.sources.SampleSource")
    return source
