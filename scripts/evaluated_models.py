"""The models that the measurements of the README run on, with their data and how it is split.

The example lies in calib_data/; the others in a folder of models and labelled data, QGLOW_ZOO
(default ../shared/zoo). Every split calibrates on samples that are not evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow import CalibrationSamples, Model, Profile, QuantizedModel, Recipe, load_model, load_recipe
from qglow.api.data import open_samples
from qglow.core.errors import InputFileError, UsageError
from qglow.profiling.samples import Sample

REPOSITORY = Path(__file__).resolve().parents[1]
ZOO = Path(os.environ.get("QGLOW_ZOO", REPOSITORY.parent / "shared" / "zoo"))


@dataclass(frozen=True)
class Split:
    """Samples of `data`: those that `select` and `samples` name, less every n-th (`leave_out`)."""

    data: str
    select: str | None = None
    samples: int | None = None
    leave_out: int | None = None

    def read(self, model: EvaluatedModel, loaded: Model, limit: int | None = None) -> Iterator[Sample]:
        """The samples, at most `limit` of them, as inputs of the model."""
        opened = open_samples(
            str(model.root / self.data),
            loaded.inputs,
            recipe=model.recipe,
            select=self.select,
            samples=self.samples,
        )
        count = 0
        for index, sample in enumerate(opened):
            if self.leave_out is not None and index % self.leave_out == 0:
                continue
            if limit is not None and count == limit:
                return
            count += 1
            yield sample


@dataclass(frozen=True)
class EvaluatedModel:
    """A model, its recipe, and the samples that it is calibrated and evaluated on."""

    name: str
    root: Path
    file: str
    calibration: Split
    evaluation: Split

    @property
    def path(self) -> Path:
        """The ONNX file."""
        return self.root / self.file

    @property
    def recipe(self) -> Recipe:
        """The recipe in recipes/, which has the preprocessing and the names of arrays; else the default."""
        path = REPOSITORY / "recipes" / f"{self.name}.yaml"
        return load_recipe(path) if path.exists() else Recipe()

    def load(self) -> Model:
        """The float model with batch 1. Raises InputFileError where its file is missing."""
        if not self.path.exists():
            raise InputFileError(f"{self.path} is missing; QGLOW_ZOO names the folder with models and data")
        return load_model(self.path)

    def profile(self, loaded: Model) -> Profile:
        """Over the samples of calibration."""
        split = self.calibration
        data = self.root / split.data
        return loaded.profile(data, select=split.select, samples=split.samples, recipe=self.recipe)

    def quantize(self, loaded: Model, profile: Profile, effort: str) -> QuantizedModel:
        """By the recipe and an effort, which sees the samples of calibration."""
        split = self.calibration
        samples = CalibrationSamples(self.root / split.data, split.select, split.samples)
        return loaded.quantize(profile, self.recipe, effort=effort, calibration_data=samples)


MODELS = (
    EvaluatedModel("digits", REPOSITORY / "calib_data", "digits.onnx", Split("calib.npz"), Split("test.npz")),
    EvaluatedModel(
        "squeezenet1.1",
        ZOO,
        "models/squeezenet1.1.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "mobilenetv2_tin202",
        ZOO,
        "models/mobilenetv2_tin202.onnx",
        Split("data/tin202/calib", "::5", 121),
        Split("data/tin202/test", "::2"),
    ),
    EvaluatedModel(
        "resnet50v2s3_tin202",
        ZOO,
        "models/resnet50v2s3_tin202.onnx",
        Split("data/tin202/calib", "::5", 121),
        Split("data/tin202/test", "::4"),
    ),
    EvaluatedModel(
        "cifar10_resnet20",
        ZOO,
        "models/cifar10_resnet20.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlkws_ds_cnn_l",
        ZOO,
        "models/mlkws_ds_cnn_l.onnx",
        Split("data/speech_commands_350.npz", "::4"),
        Split("data/speech_commands_350.npz", leave_out=4),
    ),
    EvaluatedModel(
        "squeezenet1.1_caffe",
        ZOO,
        "models/squeezenet1.1_caffe.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "mobilenet_v1_0.25_224",
        ZOO,
        "models/mobilenet_v1_0.25_224.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "cifar10_resnet32",
        ZOO,
        "models/cifar10_resnet32.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlperftiny_resnet8",
        ZOO,
        "models/mlperftiny_resnet8.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlperftiny_kws_dscnn",
        ZOO,
        "models/mlperftiny_kws_dscnn.onnx",
        Split("data/kws01_mfcc.npz", "::4"),
        Split("data/kws01_mfcc.npz", leave_out=4),
    ),
    EvaluatedModel(
        "mlkws_dnn_l",
        ZOO,
        "models/mlkws_dnn_l.onnx",
        Split("data/speech_commands_350.npz", "::4"),
        Split("data/speech_commands_350.npz", leave_out=4),
    ),
    EvaluatedModel(
        "mnist_8",
        ZOO,
        "models/mnist_8.onnx",
        Split("data/mnist_t10k.npz", "::20"),
        Split("data/mnist_t10k.npz", "1::2"),
    ),
)

_COCO = (Split("data/coco256/calib"), Split("data/coco256/val"))
TASK_MODELS = (
    EvaluatedModel("mlperftiny_vww96", ZOO, "models/mlperftiny_vww96.onnx", *_COCO),
    EvaluatedModel("fastestdet", ZOO, "models/fastestdet.onnx", *_COCO),
    EvaluatedModel("yolox_nano", ZOO, "models/yolox_nano.onnx", Split("data/coco256/calib", "::2"), _COCO[1]),
    EvaluatedModel("ultraface_rfb320", ZOO, "models/unlabelled/ultraface_rfb320.onnx", *_COCO),
    EvaluatedModel("yunet_n_320", ZOO, "models/unlabelled/yunet_n_320.onnx", *_COCO),
    EvaluatedModel(
        "super_resolution_10",
        ZOO,
        "models/super_resolution_10.onnx",
        Split("data/imagenet_sample", "::50"),
        Split("data/imagenet_sample"),
    ),
    EvaluatedModel(
        "deeplabv3_mnv2_voc",
        ZOO,
        "models/deeplabv3_mnv2_voc.onnx",
        Split("data/coco256/calib", "::5"),
        _COCO[1],
    ),
)
"""Those whose answers top-1 does not measure."""


def chosen_models(names: Sequence[str], models: Sequence[EvaluatedModel] = MODELS) -> list[EvaluatedModel]:
    """Those of `models` that have these names, in their order; all for no names. Raises UsageError."""
    unknown = sorted(set(names) - {model.name for model in models})
    if unknown:
        known = ", ".join(model.name for model in models)
        raise UsageError(f"no model is called {', '.join(unknown)}; there are {known}")
    return [model for model in models if not names or model.name in names]
