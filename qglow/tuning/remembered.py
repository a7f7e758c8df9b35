"""Answers that samples gave, kept between processes by a digest of everything that they depend on.

Repair and the self-check run a model over samples, to come to a few kilobytes of answers, the same for the
same content. They are kept in the user's own cache, like compiled code, and found only by equal
graphs, statistics, samples, recipes, sources of qglow and processors; an entry that is damaged is none.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from qglow.codegen.cache import ObjectCache, compiler_version, default_folder
from qglow.codegen.host import host_cpu
from qglow.core.files import sha256_hex
from qglow.core.reading import MALFORMED, parse_json
from qglow.core.types import Array
from qglow.display.plain import from_plain, to_plain
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph, nested
from qglow.graph.text import print_graph
from qglow.host.libraries import loaded_libraries
from qglow.profiling.samples import Sample
from qglow.targets.registry import select_target
from qglow.toolchain import CompileOptions

ENVIRONMENT_VARIABLE = "QGLOW_REMEMBER"
_OFF = ("0", "no", "off", "false")
_OWN = __name__.partition(".")[0]
_MOSTLY_ZEROS = 1 << 12
"""Elements from which on an array of integers may be a histogram."""
T = TypeVar("T")


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


@dataclass(frozen=True)
class Remembered:
    """Answers of one kind, such as "repairs", under one key; without a place nothing is found or kept."""

    place: ObjectCache | None
    key: str

    @staticmethod
    def of(what: str, graphs: Sequence[Graph], facts: Sequence[Any], options: CompileOptions) -> Remembered:
        """The answers of this kind for graphs and facts: arrays, dataclasses and containers of them.

        There is no place where the options leave the cache out, where `ENVIRONMENT_VARIABLE` says so, and
        where a target or an operator is of another package, or of a library that was given to onnxruntime,
        whose sources the key does not cover.
        """
        target = select_target(options.isa)
        named = os.environ.get(ENVIRONMENT_VARIABLE, "").strip().lower()
        foreign = [each for each in (target, *_operators(graphs)) if not _is_own(each)]
        if not options.cache or named in _OFF or foreign or loaded_libraries():
            return Remembered(None, "")
        state = hashlib.sha256()
        _feed(state, (what, _version(), target.description, target.version(), target.choices()))
        _feed(state, [(fingerprint(graph), print_graph(graph)) for graph in graphs])
        _feed(state, facts)
        return Remembered(ObjectCache(default_folder() / "answers", ".json"), state.hexdigest())

    def get(self, kind: type[T]) -> T | None:
        """The answer, or None where there is none, or a damaged one."""
        stored = None if self.place is None else self.place.get(self.key)
        if stored is None:
            return None
        try:
            return from_plain(kind, parse_json(stored.decode("utf-8")))
        except MALFORMED:
            return None

    def keep(self, answer: Any) -> None:
        """Keep a dataclass as the answer, if the folder can be written."""
        if self.place is not None:
            self.place.put(self.key, json.dumps(to_plain(answer)).encode("utf-8"))


def arrays_of(samples: Sequence[Sample]) -> list[Any]:
    """Return what runs over samples depend on, for a key."""
    return [(sample.whole, sorted(sample.inputs.items())) for sample in samples]


@functools.cache
def _version() -> str:
    """Identity of what computes answers: sources of all packages, versions of libraries, the processor."""
    sources = hashlib.sha256()
    for folder, folders, names in os.walk(Path(__file__).parents[1]):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    sources.update(file.read())
    processor = f"{platform.machine()} {host_cpu()}"
    libraries = f"numpy {np.__version__} onnxruntime {_installed('onnxruntime')}"
    return f"{compiler_version()} {sources.hexdigest()} {libraries} {processor}"


def _installed(package: str) -> str:
    """Version of a package, or "" where it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _operators(graphs: Sequence[Graph]) -> list[object]:
    return [node.operator for graph in graphs for _, each in nested(graph) for node in each.nodes]


def _is_own(each: object) -> bool:
    return type(each).__module__.partition(".")[0] == _OWN


def _feed(state: _Hash, value: Any) -> None:
    """Hash a value without ambiguity. Raises TypeError for what is no part of a key."""
    if isinstance(value, np.ndarray | np.generic):
        _feed_array(state, np.asarray(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _feed(state, [type(value).__name__, *((f.name, getattr(value, f.name)) for f in _fields(value))])
    elif isinstance(value, Mapping):
        _feed(state, ["mapping", *value.items()])
    elif isinstance(value, list | tuple):
        state.update(f"{len(value)} of;".encode())
        for item in value:
            _feed(state, item)
    elif value is None or isinstance(value, str | int | float | bytes):
        state.update(f"{type(value).__name__} {sha256_hex(repr(value).encode('utf-8', 'replace'))};".encode())
    else:
        raise TypeError(f"{type(value).__name__} is no part of a key")


def _feed_array(state: _Hash, array: Array) -> None:
    """Hash an array, which stays writable. Histograms are mostly zeros, which need not be hashed."""
    state.update(f"{array.dtype.str} {list(array.shape)};".encode())
    if array.dtype.kind in "iu" and array.size >= _MOSTLY_ZEROS:
        flat = array.reshape(-1)
        places = np.flatnonzero(flat)
        state.update(places.astype(np.int64).tobytes())
        array = flat[places]
    state.update(np.ascontiguousarray(array).tobytes())


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(value) if not field.name.startswith("_")]
