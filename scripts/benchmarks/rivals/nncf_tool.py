"""NNCF's post-training quantization of ONNX models, where the extra `bench` is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

from qglow.core.errors import ModelError
from qglow.profiling.samples import Sample, batches


def has_nncf() -> bool:
    """Whether it can be imported."""
    return importlib.util.find_spec("nncf") is not None


def quantize_with_nncf(model: Path, data: Iterable[Sample]) -> bytes:
    """The model as NNCF quantizes it by its defaults for accuracy on a CPU: symmetric int8 weights per
    channel, asymmetric activations where they have two signs, bias correction; over all of the data.

    Raises ModelError where it fails.
    """
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    inputs = [batch.inputs for batch in batches(data, 1)]
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it shows its progress
            result: Any = nncf.quantize(
                onnx.load(model),
                nncf.Dataset(inputs),
                preset=nncf.QuantizationPreset.MIXED,
                subset_size=len(inputs),
            )
    except Exception as error:  # it raises whatever its parts raise
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"NNCF cannot quantize {model}: {reason}") from error
    content: bytes = result.SerializeToString()
    return content
