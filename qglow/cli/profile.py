"""qglow profile: what the model's values look like over calibration data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import Profile, load_model, load_profile, merge_profiles, save_profile
from qglow.cli.options import (
    IsaOption,
    ModelArgument,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    ThreadsOption,
    parse_shapes,
    read_recipe,
)
from qglow.cli.output import note, notes, say, showing_progress

OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The profile to write.")]


def profile(
    model: ModelArgument,
    data: RequiredDataOption,
    select: SelectOption = None,
    samples: SamplesOption = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="B", help="Samples a run; changes no result.")
    ] = None,
    recipe: RecipeOption = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="compiled, or interpreter (numpy, slow).")
    ] = "compiled",
    shape: ShapeOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Path("profile.yaml"),
) -> None:
    """Run a model over calibration data.

    Writes a profile: how often each of the model's values had which size.
    """
    chosen = read_recipe(recipe)
    loaded = load_model(model, parse_shapes(shape))
    notes(loaded.bound)
    with showing_progress("profiling") as progress:
        result = loaded.profile(
            data,
            batch_size=batch_size,
            engine=engine,
            select=select,
            samples=samples,
            recipe=chosen,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    _finish(result, output)


def merge(
    profiles: Annotated[list[Path], typer.Argument(metavar="PROFILE...", help="Profiles of one model.")],
    output: OutputOption = Path("profile.yaml"),
) -> None:
    """Add up profiles of one model.

    The result is what profiling all their data at once would have given.
    """
    _finish(merge_profiles([load_profile(path) for path in profiles]), output)


def _finish(result: Profile, output: Path) -> None:
    for value in result.values.values():
        statistics = value.statistics
        odd = {"NaN": statistics.nan_count, "infinite": statistics.infinity_count}
        found = " and ".join(f"{count} {what}" for what, count in odd.items() if count)
        if found:
            note(f"value '{value.name}' has {found} elements, which no range covers")
    save_profile(result, output)
    say(f"{output}: {len(result.values)} values over {result.samples} samples")
