"""Several programs of one model in one model.qglow: made, and loaded.

As for a single program, code that lies in a file runs only for a caller who trusts the file; else the
programs' texts are compiled once, and the result is kept in the user's own cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qglow.core.errors import InputFileError, UnsupportedError, UsageError
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.runtime.archive import Archive
from qglow.runtime.collection import (
    CollectedCode,
    Collection,
    StoredCollection,
    load_collected_code,
    open_collection,
    save_collected_code,
)
from qglow.runtime.cores import choose_threads
from qglow.runtime.members import refusing
from qglow.targets.protocol import RunningTarget
from qglow.targets.registry import select_target
from qglow.toolchain.artefacts import CachePlace
from qglow.toolchain.bounded import ResizableModel
from qglow.toolchain.bounded_inputs import ProgramSizes
from qglow.toolchain.bounded_program import BoundedExecutable, BoundedForm, BoundedProgram
from qglow.toolchain.compilation import emit_together, lower_together
from qglow.toolchain.form_facts import check_program, facts_of, forms_from
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.shape_choices import every_size
from qglow.toolchain.shape_constants import ShapeConstants, StoredConstants


@dataclass(frozen=True)
class MadeCollection:
    """Content of a file: programs, their code for one target, and the forms of the programs.

    notes: sentences on ranges that have a program for each size.
    """

    stored: StoredCollection
    code: tuple[CollectedCode, ...]
    forms: tuple[BoundedForm, ...]
    notes: tuple[str, ...] = ()


def make_collection(
    model: ResizableModel, wanted: Sequence[ProgramSizes], options: CompileOptions | None = None
) -> MadeCollection:
    """Compile a program for each of these sizes, for one target.

    Where none takes several sizes, each size of a small range gets a program. Raises UnsupportedError for
    larger ranges there, and UsageError for a target that the host cannot run.
    """
    options = options or CompileOptions()
    target = select_target(options.isa)
    notes: list[str] = []
    made = [pair for taken in wanted for pair in _forms(model, taken, notes)]
    model.forget_file()
    forms = [form for _, form in made]
    programs = lower_together([(graph, form.places) for (graph, _), form in zip(made, forms, strict=True)])
    dimensions = model.called.bounded(form.taken.sizes for form in forms)
    stored = StoredCollection.of(programs, *facts_of(dimensions, forms))
    code = _obtain(stored.identity, len(programs), lambda: _copies(programs), target, options)
    return MadeCollection(stored, _with_objects(code), tuple(forms), tuple(notes))


def load_collection(archive: Archive, options: CompileOptions, trust: bool = False) -> BoundedExecutable:
    """Load the programs of an archive for this host, as `load_executable` does one.

    Raises ArtefactError, and UsageError, also where onnxruntime is missing for nodes of the file.
    """
    target, threads = select_target(options.isa), choose_threads(options.threads)
    collection = open_collection(archive)
    code = collection.code(target.description.name, target.version()) if trust else None
    if code is None:
        collection.check()
        code = _obtain(collection.identity, collection.count, collection.programs, target, options)
    executables = [
        target.load(
            replace(variant, weights=code.weights), threads, _planned(collection, index, variant.program)
        )
        for index, variant in enumerate(code.programs)
    ]
    with refusing(archive.path):
        dimensions, forms = forms_from(collection.facts(), collection.table)
        programs = [BoundedProgram.of(*pair) for pair in zip(forms, executables, strict=True)]
        for program in programs:
            check_program(dimensions, program)
    return BoundedExecutable(dimensions, programs, max(one.executable.weight_bytes for one in programs))


def _forms(model: ResizableModel, taken: ProgramSizes, notes: list[str]) -> list[tuple[Graph, BoundedForm]]:
    """Graphs and forms of the programs for a range: one, or one for each size."""
    try:
        graph, form = model.form(taken)
        return [(graph, _storable(form))]
    except UnsupportedError as error:
        if not taken.open:
            raise
        try:
            every = every_size(taken)
        except UsageError as many:
            reason = f"no program takes several sizes: {error.args[0]}; {many}"
            raise UnsupportedError(reason, details=error.details) from error
        notes.append(f"{len(every)} programs, one for each size: {error}")
        return [model.form(one) for one in every]


def _planned(collection: Collection, index: int, made: Callable[..., Program]) -> Callable[[], Program]:
    return lambda: made(collection.constants(index))


def _storable(form: BoundedForm) -> BoundedForm:
    """The form with tables alone. Raises UnsupportedError for constants that are imported for each size."""
    constants = form.constants
    if not isinstance(constants, ShapeConstants):
        return form
    if constants.tables is None:
        raise UnsupportedError(
            f"{constants.described} are imported anew for each size, which no file of programs can do"
        )
    return replace(form, constants=StoredConstants(constants.tables))


def _copies(programs: Sequence[Program]) -> list[Program]:
    """Programs that selection and planning may change."""
    return [
        parse_program(print_program(one), {c.name: np.asarray(c.data) for c in one.all_constants()})
        for one in programs
    ]


def _with_objects(code: CollectedCode) -> tuple[CollectedCode, ...]:
    return (code,) if all(one.objects for one in code.programs) else ()


def _obtain(
    identity: str,
    count: int,
    programs: Callable[[], list[Program]],
    target: RunningTarget,
    options: CompileOptions,
) -> CollectedCode:
    """Code of programs, which are asked for only where they have to be compiled."""
    place = CachePlace.of(identity, target) if options.cache else None
    found = None
    if place is not None:
        name, version = place.target, place.version
        found = place.found(lambda path: load_collected_code(path, identity, count, name, version))
    if found is not None:
        return found
    codes, weights = emit_together(programs(), target, options)
    made = CollectedCode(target.description.name, target.version(), codes, weights)
    if place is not None and _with_objects(made):
        _to_cache(place.path, identity, made)
    return made


def _to_cache(path: Path, identity: str, code: CollectedCode) -> None:
    try:
        save_collected_code(path, identity, code)
    except InputFileError:  # a cache that cannot be written costs time, nothing else
        return
