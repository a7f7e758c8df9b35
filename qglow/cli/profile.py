"""qglow profile: what the model's values look like over calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import MODEL, OUTPUT, NativeOptions, ProfilerOptions
from qglow.cli.options import DataOptions, ModelOptions, read_recipe
from qglow.cli.output import note, say, showing_progress
from qglow.cli.targets import open_model
from qglow.core.options import Option, Writes, declare, option

if TYPE_CHECKING:
    from qglow.api import Profile

EXAMPLES = ("qglow profile model.onnx --data calibration/ --recipe recipe.yaml -o profile.yaml",)
MERGE_EXAMPLES = ("qglow profile merge first.yaml second.yaml -o profile.yaml",)

_OUTPUT = Option(
    "The profile to write", group=OUTPUT, metavar="FILE", flags=("--output", "-o"), writes=Writes.FILE
)


@dataclass(frozen=True, kw_only=True)
class ProfilingOptions(ProfilerOptions):
    """Options of how the model runs, and where the profile goes."""

    output: Path = declare(_OUTPUT, Path("profile.yaml"))


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Options of the profiles that are added up, and where the result goes."""

    profiles: Sequence[Path] = option(
        help="Profiles of one model",
        argument=True,
        metavar="PROFILE...",
        group=MODEL,
        typed=list[Path],
    )
    output: Path = declare(_OUTPUT, Path("profile.yaml"))


def profile(model: ModelOptions, nodes: NativeOptions, data: DataOptions, running: ProfilingOptions) -> None:
    """Run a model over calibration data, and write a profile of its values.

    The profile says how often each value of the model had which size. qglow quantize chooses the ranges
    of int8 from it. A few samples of the data are kept beside it, NAME.samples.npz beside NAME.yaml, so that
    qglow quantize can check its result; --keep-samples 0 keeps none.
    """
    chosen = read_recipe(model.recipe)
    loaded = open_model(model.model, model.shapes, nodes.native, model.values)
    with showing_progress("profiling") as progress:
        result = loaded.profile(
            data.data,
            batch_size=running.batch_size,
            engine=running.engine,
            select=data.select,
            samples=data.samples,
            recipe=chosen,
            keep_samples=running.keep_samples,
            isa=running.isa,
            threads=running.threads,
            scheduler=running.scheduler,
            progress=progress,
        )
    taken = [name for name in result.model.values if name not in (model.values or {})]
    if taken:
        listed = ", ".join(taken)
        note(f"values of {listed} as in the samples: they decide shapes or parameters; others with --value")
    _finish(result, running.output)


def merge(what: MergeOptions) -> None:
    """Add up profiles of one model.

    The result is what profiling all their data at once would have given.
    """
    from qglow.api import load_profile, merge_profiles

    _finish(merge_profiles([load_profile(path) for path in what.profiles]), what.output)


def _finish(result: Profile, output: Path) -> None:
    from qglow.api import save_profile
    from qglow.profiling.kept import samples_path

    for value in result.values.values():
        statistics = value.statistics
        odd = {"NaN": statistics.nan_count, "infinite": statistics.infinity_count}
        found = " and ".join(f"{count} {what}" for what, count in odd.items() if count)
        if found:
            note(f"value '{value.name}' has {found} elements, which no range covers")
    save_profile(result, output)
    if result.kept_note:
        note(result.kept_note)
    say(f"{output}: {len(result.values)} values over {result.samples} samples")
    if result.kept:
        say(f"{samples_path(output)}: {len(result.kept)} samples to check int8 models with")
