"""Language models of GGUF files."""

from __future__ import annotations

from pathlib import Path


def import_gguf(model: str | Path, output: str | Path) -> dict[str, str]:
    """Write the language model of a GGUF file as an ONNX model with its cache as inputs and outputs.

    Weights are those of the file, without any rounding: integers in blocks stay integers, for onnxruntime's
    MatMulNBits and GatherBlockQuantized; a format with an offset for each block adds sums of inputs times
    these. Above 2 GB they go to a file beside `output`. `load_model` and `load_generator` take the result.

    Returns what each tensor of the file became, by name: "Q4_0: int4 in blocks of 32".

    Raises ModelError for a file that is none, is damaged or lacks a part, UnsupportedError for architectures,
    settings and formats that are not known, InputFileError if `output` cannot be written.
    """
    from qglow.exporter.files import write_model  # needs onnx, which running programs does without
    from qglow.gguf.model import import_decoder

    found, forms = import_decoder(Path(model))
    write_model(found, output)
    return forms
