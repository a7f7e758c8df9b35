"""From a trained ONNX model and calibration data to an int8 program that is compiled and checked.

    model = qglow.load_model("model.onnx")                     Model           float
    profile = model.profile("calibration.npz")                 Profile         what its values look like
    quantized = model.quantize(profile)                        QuantizedModel  int8
    quantized.save("model.quantized")                                          program, QDQ model, reports
    executable = quantized.compile()                           Executable      native code
    executable = qglow.load("model.quantized/model.qglow")
    outputs = executable({"input": array})

Each stage is an immutable type of its own. Errors are subclasses of `QglowError`.
"""

from qglow.api import (
    Array,
    BenchResult,
    Calibration,
    Comparison,
    Data,
    DataMapping,
    ElementType,
    Executable,
    LayerReport,
    Limits,
    Model,
    Preprocessing,
    Profile,
    Progress,
    Quantization,
    QuantizationReport,
    QuantizedModel,
    Recipe,
    TensorType,
    bench,
    check_limits,
    compare,
    compare_layers,
    load,
    load_model,
    load_profile,
    load_quantized,
    load_recipe,
    merge_profiles,
    run_data,
    save_profile,
    save_timings,
)
from qglow.core.errors import (
    ArtefactError,
    ComparisonFailed,
    DataError,
    InputFileError,
    InternalError,
    ModelError,
    ProfileError,
    QglowError,
    RecipeError,
    UnsupportedError,
    UsageError,
)
from qglow.core.version import __version__

__all__ = [
    "Array",
    "ArtefactError",
    "BenchResult",
    "Calibration",
    "Comparison",
    "ComparisonFailed",
    "DataError",
    "Data",
    "DataMapping",
    "ElementType",
    "Executable",
    "InputFileError",
    "InternalError",
    "LayerReport",
    "Limits",
    "Model",
    "ModelError",
    "Preprocessing",
    "Profile",
    "ProfileError",
    "Progress",
    "QglowError",
    "Quantization",
    "QuantizationReport",
    "QuantizedModel",
    "Recipe",
    "RecipeError",
    "TensorType",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "bench",
    "check_limits",
    "compare",
    "compare_layers",
    "load",
    "load_model",
    "load_profile",
    "load_quantized",
    "load_recipe",
    "merge_profiles",
    "run_data",
    "save_profile",
    "save_timings",
]
