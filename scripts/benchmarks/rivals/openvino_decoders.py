"""Language models with a cache in OpenVINO: its states hold the cache, NNCF compresses the weights."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qglow.core.errors import ModelError, UsageError
from qglow.core.types import Array
from qglow.report.decoding import Feeds
from scripts.benchmarks.rivals.decoders import BLOCK

Weights = Literal["float32", "int8", "int4"]


class OpenvinoDecoder:
    """A language model whose cache OpenVINO keeps; activations and cache are float32."""

    def __init__(
        self,
        model: Path,
        weights: Weights,
        states: Mapping[str, str],
        scores: str,
        feeds: Feeds,
        threads: int = 1,
    ) -> None:
        """weights: int8 by channel, int4 in blocks; both with zero points, by NNCF without data.

        states: outputs by the input that reads them in the next call. scores: the output of `read`.
        Raises UsageError where OpenVINO or NNCF is not installed, ModelError where it refuses the file.
        """
        if importlib.util.find_spec("openvino") is None or importlib.util.find_spec("nncf") is None:
            raise UsageError('OpenVINO and NNCF are not installed: pip install "qglow[bench]"')
        try:
            self._request = _compiled(model, weights, states, threads).create_infer_request()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"OpenVINO cannot load {model}: {reason}") from error
        ports = self._request.model_inputs
        self._kinds = {port.any_name: np.dtype(port.element_type.to_dtype()) for port in ports}
        self._scores, self._feeds = scores, feeds
        self._past = 0

    def reset(self) -> None:
        """Forget all tokens."""
        self._past = 0
        self._request.reset_state()

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these."""
        self._request.infer(self._feeds(tokens, self._past, self._kinds), share_inputs=True)
        self._past += len(tokens)
        return np.array(self._request.get_tensor(self._scores).data[0, -1])


def _compiled(path: Path, weights: Weights, states: Mapping[str, str], threads: int) -> Any:
    import openvino
    from openvino._offline_transformations import apply_make_stateful_transformation

    core = openvino.Core()
    model = core.read_model(str(path))
    if weights != "float32":
        model = _compressed(model, weights)
    first = openvino.Dimension(1)
    model.reshape(
        {
            port.any_name: openvino.PartialShape([first, *list(port.partial_shape)[1:]])
            for port in model.inputs
        }
    )
    apply_make_stateful_transformation(model, dict(states))
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }
    return core.compile_model(model, "CPU", options)


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
