"""The public Python API: `import qglow` gives all of it.

    model = qglow.load_model("model.onnx")                    Model          float, as loaded
    profile = model.profile("calibration/")                   Profile        what its values look like
    quantized = model.quantize(profile)                       QuantizedModel int8
    executable = quantized.compile()                          Executable     native code
    outputs = executable({"input": array})

Each stage is an immutable type of its own.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from qglow.api.baseline import check_baseline
    from qglow.api.decoding import bench_decoding
    from qglow.api.diagnosis import diagnose
    from qglow.api.drift import profile_drift, save_drift
    from qglow.api.evaluation import bench, check_limits, compare, compare_layers, run_data, save_timings
    from qglow.api.generation import load_generator, save_generator
    from qglow.api.gguf import import_gguf
    from qglow.api.loading import load_model
    from qglow.api.model import Model
    from qglow.api.parts import cut_model
    from qglow.api.profiles import load_profile, merge_profiles, save_profile
    from qglow.api.programs import load
    from qglow.api.quantized import QuantizedModel, load_quantized
    from qglow.api.sufficiency import calibration_sufficiency, save_sufficiency
    from qglow.api.tuning import tune
    from qglow.api.weights import mix_weights
    from qglow.baseline.verdicts import BaselineReport
    from qglow.core.progress import Progress
    from qglow.core.types import Array, ElementType, Quantization, TensorType
    from qglow.emulation.bundle import load_bundle
    from qglow.generation.generator import Generator
    from qglow.generation.sampling import TokenSampling
    from qglow.profiling.profile import Profile
    from qglow.quantization.report import QuantizationReport
    from qglow.recipe.choices import Calibration
    from qglow.recipe.data import DataMapping, Preprocessing
    from qglow.recipe.loading import load_recipe
    from qglow.recipe.rules import Match, Rule
    from qglow.recipe.schema import Recipe
    from qglow.report.bench import BenchResult
    from qglow.report.comparison import Limits
    from qglow.report.comparison_result import Comparison
    from qglow.report.decoding import DecodingResult
    from qglow.report.diagnosis import Diagnosis
    from qglow.report.drift import DriftLimits, DriftReport
    from qglow.report.layer_report import LayerReport
    from qglow.report.sufficiency import SufficiencyReport
    from qglow.report.verdict import ModelVerdict
    from qglow.runtime.executable import Executable
    from qglow.runtime.streaming import StreamingExecutable
    from qglow.targets.listing import TargetInfo, list_targets
    from qglow.toolchain.calibration import CalibrationSamples
    from qglow.toolchain.given_models import ModelSource
    from qglow.toolchain.kernel_tuning import KernelTuning
    from qglow.toolchain.samples import Data
    from qglow.tuning.result import Tuning
    from qglow.tuning.search import Figures, Goal, Trial
    from qglow.tuning.weight_mix import WeightMix

__all__ = [
    "Array",
    "BaselineReport",
    "BenchResult",
    "Calibration",
    "CalibrationSamples",
    "Comparison",
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
    "KernelTuning",
    "LayerReport",
    "Limits",
    "Match",
    "Model",
    "ModelSource",
    "ModelVerdict",
    "Preprocessing",
    "Profile",
    "Progress",
    "Quantization",
    "QuantizationReport",
    "QuantizedModel",
    "Recipe",
    "Rule",
    "StreamingExecutable",
    "SufficiencyReport",
    "TargetInfo",
    "TensorType",
    "TokenSampling",
    "Trial",
    "Tuning",
    "WeightMix",
    "bench",
    "bench_decoding",
    "calibration_sufficiency",
    "check_baseline",
    "check_limits",
    "compare",
    "compare_layers",
    "cut_model",
    "diagnose",
    "import_gguf",
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
    "mix_weights",
    "profile_drift",
    "run_data",
    "save_drift",
    "save_profile",
    "save_sufficiency",
    "save_timings",
    "tune",
]

_NAMES_OF = {
    "qglow.api.baseline": ("check_baseline",),
    "qglow.api.decoding": ("bench_decoding",),
    "qglow.api.diagnosis": ("diagnose",),
    "qglow.api.drift": ("profile_drift", "save_drift"),
    "qglow.api.evaluation": (
        "bench",
        "check_limits",
        "compare",
        "compare_layers",
        "run_data",
        "save_timings",
    ),
    "qglow.api.generation": ("load_generator", "save_generator"),
    "qglow.api.gguf": ("import_gguf",),
    "qglow.api.loading": ("load_model",),
    "qglow.api.model": ("Model",),
    "qglow.api.parts": ("cut_model",),
    "qglow.api.profiles": ("load_profile", "merge_profiles", "save_profile"),
    "qglow.api.programs": ("load",),
    "qglow.api.quantized": ("QuantizedModel", "load_quantized"),
    "qglow.api.sufficiency": ("calibration_sufficiency", "save_sufficiency"),
    "qglow.api.tuning": ("tune",),
    "qglow.api.weights": ("mix_weights",),
    "qglow.baseline.verdicts": ("BaselineReport",),
    "qglow.core.progress": ("Progress",),
    "qglow.core.types": ("Array", "ElementType", "Quantization", "TensorType"),
    "qglow.emulation.bundle": ("load_bundle",),
    "qglow.generation.generator": ("Generator",),
    "qglow.generation.sampling": ("TokenSampling",),
    "qglow.profiling.profile": ("Profile",),
    "qglow.quantization.report": ("QuantizationReport",),
    "qglow.recipe.choices": ("Calibration",),
    "qglow.recipe.data": ("DataMapping", "Preprocessing"),
    "qglow.recipe.loading": ("load_recipe",),
    "qglow.recipe.rules": ("Match", "Rule"),
    "qglow.recipe.schema": ("Recipe",),
    "qglow.report.bench": ("BenchResult",),
    "qglow.report.comparison": ("Limits",),
    "qglow.report.comparison_result": ("Comparison",),
    "qglow.report.decoding": ("DecodingResult",),
    "qglow.report.diagnosis": ("Diagnosis",),
    "qglow.report.drift": ("DriftLimits", "DriftReport"),
    "qglow.report.layer_report": ("LayerReport",),
    "qglow.report.verdict": ("ModelVerdict",),
    "qglow.report.sufficiency": ("SufficiencyReport",),
    "qglow.runtime.executable": ("Executable",),
    "qglow.runtime.streaming": ("StreamingExecutable",),
    "qglow.targets.listing": ("TargetInfo", "list_targets"),
    "qglow.toolchain.calibration": ("CalibrationSamples",),
    "qglow.toolchain.given_models": ("ModelSource",),
    "qglow.toolchain.kernel_tuning": ("KernelTuning",),
    "qglow.toolchain.samples": ("Data",),
    "qglow.tuning.result": ("Tuning",),
    "qglow.tuning.search": ("Figures", "Goal", "Trial"),
    "qglow.tuning.weight_mix": ("WeightMix",),
}
"""Public names by the module that defines them, as imported above for type checkers."""

if not typing.TYPE_CHECKING:  # a type checker would take any name to be there

    def __getattr__(name):
        """Import a public name when it is first used: `import qglow` itself stays light (PEP 562)."""
        for module, names in _NAMES_OF.items():
            if name in names:
                value = getattr(importlib.import_module(module), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        """The public names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
