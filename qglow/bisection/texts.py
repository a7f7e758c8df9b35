"""Graphs and programs in files: ONNX models, quantized directories, and the text forms with their constants.

The constants of `NAME.txt` lie in `NAME.npz` beside it: those of a graph by digest, those of a program by
name. The graphs in a quantized directory have theirs in `constants.npz`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qglow.core.errors import InputFileError, TextError, UsageError, VerificationError
from qglow.core.files import atomic_writer, write_atomically
from qglow.core.inputs import note_input
from qglow.core.reading import load_arrays, read_text
from qglow.core.types import Array, Given
from qglow.graph.graph import Graph
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.importer import import_model
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.instructions.verifier import verify_program

INT8_GRAPH, SHARED_CONSTANTS = "int8.txt", "constants.npz"


def read_ir(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Given] | None = None,
) -> Graph | Program:
    """Read a graph or a program: an ONNX file as imported, a quantized directory, or a text.

    shapes: of the inputs of an ONNX file by name. values: of inputs that become constants. Raises
    ModelError, UnsupportedError, InputFileError for a file that cannot be read and for a text that does
    not parse, or that says what cannot be.
    """
    if path.is_dir():
        path = path / INT8_GRAPH
    if path.suffix == ".onnx":
        return import_model(path, shapes, values=values).graph
    if values:
        raise UsageError(f"{path}: values are given for ONNX files only", field="values")
    if shapes:
        raise UsageError(f"{path} has its shapes already; they are given for ONNX files only", field="shape")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"cannot read {path}: {error}") from error
    constants = _read_constants(path)
    try:
        return parse_ir(text, constants)
    except (TextError, VerificationError) as error:
        raise InputFileError(f"{path}: {error}") from error


def parse_ir(text: str, constants: Mapping[str, Array]) -> Graph | Program:
    """The graph or the program of a text, verified. Raises TextError, VerificationError."""
    if text.lstrip().startswith("function"):
        program = parse_program(text, constants)
        verify_program(program, "in the text")
        return program
    graph = parse_graph(text, constants)
    verify_graph(graph, "in the text")
    return graph


def print_ir(ir: Graph | Program) -> str:
    """The text of a graph or a program."""
    return print_graph(ir) if isinstance(ir, Graph) else print_program(ir)


def constants_of(ir: Graph | Program) -> dict[str, Array]:
    """The arrays that `parse_ir` needs besides the text."""
    if isinstance(ir, Graph):
        return constant_data(ir)
    return {buffer.name: buffer.data for buffer in ir.all_constants() if buffer.data is not None}


def copy_program(program: Program) -> Program:
    """A copy that shares the data of constants."""
    return parse_program(print_program(program), constants_of(program))


def write_ir(ir: Graph | Program, path: Path) -> None:
    """Write the text to `path`, and its constants beside it. Raises InputFileError."""
    write_arrays(path.with_suffix(".npz"), constants_of(ir))
    write_atomically(path, print_ir(ir))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as .npz. Raises InputFileError."""
    with atomic_writer(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(array), allow_pickle=False)


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays by name of an .npz file. Raises InputFileError."""
    try:
        return load_arrays(path)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputFileError(f"cannot read {path}: {error}") from error


def _read_constants(path: Path) -> dict[str, Array]:
    for beside in (path.with_suffix(".npz"), path.with_name(SHARED_CONSTANTS)):
        if beside.exists():
            note_input(beside)
            return read_arrays(beside)
    return {}
