"""A model that benchmarks run on, with its recipe, its data, and how the data is split.

The example lies in calib_data/; the others in a folder of models and labelled data, QGLOW_ZOO
(default ../shared/zoo beside the checkout).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow import CalibrationSamples, Model, Profile, QuantizedModel, Recipe, load_model, load_recipe
from qglow.core.errors import InputFileError, UsageError
from qglow.profiling.samples import Sample
from qglow.toolchain.samples import open_samples

REPOSITORY = Path(__file__).resolve().parents[3]
ZOO = Path(os.environ.get("QGLOW_ZOO", REPOSITORY.parent / "shared" / "zoo"))
TIMING_SAMPLES = 8
"""Samples that models are calibrated on for timing: ranges hardly matter for speed."""


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
    """A model, its recipe, and the samples that it is calibrated and evaluated on.

    shapes: of inputs whose file leaves more than the batch open.
    """

    name: str
    root: Path
    file: str
    calibration: Split
    evaluation: Split
    shapes: Mapping[str, Sequence[int]] | None = None

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
        """The float model, with batch 1 unless its shapes say otherwise.

        Raises InputFileError where its file is missing.
        """
        if not self.path.exists():
            raise InputFileError(f"{self.path} is missing; QGLOW_ZOO names the folder with models and data")
        return load_model(self.path, self.shapes)

    @property
    def calibration_samples(self) -> CalibrationSamples:
        """The samples of calibration, as quantization takes them."""
        split = self.calibration
        return CalibrationSamples(self.root / split.data, split.select, split.samples)

    def profile(self, loaded: Model, samples: int | None = None) -> Profile:
        """Over the samples of calibration, or the first few of them."""
        split = self.calibration
        data, count = self.root / split.data, split.samples if samples is None else samples
        return loaded.profile(data, select=split.select, samples=count, recipe=self.recipe)

    def quantize(self, loaded: Model, profile: Profile, effort: str) -> QuantizedModel:
        """By the recipe and an effort, which sees the samples of calibration."""
        return loaded.quantize(profile, self.recipe, effort=effort, calibration_data=self.calibration_samples)

    def quantize_for_timing(self, loaded: Model) -> QuantizedModel:
        """By the recipe, calibrated on a few samples."""
        return loaded.quantize(self.profile(loaded, TIMING_SAMPLES), self.recipe, repair=False)


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise UsageError for names that are not known."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(f"no model is called {', '.join(unknown)}; there are {', '.join(known)}")


def chosen_models(names: Sequence[str], models: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """Those of `models` that have these names, in their order; all for no names. Raises UsageError."""
    check_names(names, [model.name for model in models])
    return [model for model in models if not names or model.name in names]
