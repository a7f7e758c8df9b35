"""TARGET of a command: an ONNX model, a quantized directory, or a compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.cli.options import parse_shapes, parse_values, read_recipe
from qglow.cli.output import note, notes
from qglow.core.errors import InputFileError, ModelError, ProfileError, UsageError
from qglow.recipe import Recipe

if TYPE_CHECKING:
    from qglow.api import Executable, Model, Profile, QuantizedModel


def open_model(
    path: Path, shape: Sequence[str] | None, native: bool = False, values: Sequence[str] = ()
) -> Model:
    """The ONNX model with these `--shape` and `--value` options; what was bound by default is said.

    native: whether nodes that would run in onnxruntime are refused.
    """
    from qglow.api import load_model

    model = load_model(path, parse_shapes(shape), values=parse_values(values), native=native)
    notes(model.bound)
    return model


def open_profiled_model(
    model: Path | None,
    profile: Profile,
    where: Path,
    shape: Sequence[str] | None,
    values: Sequence[str] = (),
) -> Model:
    """The model that a profile was taken of, or MODEL, with the shapes that it was profiled with."""
    from qglow.api import load_model

    path = profile.model.path if model is None else model
    if path is None:
        raise ModelError(f"{where} was taken of a model in memory; name MODEL before --profile")
    if model is None and not path.exists():
        raise ModelError(f"{where} was taken of {path}, which is missing; name MODEL before --profile")
    given, constants = parse_shapes(shape), {**profile.model.values, **parse_values(values)}
    if not given:
        shapes = ", ".join(f"{name}={','.join(map(str, size))}" for name, size in profile.shapes.items())
        note(f"input shapes as in the profile: {shapes}; others with --shape")
    if profile.model.values and not values:
        note(f"values of {', '.join(profile.model.values)} as in the profile; others with --value")
    try:
        return load_model(path, {**profile.shapes, **given}, values=constants)
    except UsageError as error:
        if given:
            raise
        raise ProfileError(f"{where} was taken of another model than {path}: {error}") from error


def open_graph_target(
    target: Path,
    shape: Sequence[str] | None,
    profile: Path | None = None,
    recipe: Path | None = None,
    float_model: Path | None = None,
    native: bool = False,
    values: Sequence[str] = (),
) -> Model | QuantizedModel:
    """A float model, quantized where `profile` is given, or the int8 model of a directory.

    A model that brings its own parameters is int8 too.
    """
    from qglow.api import load_profile, load_quantized
    from qglow.api.own_integers import in_own_integers
    from qglow.emulation.manifest import is_bundle

    if is_bundle(target):
        raise UsageError(
            f"{target} is a bundle, which holds code alone: qglow run takes it, and qglow compare --bundle; "
            "name the model that it was made of"
        )
    if target.is_dir():
        if native:
            raise UsageError(f"{target} is quantized already: --native goes with qglow profile")
        if shape or profile or recipe or values:
            options = "--shape, --value, --profile and --recipe"
            raise UsageError(f"{target} is quantized already: {options} do not apply")
        return load_quantized(target, float_model)
    if float_model is not None:
        raise UsageError(f"{target} is no quantized directory: --model does not apply")
    _refuse_program(target)
    model = open_model(target, shape, native, values)
    if profile is None:
        return in_own_integers(model, read_recipe(recipe))
    return model.quantize(load_profile(profile), read_recipe(recipe), check=False, repair=False)


def open_program(
    target: Path,
    shape: Sequence[str] | None,
    isa: str | None,
    trust: bool,
    threads: int | None,
    values: Sequence[str] = (),
) -> tuple[Executable, Recipe]:
    """Open a program to run: a .qglow file, a bundle, a directory's int8 program, or a model in float.

    With it comes the recipe of a quantized directory, so that its data is prepared as for profiling.
    """
    from qglow.api import QuantizedModel, load, load_bundle
    from qglow.emulation.manifest import is_bundle

    if is_bundle(target):
        if shape or values or isa:
            raise UsageError(f"{target} is a bundle: --shape, --value and --isa do not apply")
        return load_bundle(target), Recipe()
    if target.suffix == ".qglow":
        if shape or values:
            raise UsageError(f"{target} is compiled already: --shape and --value do not apply")
        return load(target, isa=isa, trust=trust, threads=threads), Recipe()
    model = open_graph_target(target, shape, values=values)
    recipe = model.recipe if isinstance(model, QuantizedModel) else Recipe()
    return model.compile(isa=isa, threads=threads), recipe


def _refuse_program(target: Path) -> None:
    if not target.exists():
        raise InputFileError(f"{target}: no such file or directory")
    if target.suffix == ".qglow":
        raise UsageError(f"{target} is a compiled program; this needs an ONNX model or a quantized directory")
