"""The public names, their documentation and their types: what a user may rely on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import qglow
import qglow.api
from qglow.core import errors

PUBLIC = {
    # going the way
    "load_model", "load_profile", "load_quantized", "load_recipe", "load", "load_bundle",
    "save_profile", "merge_profiles",
    # measuring
    "bench", "bench_decoding", "check_baseline", "check_limits", "compare", "compare_layers", "cut_model",
    "diagnose", "run_data", "save_timings",
    "profile_drift", "save_drift", "calibration_sufficiency", "save_sufficiency",
    "tune", "mix_weights", "list_targets", "import_gguf",
    # stages
    "Model", "Profile", "QuantizedModel", "Executable", "StreamingExecutable",
    "Generator", "TokenSampling", "load_generator", "save_generator",
    # choices and results
    "Calibration", "CalibrationSamples", "DataMapping", "Preprocessing", "Recipe", "Rule", "Match", "Limits",
    "DriftLimits", "BaselineReport", "BenchResult", "Comparison", "DecodingResult", "DriftReport",
    "LayerReport",
    "Diagnosis", "QuantizationReport", "SufficiencyReport", "TargetInfo", "ModelVerdict",
    "Figures", "Goal", "Trial", "Tuning", "WeightMix", "KernelTuning",
    # data and types
    "Array", "Data", "ModelSource", "Progress", "ElementType", "Quantization", "TensorType",
    # errors
    "QglowError", "ComparisonFailed", "UsageError", "UnboundError", "UndecidedError", "UnsupportedError",
    "InputFileError", "ModelError", "ProfileError", "DataError", "RecipeError", "ArtefactError",
    "RegressionError", "InternalError", "MemoryLimitError", "ClusterError",
    "__version__",
}  # fmt: skip
ALIASES = {"Array", "Data", "ModelSource", "Progress"}
STAGES = (qglow.Model, qglow.Profile, qglow.QuantizedModel, qglow.Executable)


def members() -> Iterator[tuple[str, Any]]:
    """Public functions, and public methods and properties of the stages."""
    for name in sorted(PUBLIC):
        if inspect.isfunction(getattr(qglow, name)):
            yield name, getattr(qglow, name)
    for stage in STAGES:
        for name, member in vars(stage).items():
            function = member.fget if isinstance(member, property) else member
            wanted = not name.startswith("_") or name == "__call__"
            if wanted and inspect.isfunction(function):
                yield f"{stage.__name__}.{name}", function


MEMBERS = dict(members())


def test_every_public_name_is_listed_and_no_other() -> None:
    assert set(qglow.__all__) == PUBLIC
    assert len(qglow.__all__) == len(PUBLIC)
    assert set(qglow.api.__all__) <= PUBLIC
    assert all(getattr(qglow, name) is not None for name in PUBLIC)  # names are there from their first use
    visible = {name for name, value in vars(qglow).items() if not name.startswith("_")}
    assert {name for name in visible if not inspect.ismodule(getattr(qglow, name))} == PUBLIC - {
        "__version__"
    }


def test_every_error_that_a_user_can_catch_is_public() -> None:
    raised = {
        name
        for name, error in vars(errors).items()
        if inspect.isclass(error) and issubclass(error, errors.QglowError)
    }
    # Parsing text and generating code happen behind the public functions.
    assert raised - PUBLIC == {"TextError", "VerificationError", "CodegenError"}


@pytest.mark.parametrize("name", sorted(PUBLIC - ALIASES - {"__version__"}))
def test_public_name_is_documented(name: str) -> None:
    documentation = inspect.getdoc(getattr(qglow, name))
    assert documentation and len(documentation) > 20


@pytest.mark.parametrize("name", MEMBERS)
def test_public_function_is_documented_and_annotated(name: str) -> None:
    function = MEMBERS[name]
    assert inspect.getdoc(function), name
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        if parameter.name != "self":
            assert parameter.annotation is not inspect.Parameter.empty, parameter


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_stages_are_types_of_their_own(stage: type[Any]) -> None:
    """None is another's subclass, so that a wrong order of stages is a type error."""
    assert not set(stage.__mro__[1:]) & set(STAGES)


def test_text_forms_say_where_errors_come_from() -> None:
    with pytest.raises(qglow.InputFileError):
        qglow.load_model("no such file.onnx")
    with pytest.raises(qglow.QglowError):
        qglow.load("no such file.qglow")
