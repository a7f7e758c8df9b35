"""The directory of a quantized model: everything to run, check and explain it.

    model.qglow        the program, compiled for one ISA and able to be compiled for others
    model.qdq.onnx     the same model as standard ONNX
    int8.txt           the int8 graph, and float.txt the float graph that it stands for
    constants.npz      the constants that both name by digest
    recipe.yaml        every choice that made it
    report.json .md .html
    manifest.json      written last: the float model's path and digest, and the digest of every file

`qglow compare`, `bench` and `inspect` read it; the float model is found by its path, relative to the
directory, and recognised by its digest.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qglow.api.arrays import pack_arrays, unpack_arrays
from qglow.api.quantized import QuantizedModel
from qglow.api.staging import publish, read_checked, read_manifest, staging_folder
from qglow.core.errors import ArtefactError, RecipeError, TextError, VerificationError
from qglow.core.files import write_atomically
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.graph.graph import Graph
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.profiling.profile import ModelReference
from qglow.recipe.loading import parse_recipe
from qglow.report.comparison import Comparison
from qglow.report.layers import LayerReport
from qglow.report.report import ModelInfo, Report, write_report

FORMAT = "qglow quantized model"
VERSION = 1
PROGRAM = "model.qglow"
QDQ_MODEL = "model.qdq.onnx"
INT8_GRAPH = "int8.txt"
FLOAT_GRAPH = "float.txt"
CONSTANTS = "constants.npz"
RECIPE = "recipe.yaml"


def save_quantized(
    model: QuantizedModel,
    directory: str | Path,
    *,
    comparison: Comparison | None = None,
    layers: LayerReport | None = None,
    data: str = "",
    isa: str | None = None,
) -> None:
    """Write the directory of a quantized model. A reader never sees it half-written.

    `comparison` and `layers`, measured over `data`, go into the reports. `isa` is what model.qglow
    is compiled for first (default: QGLOW_ISA, else the host's best). Files of an earlier model are
    replaced, others left alone.

    Raises InputFileError where it cannot be written, UsageError for an ISA that the host lacks.
    """
    target = Path(directory)
    int8, real = model.graph, model.float_graph
    with staging_folder(target) as folder:
        model.save_program(folder / PROGRAM, isa)
        model.export_qdq(folder / QDQ_MODEL)
        write_atomically(folder / INT8_GRAPH, print_graph(int8))
        write_atomically(folder / FLOAT_GRAPH, print_graph(real))
        constants = constant_data(int8) | constant_data(real)
        write_atomically(folder / CONSTANTS, pack_arrays(constants))
        write_atomically(folder / RECIPE, model.recipe.to_yaml())
        save_report(model, folder, comparison=comparison, layers=layers, data=data)
        publish(folder, target, _facts(model, target))


def load_quantized(directory: str | Path) -> QuantizedModel:
    """The model in a directory that `save_quantized` or `qglow quantize` wrote.

    Raises ArtefactError for a directory that is incomplete, damaged or of another version.
    """
    folder = Path(directory)
    manifest = read_manifest(folder, FORMAT, VERSION)
    files = {
        name: read_checked(folder, manifest, name) for name in (INT8_GRAPH, FLOAT_GRAPH, CONSTANTS, RECIPE)
    }
    try:
        constants = unpack_arrays(files[CONSTANTS])
        int8, real = (_parse(folder / name, files[name], constants) for name in (INT8_GRAPH, FLOAT_GRAPH))
        recipe = parse_recipe(files[RECIPE].decode(), str(folder / RECIPE))
        facts = manifest["model"]
        source = ModelReference(folder / str(facts["path"]), str(facts["sha256"]))
        info = _info(source, facts, int8)
    except (TextError, VerificationError, RecipeError) as error:
        raise ArtefactError(f"{folder} is damaged: {error}; quantize the model again") from error
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise ArtefactError(f"{folder} is damaged ({error}); quantize the model again") from error
    return QuantizedModel(source, info, recipe, None, int8, real)


def save_report(
    model: QuantizedModel,
    directory: str | Path,
    *,
    comparison: Comparison | None = None,
    layers: LayerReport | None = None,
    data: str = "",
) -> None:
    """Write report.html, report.md and report.json, each whole or not at all.

    `data` names what `comparison` and `layers` were measured on. Raises InputFileError.
    """
    write_report(Path(directory), _report(model, comparison, layers, data))


def _report(
    model: QuantizedModel, comparison: Comparison | None, layers: LayerReport | None, data: str
) -> Report:
    pipeline = "" if model.report is None else model.report.pipeline
    return Report(model.info, model.recipe.to_yaml(), pipeline, model.report, data, comparison, layers)


def _facts(model: QuantizedModel, target: Path) -> dict[str, Any]:
    path = os.path.relpath(model.source.path.resolve(), target.resolve())
    return {
        "format": FORMAT,
        "version": VERSION,
        "qglow": __version__,
        "model": {
            "path": Path(path).as_posix(),
            "sha256": model.source.sha256,
            "name": model.info.name,
            "opset": model.info.opset,
            "notes": list(model.info.notes),
        },
    }


def _parse(path: Path, text: bytes, constants: Mapping[str, Array]) -> Graph:
    graph = parse_graph(text.decode(), constants)
    verify_graph(graph, f"in {path}")
    return graph


def _info(source: ModelReference, facts: Mapping[str, Any], graph: Graph) -> ModelInfo:
    return ModelInfo(
        str(facts["name"]),
        source.path.name,
        source.sha256,
        int(facts["opset"]),
        {value.name: value.type for value in graph.inputs},
        {value.name: value.type for value in graph.outputs},
        tuple(str(note) for note in facts["notes"]),
    )
