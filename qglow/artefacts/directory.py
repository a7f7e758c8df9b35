"""The directory of a quantized model: everything to run, check and explain it.

    model.qglow        the program, or several for shapes that were asked for, compiled for one ISA and able
                       to be compiled for others
    model.qdq.onnx     the same model as standard ONNX
    int8.txt           the int8 graph, and float.txt the float graph that it stands for
    constants.npz      the constants that both name by digest
    recipe.yaml        every choice that made it
    profile.yaml       the profile without its samples, where the model has free dimensions: for other shapes
    quantization.json  what quantization did, for explanations
    report.json .md .html
    manifest.json      written last: the float model's path and digest, and the digest of every file

`qglow compare`, `bench` and `inspect` read it; the float model is found by its path, relative to the
directory, and recognised by its digest. One that was given in memory has no path.
"""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qglow.artefacts.staging import publish, read_checked, read_manifest, refreshed
from qglow.core.arrays import pack_arrays, unpack_arrays
from qglow.core.errors import (
    ArtefactError,
    ModelError,
    RecipeError,
    TextError,
    VerificationError,
)
from qglow.core.files import atomic_writer, file_sha256, sha256_hex, write_atomically
from qglow.core.folders import staging_folder
from qglow.core.model_place import IN_MEMORY
from qglow.core.reading import MALFORMED, parse_json
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.display.plain import from_plain, to_plain
from qglow.graph.graph import Graph, typed_outputs, untyped_outputs
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.profiling.given import read_values, written_values
from qglow.profiling.profile import ModelReference, Profile
from qglow.profiling.profile_file import parse, relative_path, to_yaml
from qglow.quantization.report import QuantizationReport
from qglow.recipe.loading import parse_recipe
from qglow.report.comparison_result import Comparison
from qglow.report.diagnosis import Diagnosis
from qglow.report.layer_report import LayerReport
from qglow.report.node_kernels import NodeCode, kernels_of_code, kernels_of_graph
from qglow.report.parts import QuantizedParts
from qglow.report.report import ModelInfo, Report, write_report
from qglow.report.verdict import ModelVerdict
from qglow.runtime.artefact import StoredProgram, save_artefact
from qglow.runtime.collection import save_collection
from qglow.runtime.variant import CodeVariant
from qglow.toolchain import CompileOptions, lower_graph
from qglow.toolchain.artefacts import make_artefact
from qglow.toolchain.bounded import ResizableModel
from qglow.toolchain.bounded_inputs import ProgramSizes
from qglow.toolchain.collected import MadeCollection, make_collection

if TYPE_CHECKING:
    from qglow.exporter import FiledModel

FORMAT = "qglow quantized model"
VERSION = 3
PROGRAM = "model.qglow"
QDQ_MODEL = "model.qdq.onnx"
INT8_GRAPH = "int8.txt"
FLOAT_GRAPH = "float.txt"
CONSTANTS = "constants.npz"
RECIPE = "recipe.yaml"
PROFILE = "profile.yaml"
QUANTIZATION = "quantization.json"
REPORT = "report.json"


@dataclass(frozen=True)
class Measurements:
    """Measured results for the reports; `data` names the data that they were measured on."""

    comparison: Comparison | None = None
    layers: LayerReport | None = None
    data: str = ""
    diagnosis: Diagnosis | None = None


def save_parts(
    parts: QuantizedParts,
    target: Path,
    measured: Measurements,
    isa: str | None,
    ahead: tuple[ResizableModel, Sequence[ProgramSizes]] | None = None,
) -> tuple[str, ...]:
    """Write the directory, the manifest last; returns sentences on what it lacks.

    ahead: the model in any sizes, and those that model.qglow has programs for (default: its own).
    Raises InputFileError, UsageError for an ISA, and UnsupportedError for ranges that no program takes.
    """
    options = CompileOptions(isa=isa)
    with staging_folder(target) as folder, ThreadPoolExecutor(2) as beside:
        # Constants are most of the bytes: one thread writes and hashes them while the rest is made, the
        # other thread writes what is made meanwhile.
        digests = {CONSTANTS: beside.submit(_write_constants, folder / CONSTANTS, parts)}
        notes: tuple[str, ...] = ()
        if ahead is None:
            lowered = lower_graph(parts.int8, options)
            made = make_artefact(lowered, options, parts.int8.tail)
            digests[PROGRAM] = beside.submit(_write_program, folder / PROGRAM, *made)
            kernels = kernels_of_code(lowered, made[1])
        else:
            programs = make_collection(*ahead, options)
            digests[PROGRAM] = beside.submit(_write_programs, folder / PROGRAM, programs)
            kernels, notes = kernels_of_graph(parts.int8), programs.notes
        qdq_model, lacking = _qdq_model(parts)
        digests[QDQ_MODEL] = beside.submit(_write_model, folder / QDQ_MODEL, qdq_model)
        kept = [note for note in parts.info.notes if not note.startswith(QDQ_MODEL)]
        parts = replace(parts, info=replace(parts.info, notes=(*kept, *lacking)))
        write_atomically(folder / INT8_GRAPH, print_graph(parts.int8))
        write_atomically(folder / FLOAT_GRAPH, print_graph(parts.real))
        write_atomically(folder / RECIPE, parts.recipe.to_yaml())
        profile = None if parts.profile is None else parts.profile()
        if profile is not None and profile.samples:
            write_atomically(folder / PROFILE, to_yaml(profile, target))
        content = json.dumps(to_plain(parts.report), ensure_ascii=False, sort_keys=True)
        write_atomically(folder / QUANTIZATION, content + "\n")
        save_reports(parts, folder, measured, kernels)
        written = {name: digest.result() for name, digest in digests.items()}
        publish(folder, target, _facts(parts, target, ahead is not None), written)
    return (*notes, *lacking)


def _qdq_model(parts: QuantizedParts) -> tuple[FiledModel, tuple[str, ...]]:
    """The model as ONNX and, if it has not all shapes of the model, a sentence that says so."""
    from qglow.artefacts.open_export import OpenModel, open_qdq_model  # needs onnx

    try:
        model = open_qdq_model(parts)
    except ModelError as error:
        model = OpenModel(parts.qdq_files(), str(error))
    note = f"{QDQ_MODEL} does not take all shapes that the model takes: {model.refusal}"
    return model.files, (note,) if model.refusal else ()


def _write_constants(path: Path, parts: QuantizedParts) -> str:
    """Write the constants of both graphs; returns the file's digest."""
    with atomic_writer(path) as stream:
        pack_arrays(stream, constant_data(parts.int8) | constant_data(parts.real))
    return file_sha256(path)


def _write_program(path: Path, stored: StoredProgram, code: list[CodeVariant]) -> str:
    """Write the program; returns the file's digest."""
    save_artefact(path, stored, code)
    return file_sha256(path)


def _write_programs(path: Path, made: MadeCollection) -> str:
    """Write several programs; returns the file's digest."""
    save_collection(path, made.stored, made.code)
    return file_sha256(path)


def _write_model(path: Path, model: FiledModel) -> str:
    """Write an ONNX model, perhaps with a file of constants beside it; returns the model's digest."""
    model.write(path)
    return sha256_hex(model.content)


def load_parts(folder: Path) -> QuantizedParts:
    """Read what `save_parts` wrote. Raises ArtefactError if it is incomplete or damaged."""
    manifest = read_manifest(folder, FORMAT, VERSION)
    files = {
        name: read_checked(folder, manifest, name)
        for name in (INT8_GRAPH, FLOAT_GRAPH, CONSTANTS, RECIPE, QUANTIZATION)
    }
    try:
        constants = unpack_arrays(files[CONSTANTS])
        int8, real = (_parse(folder / name, files[name], constants) for name in (INT8_GRAPH, FLOAT_GRAPH))
        recipe = parse_recipe(files[RECIPE].decode(), str(folder / RECIPE))
        content = parse_json(files[QUANTIZATION])
        report = None if content is None else from_plain(QuantizationReport, content)
        facts = manifest["model"]
        path = None if facts["path"] is None else str(facts["path"])
        if path is not None and "\0" in path:
            raise ValueError("the path of the model holds NUL")
        values = read_values(facts.get("values", {}))
        source = ModelReference(None if path is None else folder / path, str(facts["sha256"]), values)
        info = _info(source, facts, int8)
        diagnosis, verdict = _measured(folder, manifest)
        profile = _profile(folder, manifest, source, real)
    except (TextError, VerificationError, RecipeError) as error:
        raise ArtefactError(f"{folder} is damaged: {error}; quantize the model again") from error
    except (zipfile.BadZipFile, *MALFORMED) as error:
        raise ArtefactError(f"{folder} is damaged ({error}); quantize the model again") from error
    ahead = folder / PROGRAM if manifest.get("ahead") is True else None
    return QuantizedParts(source, info, recipe, report, int8, real, diagnosis, verdict, profile, ahead)


def save_reports(
    parts: QuantizedParts, folder: Path, measured: Measurements, kernels: Mapping[str, NodeCode]
) -> None:
    """Write report.html, report.md and report.json, each whole or not at all. kernels: by node, for HTML."""
    write_report(folder, report_of(parts, measured), graph=parts.int8, kernels=kernels)


def report_of(parts: QuantizedParts, measured: Measurements | None = None) -> Report:
    """The report on a model, with what was measured."""
    measured = measured or Measurements()
    pipeline = "" if parts.report is None else parts.report.pipeline
    return Report(
        parts.info,
        parts.recipe.to_yaml(),
        pipeline,
        parts.report,
        measured.data,
        measured.comparison,
        measured.layers,
        measured.diagnosis,
        parts.verdict,
    )


def refresh_reports(parts: QuantizedParts, folder: Path, measured: Measurements) -> None:
    """Write the reports as `save_reports` does; a directory whose manifest names them stays valid.

    Raises InputFileError.
    """
    kernels = kernels_of_graph(parts.int8)
    with refreshed(folder):
        save_reports(parts, folder, measured, kernels)


def _measured(folder: Path, manifest: Mapping[str, Any]) -> tuple[Diagnosis | None, ModelVerdict | None]:
    """Diagnosis and verdict in the report, each None if it was not made, or the reports were deleted."""
    if not (folder / REPORT).exists():
        return None, None
    report = parse_json(read_checked(folder, manifest, REPORT))
    diagnosis, verdict = report["diagnosis"], report.get("verdict")
    return (
        None if diagnosis is None else from_plain(Diagnosis, diagnosis),
        None if verdict is None else from_plain(ModelVerdict, verdict),
    )


def _profile(
    folder: Path, manifest: Mapping[str, Any], source: ModelReference, real: Graph
) -> Callable[[], Profile] | None:
    """Return what reads the profile when it is needed; None where no dimensions are open."""
    if PROFILE not in manifest["files"]:
        return (
            (lambda: Profile.of_no_samples(source, real)) if manifest["model"].get("open") is True else None
        )
    text = read_checked(folder, manifest, PROFILE).decode()
    return functools.cache(lambda: parse(text, str(folder / PROFILE), folder)[0])


def _facts(parts: QuantizedParts, target: Path, ahead: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "qglow": __version__,
        "model": {
            "path": relative_path(parts.source, target),
            "sha256": parts.source.sha256,
            "name": parts.info.name,
            "opset": parts.info.opset,
            "notes": list(parts.info.notes),
            "open": parts.profile is not None,
            "values": written_values(parts.source.values),
        },
        "ahead": ahead,
    }


def _parse(path: Path, text: bytes, constants: Mapping[str, Array]) -> Graph:
    graph = parse_graph(text.decode(), constants)
    verify_graph(graph, f"in {path}")
    return graph


def _info(source: ModelReference, facts: Mapping[str, Any], graph: Graph) -> ModelInfo:
    return ModelInfo(
        str(facts["name"]),
        IN_MEMORY if source.path is None else source.path.name,
        source.sha256,
        int(facts["opset"]),
        {value.name: value.type for value in graph.inputs},
        typed_outputs(graph),
        tuple(str(note) for note in facts["notes"]),
        untyped_outputs(graph),
    )
