"""The public Python API: `import qglow` gives all of it.

    model = qglow.load_model("model.onnx")                    Model          float, as loaded
    profile = model.profile("calibration/")                   Profile        what its values look like
    quantized = model.quantize(profile)                       QuantizedModel int8
    executable = quantized.compile()                          Executable     native code
    outputs = executable({"input": array})

Each stage is an immutable type of its own.
"""

from __future__ import annotations

from qglow.api.baseline import check_baseline
from qglow.api.data import Data, Progress
from qglow.api.diagnosis import diagnose
from qglow.api.drift import profile_drift, save_drift
from qglow.api.evaluation import bench, check_limits, compare, compare_layers, run_data, save_timings
from qglow.api.model import Model, load_model
from qglow.api.profiles import load_profile, merge_profiles, save_profile
from qglow.api.programs import load
from qglow.api.quantized import QuantizedModel, load_quantized
from qglow.api.reconstruction import CalibrationSamples
from qglow.api.sufficiency import calibration_sufficiency, save_sufficiency
from qglow.api.tuning import Tuning, tune
from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.profiling.profile import Profile
from qglow.quantization.report import QuantizationReport
from qglow.recipe.choices import Calibration
from qglow.recipe.loading import load_recipe
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import DataMapping, Preprocessing, Recipe
from qglow.report.baseline import BaselineReport
from qglow.report.bench import BenchResult
from qglow.report.comparison import Comparison, Limits
from qglow.report.diagnosis import Diagnosis
from qglow.report.drift import DriftLimits, DriftReport
from qglow.report.layers import LayerReport
from qglow.report.sufficiency import SufficiencyReport
from qglow.runtime.executable import Executable
from qglow.toolchain.kernel_tuning import KernelTuning
from qglow.tuning.search import Figures, Goal, Trial

__all__ = [
    "Array",
    "BaselineReport",
    "BenchResult",
    "Calibration",
    "CalibrationSamples",
    "Comparison",
    "Data",
    "DataMapping",
    "Diagnosis",
    "DriftLimits",
    "DriftReport",
    "ElementType",
    "Executable",
    "Figures",
    "Goal",
    "KernelTuning",
    "LayerReport",
    "Limits",
    "Match",
    "Model",
    "Preprocessing",
    "Profile",
    "Progress",
    "Quantization",
    "QuantizationReport",
    "QuantizedModel",
    "Recipe",
    "Rule",
    "SufficiencyReport",
    "TensorType",
    "Trial",
    "Tuning",
    "bench",
    "calibration_sufficiency",
    "check_baseline",
    "check_limits",
    "compare",
    "compare_layers",
    "diagnose",
    "load",
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
