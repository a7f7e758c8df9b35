"""Turn a trained ONNX model and calibration data into an int8 program that is compiled and checked.

    model = qglow.load_model("model.onnx")                     Model           float
    profile = model.profile("calibration.npz")                 Profile         what its values look like
    quantized = model.quantize(profile)                        QuantizedModel  int8
    quantized.save("model.quantized")                                          program, QDQ model, reports
    executable = quantized.compile()                           Executable      native code
    executable = qglow.load("model.quantized/model.qglow")
    outputs = executable({"input": array})

Each stage is an immutable type of its own. Errors are subclasses of `QglowError`.
"""

import typing

from qglow.core.errors import (
    ArtefactError,
    ClusterError,
    ComparisonFailed,
    DataError,
    InputFileError,
    InternalError,
    MemoryLimitError,
    ModelError,
    ProfileError,
    QglowError,
    RecipeError,
    RegressionError,
    UnboundError,
    UndecidedError,
    UnsupportedError,
    UsageError,
)
from qglow.core.version import __version__

if typing.TYPE_CHECKING:
    from qglow.api import (
        Array,
        BaselineReport,
        BenchResult,
        Calibration,
        CalibrationSamples,
        Comparison,
        Data,
        DataMapping,
        DecodingResult,
        Diagnosis,
        DriftLimits,
        DriftReport,
        ElementType,
        Executable,
        Figures,
        Generator,
        Goal,
        KernelTuning,
        LayerReport,
        Limits,
        Match,
        Model,
        ModelSource,
        ModelVerdict,
        Preprocessing,
        Profile,
        Progress,
        Quantization,
        QuantizationReport,
        QuantizedModel,
        Recipe,
        Rule,
        StreamingExecutable,
        SufficiencyReport,
        TargetInfo,
        TensorType,
        TokenSampling,
        Trial,
        Tuning,
        bench,
        bench_decoding,
        calibration_sufficiency,
        check_baseline,
        check_limits,
        compare,
        compare_layers,
        cut_model,
        diagnose,
        list_targets,
        load,
        load_bundle,
        load_generator,
        load_model,
        load_profile,
        load_quantized,
        load_recipe,
        merge_profiles,
        profile_drift,
        run_data,
        save_drift,
        save_generator,
        save_profile,
        save_sufficiency,
        save_timings,
        tune,
    )

__all__ = [
    "Array",
    "ArtefactError",
    "ClusterError",
    "BaselineReport",
    "BenchResult",
    "Calibration",
    "CalibrationSamples",
    "Comparison",
    "ComparisonFailed",
    "DataError",
    "Data",
    "DataMapping",
    "DecodingResult",
    "Diagnosis",
    "DriftLimits",
    "DriftReport",
    "ElementType",
    "Executable",
    "Figures",
    "Generator",
    "Goal",
    "InputFileError",
    "InternalError",
    "KernelTuning",
    "LayerReport",
    "Limits",
    "Match",
    "Model",
    "MemoryLimitError",
    "ModelError",
    "ModelSource",
    "ModelVerdict",
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
    "RegressionError",
    "Rule",
    "StreamingExecutable",
    "SufficiencyReport",
    "TargetInfo",
    "TensorType",
    "TokenSampling",
    "Trial",
    "Tuning",
    "UnsupportedError",
    "UnboundError",
    "UndecidedError",
    "UsageError",
    "__version__",
    "bench",
    "bench_decoding",
    "calibration_sufficiency",
    "check_baseline",
    "check_limits",
    "compare",
    "compare_layers",
    "cut_model",
    "diagnose",
    "list_targets",
    "load",
    "load_bundle",
    "load_generator",
    "save_generator",
    "load_model",
    "load_profile",
    "load_quantized",
    "load_recipe",
    "merge_profiles",
    "profile_drift",
    "run_data",
    "save_drift",
    "save_profile",
    "save_sufficiency",
    "save_timings",
    "tune",
]

if not typing.TYPE_CHECKING:  # a type checker would take any name to be there

    def __getattr__(name):
        """Import a public name when it is first used: a program pays for what it needs (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from qglow import api

        globals()[name] = getattr(api, name)
        return globals()[name]

    def __dir__():
        """The public names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
