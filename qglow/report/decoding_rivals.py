"""Language models with a cache in OpenVINO, and of GGUF files in llama.cpp, to compare speed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from qglow.core.errors import InputFileError, ModelError, UsageError
from qglow.core.types import Array
from qglow.report.decoding import Feeds
from qglow.report.openvino_model import installed_openvino

Compress = Callable[[Any], Any]
"""Gives a model of OpenVINO other weights."""


class OpenvinoDecoder:
    """A language model whose cache OpenVINO keeps; activations and cache are float32."""

    def __init__(
        self,
        model: Path | bytes,
        states: Mapping[str, str],
        scores: str,
        feeds: Feeds,
        threads: int = 1,
        compress: Compress | None = None,
    ) -> None:
        """states: outputs by the input that reads them in the next call. scores: the output of `read`.

        compress: makes its weights integers. Raises UsageError where OpenVINO is not installed, ModelError
        where it refuses the file.
        """
        openvino = installed_openvino()
        try:
            compiled = _compiled(openvino, model, states, threads, compress)
            self._request = compiled.create_infer_request()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"OpenVINO cannot load the model: {reason}") from error
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


def _compiled(
    openvino: Any, file: Path | bytes, states: Mapping[str, str], threads: int, compress: Compress | None
) -> Any:
    from openvino._offline_transformations import apply_make_stateful_transformation

    core = openvino.Core()
    with TemporaryDirectory(prefix="qglow-openvino-") as folder:
        path = file if isinstance(file, Path) else Path(folder) / "model.onnx"
        if not isinstance(file, Path):
            path.write_bytes(file)
        model = core.read_model(str(path))
        if compress is not None:
            model = compress(model)
        first = openvino.Dimension(1)
        shapes = {
            port.any_name: openvino.PartialShape([first, *list(port.partial_shape)[1:]])
            for port in model.inputs
            if len(port.partial_shape) > 1  # positions of one axis have no batch
        }
        model.reshape(shapes)
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


def check_llama_cpp(file: Path) -> None:
    """Raise UsageError where llama.cpp's wheel is not installed, InputFileError where there is no file."""
    try:
        import llama_cpp  # noqa: F401
    except ImportError as error:
        raise UsageError("llama.cpp is not installed: pip install llama-cpp-python") from error
    if not file.is_file():
        raise InputFileError(f"{file}: there is no such file")


class LlamaCppDecoder:
    """The language model of a GGUF file in llama.cpp, by its Python wheel, with its cache in float32."""

    def __init__(self, file: Path, context: int, vocabulary: int, threads: int = 1) -> None:
        """context: most tokens that it keeps. vocabulary: the number of tokens that the file has to have.

        Raises what `check_llama_cpp` does, UsageError for another vocabulary, InputFileError for a file that
        it refuses.
        """
        check_llama_cpp(file)
        import llama_cpp

        try:
            self._model = llama_cpp.Llama(
                str(file),
                n_ctx=context,
                n_batch=context,
                n_ubatch=context,
                n_threads=threads,
                n_threads_batch=threads,
                type_k=llama_cpp.GGML_TYPE_F32,
                type_v=llama_cpp.GGML_TYPE_F32,
                verbose=False,
            )
        except (RuntimeError, ValueError) as error:
            raise InputFileError(f"{file}: llama.cpp cannot load it: {error}") from error
        found = self._model.n_vocab()
        if found != vocabulary:
            raise UsageError(f"{file} has {found} tokens, and the model {vocabulary}: they are not alike")
        self._scores = llama_cpp.llama_get_logits_ith

    def reset(self) -> None:
        """Forget all tokens."""
        self._model.reset()

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these."""
        self._model.eval(list(tokens))
        scores = self._scores(self._model.ctx, -1)
        return np.ctypeslib.as_array(scores, (self._model.n_vocab(),)).copy()
