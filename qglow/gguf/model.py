"""A language model of a GGUF file as an ONNX model."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from qglow.core.errors import UnsupportedError
from qglow.gguf.decoder import DecoderGraph
from qglow.gguf.file import read_gguf
from qglow.gguf.nodes import NodeWriter
from qglow.gguf.settings import read_settings
from qglow.gguf.weights import DecoderWeights


def import_decoder(path: Path) -> tuple[ModelProto, dict[str, str]]:
    """The decoder of a GGUF file, and what each of its tensors became, by name.

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
    return model, weights.forms
