"""A language model of a GGUF file as an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from qglow.core.errors import UnsupportedError
from qglow.gguf.decoder import TABLE, DecoderGraph
from qglow.gguf.file import read_gguf
from qglow.gguf.nodes import NodeWriter
from qglow.gguf.settings import read_settings
from qglow.gguf.tokenizer import NoTokenizerError, tokenizer_json
from qglow.gguf.weights import DecoderWeights


@dataclass(frozen=True)
class ImportedDecoder:
    """The decoder of a GGUF file, and what each of its tensors became, by name.

    tokenizer: its tokenizer.json; None where there is none, for the reason in `missing`.
    """

    model: ModelProto
    forms: dict[str, str]
    tokenizer: str | None
    missing: str = ""


def import_decoder(path: Path) -> ImportedDecoder:
    """The decoder of a GGUF file, with its tokenizer.

    Raises ModelError for a damaged file or one that is not whole, UnsupportedError for architectures,
    settings, tensors and formats that are not known.
    """
    file = read_gguf(path)
    settings, out = read_settings(file), NodeWriter()
    weights = DecoderWeights(file, out)
    model = DecoderGraph(settings, weights, out).model()
    if weights.left:
        raise UnsupportedError(
            f"{path}: its {settings.architecture} has {len(weights.left)} tensors that are not known, "
            f"such as '{weights.left[0]}'"
        )
    try:
        tokenizer = tokenizer_json(file.metadata, weights.extents(TABLE)[0])
    except NoTokenizerError as error:
        return ImportedDecoder(model, weights.forms, None, str(error))
    return ImportedDecoder(model, weights.forms, tokenizer)
