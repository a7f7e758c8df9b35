"""Forms of programs as plain data and tables, and back from a file that is not trusted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qglow.core.text import Lexer, parse_type
from qglow.core.types import Array, Shape, TensorType
from qglow.counts import (
    Count,
    Filler,
    GrownInput,
    count_from_plain,
    count_to_plain,
    filled_shape,
    filler_from_plain,
    filler_to_plain,
    sizes_from_plain,
)
from qglow.counts.fillers import JoinedPlaces
from qglow.toolchain.bounded_inputs import BoundedInputs, ProgramSizes
from qglow.toolchain.bounded_program import BoundedForm, BoundedProgram
from qglow.toolchain.shape_constants import StoredConstants, TablePart

Counts = Sequence[Count]


def facts_of(dimensions: BoundedInputs, forms: Sequence[BoundedForm]) -> tuple[dict[str, Any], list[Array]]:
    """Plain data of forms, and the tables that it counts. Their constants are `StoredConstants`."""
    tables: list[Array] = []
    plain = [_form_to_plain(form, tables) for form in forms]
    inputs = {name: _counts_to_plain(counts) for name, counts in dimensions.inputs.items()}
    bounds = {name: list(sizes) for name, sizes in dimensions.bounds.items()}
    # In lists, because the order of inputs matters.
    return {"inputs": list(inputs.items()), "bounds": list(bounds.items()), "forms": plain}, tables


def forms_from(
    facts: Mapping[str, Any], table: Callable[[int], Array]
) -> tuple[BoundedInputs, list[BoundedForm]]:
    """The inverse of `facts_of`. Raises KeyError, TypeError, ValueError, TextError for what is none."""
    bounds = {str(name): tuple(map(int, sizes)) for name, sizes in facts["bounds"]}
    inputs = {str(name): _counts_from_plain(counts, bounds) for name, counts in facts["inputs"]}
    dimensions = BoundedInputs(inputs, bounds)
    if not facts["forms"] or not all(bounds.values()):
        raise ValueError("there is no program, or a dimension without sizes")
    return dimensions, [_form_from_plain(plain, bounds, table) for plain in facts["forms"]]


def check_program(dimensions: BoundedInputs, program: BoundedProgram) -> None:
    """Raise ValueError where a program does not have the inputs and outputs that its form says."""
    form, executable = program.form, program.executable
    taken, kept, given = executable.inputs, executable.kept, executable.outputs
    shapes = dimensions.shapes(form.taken.sizes)
    own = [name for name in form.inputs if name in shapes]
    if [name for name in own if name not in program.kept.values()] != [n for n in taken if n in shapes]:
        raise ValueError("a program has other inputs than are said of it")
    for name in own:
        if form.inputs[name].shape != shapes[name] or taken.get(name, form.inputs[name]) != form.inputs[name]:
            raise ValueError(f"input '{name}' is not {form.inputs[name]}")
    followed = {filler.name: filled_shape(filler) for filler in program.fillers}
    constants = form.constants.tables if isinstance(form.constants, StoredConstants) else {}
    if set(own) | set(followed) | set(constants) != set(taken) | set(kept) or set(followed) & set(shapes):
        raise ValueError("a program has inputs that nothing gives")
    for name, shape in followed.items():
        if taken[name].shape != shape:
            raise ValueError(f"'{name}' of shape {list(shape)} is filled for {taken[name]}")
    for name, part in constants.items():
        kind = taken[name]
        extents = tuple(count.at(form.taken.sizes) for count in part.counts)
        if part.table.dtype != kind.element.dtype or not _fits(extents, kind.shape):
            raise ValueError(f"a table does not fit '{name}'")
    for output, kind in form.outputs.items():
        extents = tuple(count.at(form.taken.sizes) for count in form.counts[output])
        there = kept[program.kept[output]] if output in program.kept else given.get(output)
        if there is None or there.shape != kind.shape or extents != kind.shape:
            raise ValueError(f"output '{output}' is not {kind}")


def _fits(part: Shape, whole: Shape) -> bool:
    return len(part) == len(whole) and all(map(operator.le, part, whole))


def _form_to_plain(form: BoundedForm, tables: list[Array]) -> dict[str, Any]:
    assert isinstance(form.constants, StoredConstants), "only tables can be stored"
    parts = {}
    for name, part in form.constants.tables.items():
        number = next((i for i, known in enumerate(tables) if known is part.table), len(tables))
        if number == len(tables):
            tables.append(part.table)
        parts[name] = [number, _counts_to_plain(part.starts), _counts_to_plain(part.counts)]
    return {
        "sizes": dict(form.taken.sizes),
        "least": dict(form.taken.least),
        "inputs": _types_to_plain(form.inputs),
        "outputs": _types_to_plain(form.outputs),
        "counts": {name: _counts_to_plain(counts) for name, counts in form.counts.items()},
        "grown": {name: [one.input, one.axis, one.joined.name] for name, one in form.grown.items()},
        "fillers": [filler_to_plain(filler) for filler in form.fillers],
        "loose": sorted(form.loose),
        "windows": _counts_to_plain(form.windows),
        "constants": parts,
    }


def _form_from_plain(
    plain: Mapping[str, Any], bounds: Mapping[str, tuple[int, ...]], table: Callable[[int], Array]
) -> BoundedForm:
    taken = ProgramSizes(*(sizes_from_plain(plain[part], tuple(bounds)) for part in ("sizes", "least")))
    if not all(taken.least[name] <= size and size in bounds[name] for name, size in taken.sizes.items()):
        raise ValueError("sizes of a program are none of the bounds")
    fillers = [filler_from_plain(one, bounds) for one in plain["fillers"]]
    named = {filler.name: filler for filler in fillers}
    inputs, outputs = (_types_from_plain(plain[part]) for part in ("inputs", "outputs"))
    counts = {str(name): _counts_from_plain(one, bounds) for name, one in plain["counts"].items()}
    grown = {name: _grown(named, inputs, *one) for name, one in plain["grown"].items()}
    if set(counts) != set(outputs) or not set(grown) <= set(outputs):
        raise ValueError("outputs of a program without sizes")
    tables = {
        str(name): TablePart(
            table(int(number)), _counts_from_plain(starts, bounds), _counts_from_plain(sizes, bounds)
        )
        for name, (number, starts, sizes) in plain["constants"].items()
    }
    loose = frozenset(str(name) for name in plain.get("loose", []))
    windows = _counts_from_plain(plain.get("windows", []), bounds)
    constants = StoredConstants(tables)
    return BoundedForm(
        taken, inputs, outputs, counts, grown, fillers, constants, loose=loose, windows=windows
    )


def _grown(
    named: Mapping[str, Filler], inputs: Mapping[str, TensorType], name: str, axis: int, joined: str
) -> GrownInput:
    filler = named[joined]
    if not isinstance(filler, JoinedPlaces) or not 0 <= axis < len(inputs[name].shape) or not filler.parts:
        raise ValueError(f"nothing grows along axis {axis} of '{name}'")
    return GrownInput(name, axis, filler)


def _counts_to_plain(counts: Counts) -> list[Any]:
    return [count_to_plain(count) for count in counts]


def _counts_from_plain(plain: Sequence[Any], known: Mapping[str, object]) -> tuple[Count, ...]:
    return tuple(count_from_plain(count, known) for count in plain)


def _types_to_plain(types: Mapping[str, TensorType]) -> list[Any]:
    return [[name, str(kind)] for name, kind in types.items()]


def _types_from_plain(plain: Sequence[Any]) -> dict[str, TensorType]:
    return {str(name): parse_type(Lexer(text)) for name, text in plain}
