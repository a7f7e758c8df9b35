"""Parts of ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from qglow.api.keywords import CutKeywords
from qglow.api.options import CutOptions
from qglow.core.keywords import taking
from qglow.toolchain.given_models import ModelSource, model_place


@taking(CutOptions)
def cut_model(model: ModelSource, output: str | Path, **options: Unpack[CutKeywords]) -> None:
    """Write the part of an ONNX model that computes `outputs` from `inputs` as a model of its own.

    A detector without its NMS, for one. `model` is as for `load_model`. Inputs of the model that the part
    reads besides stay inputs. Weights are stored in the file.

    Raises ModelError for a damaged model, UsageError for a name that no tensor has, whose type is not known,
    or that has nothing to do with the outputs, UnsupportedError for a part of more than 2 GB, InputFileError
    if `output` cannot be written.
    """
    from qglow.importer.cutting import (
        cut_model as cut,  # needs onnx, which running int8 programs does without
    )

    cut(model_place(model), Path(output), options["inputs"], options["outputs"])
