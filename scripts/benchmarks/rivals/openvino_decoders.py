"""Language models with a cache in OpenVINO, with weights that NNCF compresses."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from qglow.core.errors import UsageError
from qglow.report.decoding import Feeds
from qglow.report.decoding_rivals import OpenvinoDecoder
from scripts.benchmarks.rivals.decoders import BLOCK

Weights = Literal["float32", "int8", "int4"]


def openvino_decoder(
    model: Path, weights: Weights, states: Mapping[str, str], scores: str, feeds: Feeds, threads: int = 1
) -> OpenvinoDecoder:
    """A decoder in OpenVINO. weights: int8 by channel, int4 in blocks; both with zero points, without data.

    Raises UsageError where OpenVINO or NNCF is not installed, ModelError where OpenVINO refuses the file.
    """
    if importlib.util.find_spec("nncf") is None:
        raise UsageError('NNCF is not installed: pip install "qglow[bench]"')
    compress = None if weights == "float32" else lambda source: _compressed(source, weights)
    return OpenvinoDecoder(model, states, scores, feeds, threads, compress)


def _compressed(model: Any, weights: Weights) -> Any:
    """The model with weights as integers, tables of words and heads included."""
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):  # it shows its progress
        if weights == "int8":
            return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        # Where blocks do not divide K, it takes smaller ones.
        smaller = nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        )
        return nncf.compress_weights(
            model,
            mode=nncf.CompressWeightsMode.INT4_ASYM,
            ratio=1.0,
            group_size=BLOCK,
            all_layers=True,
            advanced_parameters=smaller,
        )
