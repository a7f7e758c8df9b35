"""Language models of GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qglow.core.files import atomic_writer

if TYPE_CHECKING:
    from qglow.gguf.model import ImportedDecoder

TOKENIZER = "tokenizer.json"


def import_gguf(model: str | Path, output: str | Path) -> dict[str, str]:
    """Write the language model of a GGUF file as an ONNX model with its cache as inputs and outputs.

    Weights are those of the file, without any rounding: integers in blocks stay integers, for onnxruntime's
    MatMulNBits and GatherBlockQuantized; a format with an offset for each block adds sums of inputs times
    these. Above 2 GB they go to a file beside `output`. `load_model` and `load_generator` take the result.
    The file's tokenizer becomes a tokenizer.json beside `output`; one that is there already stays.

    Returns what each tensor of the file became, by name: "Q4_0: int4 in blocks of 32", and what became of
    its tokenizer, under "tokenizer.json".

    Raises ModelError for a file that is none, is damaged or lacks a part, UnsupportedError for architectures,
    settings and formats that are not known, InputFileError if `output` cannot be written.
    """
    from qglow.exporter.files import write_model  # needs onnx, which running programs does without
    from qglow.gguf.model import import_decoder

    found = import_decoder(Path(model))
    write_model(found.model, output)
    return {**found.forms, TOKENIZER: _write_tokenizer(found, Path(output).parent / TOKENIZER)}


def _write_tokenizer(found: ImportedDecoder, path: Path) -> str:
    """Write a tokenizer where there is none; return what was done."""
    if found.tokenizer is None:
        return f"not written: {found.missing}"
    if path.exists():
        return "not written: there is one already"
    with atomic_writer(path) as stream:
        stream.write(found.tokenizer.encode())
    return "written, from the file's tokenizer"
