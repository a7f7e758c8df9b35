"""Float models, loaded from files, bytes, messages and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from qglow.api.keywords import LoadKeywords
from qglow.api.model import Model
from qglow.api.options import LoadOptions
from qglow.core.keywords import taking
from qglow.core.types import Given
from qglow.host.libraries import use_libraries
from qglow.toolchain.given_models import ModelSource, model_place
from qglow.toolchain.undecided import open_model


@taking(LoadOptions, places=("passes",))
def load_model(
    model: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    values: Mapping[str, Given] | None = None,
    **options: Unpack[LoadKeywords],
) -> Model:
    """Load an ONNX model as a float model.

    `model` is a path, the bytes of a file, an `onnx.ModelProto` or what `torch.onnx.export` returns, or a
    graph, such as `Model.graph` after changes.
    `shapes` maps input names to shapes, which then are the only ones. Dimensions that are left free take any
    size in calls; `Model.shapes` has 1 for a first one, which `Model.bound` reports. A model with other free
    dimensions has no shapes of its own: what needs one graph raises UnboundError.
    `values` maps input names to arrays or numbers: these inputs become constants, and the model has them no
    more. `passes` is a pipeline, such as "fold-constants,fold-batchnorm", to run over the graph instead of
    those that make it canonical.
    `custom_ops` names libraries of operators that onnxruntime does not have; the code in them runs at once.
    Nodes that qglow does not know run in onnxruntime, which `Model.bound` reports too, unless `native`.
    Where values of inputs decide shapes and are not given, the model is interpreted and compiled for those of
    each call; all else that needs its graph raises UndecidedError with the names of these inputs.

    Raises ModelError for a damaged or invalid model, UnsupportedError that lists everything in it
    that is not supported, UsageError for shapes and values that do not fit.
    """
    use_libraries(options["custom_ops"])
    return Model(open_model(model_place(model), shapes, options["passes"], options["native"], values))
