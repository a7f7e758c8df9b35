"""File of the nodes that are already rounded, so that interrupted rounding can go on."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.errors import InputFileError
from qglow.core.files import atomic_writer
from qglow.core.reading import MALFORMED, load_arrays, parse_json
from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX

FORMAT = "qglow rounding"
VERSION = 1
SECONDS_BETWEEN_WRITES = 10.0
"""Least time between writes: each one has all finished weights, too much to repeat for every small layer."""


@dataclass(frozen=True)
class Rounded:
    """Rounded parameters of a node: int8 weights and int32 bias, float32 of a product that measures its rows.

    axis: of the output channels. learned: whether the weights were learned by gradients, and not only rounded
    with error feedback.
    """

    weights: Array
    bias: Array
    axis: int
    description: str
    learned: bool


@dataclass
class RoundingState:
    """Rounded parameters by name of the node, kept in the file `path` if there is one.

    about: all that the results depend on, by name: digests of model and data, and choices.
    """

    path: Path | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    results: dict[str, Rounded] = field(default_factory=dict)
    _written: float = field(default_factory=time.monotonic)

    def add(self, name: str, result: Rounded) -> None:
        """Keep a result; write the file if its last write is `SECONDS_BETWEEN_WRITES` or more ago."""
        self.results[name] = result
        if time.monotonic() - self._written >= SECONDS_BETWEEN_WRITES:
            self.save()

    def save(self) -> None:
        """Write the file atomically, if there is a path. Raises InputFileError if it cannot be written."""
        if self.path is None:
            return
        names = list(self.results)
        nodes = [
            {"name": name, "axis": r.axis, "description": r.description, "learned": r.learned}
            for name, r in self.results.items()
        ]
        head = {"format": FORMAT, "version": VERSION, "about": dict(self.about), "nodes": nodes}
        arrays = {"head": np.frombuffer(json.dumps(head).encode(), np.uint8)}
        for index, name in enumerate(names):
            arrays[f"weights {index}"] = self.results[name].weights
            arrays[f"bias {index}"] = self.results[name].bias
        with atomic_writer(self.path) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]  # its stub takes names for allow_pickle
        self._written = time.monotonic()


def load_rounding(path: Path, about: Mapping[str, str]) -> RoundingState:
    """Return the state in a file, or a new one where there is no file.

    Raises InputFileError for a file that is damaged, or whose results depend on something else than `about`.
    """
    try:
        found, results = _parsed(load_arrays(path))
    except FileNotFoundError:
        return RoundingState(path, about)
    except OSError as error:
        raise InputFileError(f"cannot read the state {path}: {error}") from error
    except (*MALFORMED, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"{path} is not a state of rounding, or damaged: remove it") from error
    different = [name for name in about if found.get(name) != about[name]]
    if different:
        raise InputFileError(
            f"{path} is of the rounding with another {different[0]}; remove it, or name another file "
            "(`rounding_state`)"
        )
    return RoundingState(path, about, results)


def _parsed(arrays: Mapping[str, Array]) -> tuple[dict[str, str], dict[str, Rounded]]:
    head: dict[str, Any] = parse_json(arrays["head"].tobytes())
    if head["format"] != FORMAT or head["version"] != VERSION:
        raise ValueError(f"format {head['format']!r}, version {head['version']!r}")
    results = {}
    for index, node in enumerate(head["nodes"]):
        weights, bias = arrays[f"weights {index}"], arrays[f"bias {index}"]
        if (
            weights.dtype != np.int8
            or bias.dtype not in (np.int32, np.float32)
            or np.any(weights < -WEIGHT_MAX)
        ):
            raise ValueError("weights that no rounding gives")
        results[str(node["name"])] = Rounded(
            weights, bias, int(node["axis"]), str(node["description"]), bool(node["learned"])
        )
    return {str(name): str(value) for name, value in head["about"].items()}, results
