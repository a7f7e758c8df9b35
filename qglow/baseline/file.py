"""The baseline file: read with every key checked, and updated without touching what people wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from qglow.baseline.entries import METRICS, Entry, Measured, Samples, default_tolerance
from qglow.baseline.limits import LIMIT_KEYS, entry_limits
from qglow.baseline.verdicts import Outcome
from qglow.core.errors import InputFileError
from qglow.core.files import write_atomically
from qglow.recipe.choices import one_of
from qglow.recipe.documents import parse_document, read_text
from qglow.recipe.readers import as_count, as_number, as_text, optional
from qglow.recipe.sections import FileSection
from qglow.report.task_metric import has_own_function

MEASURED = "measured"
_INDENT = 2


def load_baseline(path: Path) -> tuple[Entry, ...]:
    """The entries of a baseline file, in its order.

    Raises InputFileError that names the file, the entry and the key of a mistake.
    """
    try:
        return _entries(read_text(path))
    except ValueError as error:
        raise InputFileError(f"cannot read the baseline {path}: {error}") from error


def update_baseline(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the figures of these outcomes into the file, whole or not at all.

    Only the lines of `measured` change: comments, order and everything else stay. Raises InputFileError.
    """
    figures = {o.entry.name: o.measured for o in outcomes if o.measured is not None}
    try:
        text = read_text(path)
        changed = _with_figures(text, figures)
        found = {entry.name: entry.measured for entry in _entries(changed)}
    except ValueError as error:
        raise InputFileError(f"cannot update the baseline {path}: {error}") from error
    if any(found[name] != measured for name, measured in figures.items()):
        raise InputFileError(
            f"cannot update the baseline {path}: write each of its entries out, without anchors"
        )
    write_atomically(path, changed)


def _entries(text: str) -> tuple[Entry, ...]:
    document = parse_document(text)
    models = document["models"] if isinstance(document, dict) and list(document) == ["models"] else None
    if not isinstance(models, dict) or not models:
        raise ValueError("it holds one key, models, with an entry under each name")
    return tuple(_entry(str(name), value) for name, value in models.items())


def _entry(name: str, document: object) -> Entry:
    values = _ENTRY.build(document, f"models.{name}.")
    assert isinstance(values, dict)
    try:
        return Entry(name, _samples(values, ""), **_fields(values))
    except ValueError as error:
        raise ValueError(f"models.{name}: {error}") from error


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    sources = [key for key in ("calibration", "profile", "quantized") if values.get(key) is not None]
    if len(sources) != 1:
        given = " and ".join(sources) or "none"
        raise ValueError(f"give one of calibration, profile and quantized, not {given}")
    if sources == ["calibration"] and values.get("model") is None:
        raise ValueError("calibration needs the model")
    metric = values.get("metric", "top1")
    if default_tolerance(metric) is None and values.get("tolerance") is None:
        raise ValueError(f"say by how much metric {metric} may get worse: tolerance")
    if sources == ["quantized"] and (values.get("model") or values.get("recipe")):
        raise ValueError("a quantized directory knows its model and recipe; leave them out")
    fields: dict[str, Any] = {
        key: Path(values[key])
        for key in ("labels", "model", "profile", "quantized", "recipe")
        if values.get(key) is not None
    }
    if sources == ["calibration"]:
        fields["calibration"] = _samples(values, "calibration")
    kept = ("target", "metric", "tolerance", "expected_failure", MEASURED)
    fields |= {key: values[key] for key in kept if values.get(key) is not None}
    return fields | {"limits": entry_limits(values)}


def _metric(name: str) -> str:
    return name if has_own_function(name) else one_of(name, METRICS, "metric")


def _samples(values: Mapping[str, Any], prefix: str) -> Samples:
    data = values.get(prefix or "data")
    if data is None:
        raise ValueError("data names what it is evaluated on")
    parts = [values.get(f"{prefix}_{key}" if prefix else key) for key in ("select", "samples")]
    return Samples(data, *parts)


def _with_figures(text: str, figures: Mapping[str, Measured]) -> str:
    """The text with new `measured` mappings, from the last entry to the first so that places stay."""
    text = text if text.endswith("\n") else text + "\n"
    for key, node in reversed(_children(_children(yaml.compose(text))[0][1])):
        measured = figures.get(str(key.value))
        if measured is None:
            continue
        pairs = _children(node)
        old = next((pair for pair in pairs if pair[0].value == MEASURED), None)
        text = (_in_braces if node.flow_style else _in_lines)(text, pairs, node, old, measured)
    return text


def _in_braces(
    text: str, pairs: Sequence[tuple[Any, Any]], node: Any, old: tuple[Any, Any] | None, measured: Measured
) -> str:
    """The text with new figures in an entry that is written in braces."""
    new = f"{MEASURED}: {_inner(measured)}"
    if old is not None:
        return text[: old[0].start_mark.index] + new + text[old[1].end_mark.index :]
    end = pairs[-1][1].end_mark.index
    return f"{text[:end]}, {new}{text[end:]}"


def _inner(measured: Measured) -> str:
    return "{" + ", ".join(f"{key}: {value!r}" for key, value in _figures_of(measured).items()) + "}"


def _in_lines(
    text: str, pairs: Sequence[tuple[Any, Any]], node: Any, old: tuple[Any, Any] | None, measured: Measured
) -> str:
    """The text with new figures in an entry that is written with a line for each key."""
    lines = text.splitlines(keepends=True)
    if old is None:
        start = end = _last_line(node, lines)
    else:
        start, end = old[0].start_mark.line, _last_line(old[1], lines)
    lines[start:end] = _measured_lines(measured, pairs[0][0].start_mark.column)
    return "".join(lines)


def _children(node: Any) -> list[tuple[Any, Any]]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("its entries are not mappings")
    return list(node.value)


def _last_line(node: Any, lines: Sequence[str]) -> int:
    """The line after a node's content: comments and blank lines that follow belong to what comes next."""
    # A mapping in block style ends where the next thing begins, one in braces at its own end.
    end = node.end_mark.line + bool(node.flow_style)
    while end > node.start_mark.line + 1 and not lines[end - 1].split("#")[0].strip():
        end -= 1
    return int(end)


def _measured_lines(measured: Measured, column: int) -> list[str]:
    pad = " " * column
    inner = [f"{pad}{' ' * _INDENT}{key}: {value!r}\n" for key, value in _figures_of(measured).items()]
    return [f"{pad}{MEASURED}:\n", *inner]


def _figures_of(measured: Measured) -> dict[str, Any]:
    return {key: value for key, value in asdict(measured).items() if value is not None}


def _measured(**values: Any) -> Measured:
    missing = [key for key in _MEASURED.keys if key not in values and key not in _OPTIONAL]
    if missing:
        raise ValueError(f"{missing[0]} is missing; write all figures with `update`")
    return Measured(**{"reference": None, **values})


_OPTIONAL = (
    "reference",
    "labelled",
    "lost",
    "won",
    "samples",
    "artefact_bytes",
    "arena_bytes",
    "ratio_float32",
    "ratio_int8",
    "kernels",
)
_MEASURED = FileSection(
    _measured,
    {
        "value": as_number,
        "reference": as_number,
        "int8_nodes": as_count,
        "float_nodes": as_count,
        "islands": as_count,
        "bytes": as_count,
        "labelled": as_count,
        "lost": as_count,
        "won": as_count,
        "samples": as_count,
        "artefact_bytes": as_count,
        "arena_bytes": as_count,
        "ratio_float32": as_number,
        "ratio_int8": as_number,
        "kernels": as_text,
    },
)
_ENTRY = FileSection(
    dict,
    {
        "model": as_text,
        "calibration": as_text,
        "calibration_select": optional(as_text),
        "calibration_samples": optional(as_count),
        "profile": as_text,
        "quantized": as_text,
        "recipe": as_text,
        "target": as_text,
        "data": as_text,
        "labels": as_text,
        "select": optional(as_text),
        "samples": optional(as_count),
        "metric": lambda value: _metric(as_text(value)),
        "tolerance": as_number,
        "expected_failure": as_text,
        MEASURED: _MEASURED,
        **LIMIT_KEYS,
    },
)
