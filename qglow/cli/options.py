"""Options and arguments that several commands take, declared once, and how their text is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from qglow.api import Recipe, load_recipe
from qglow.core.errors import UsageError

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.")]
TargetArgument = Annotated[
    Path, typer.Argument(metavar="TARGET", help="An ONNX model or a directory that qglow quantize wrote.")
]
FloatModelOption = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE", help="Where a quantized directory's float model is now."),
]
ProfileOption = Annotated[
    Path | None, typer.Option("--profile", metavar="FILE", help="A profile to quantize the model with.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A directory of images, .npy, .npz, ONNX test_data_set directories or package.module:function.",
    ),
]
RequiredDataOption = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A directory of images, .npy, .npz, ONNX test_data_set directories or package.module:function.",
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Labels of the data: labels.csv, or .npy for arrays."),
]
SelectOption = Annotated[
    str | None, typer.Option("--select", metavar="START:STOP:STEP", help="Which samples, as Python slices.")
]
SamplesOption = Annotated[
    int | None, typer.Option("--samples", metavar="N", help="Only the first N of the selected samples.")
]
RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", metavar="FILE", help="Preprocessing and quantization, as YAML.")
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,224,224", help="The shape of an input. Repeatable."),
]
IsaOption = Annotated[
    str | None,
    typer.Option(
        "--isa",
        metavar="NAME",
        help="generic, avx2, avxvnni, avx512vnni, avx512vbmi or amx [QGLOW_ISA, or the host's best].",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads that may share a call [QGLOW_THREADS, or the physical cores available].",
    ),
]


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by input name from "input=1,3,224,224". Raises UsageError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        # The last equals sign: names may hold one, numbers do not.
        name, equals, sizes = text.rpartition("=")
        try:
            shape = tuple(int(size) for size in sizes.replace("x", ",").split(",")) if sizes else ()
        except ValueError:
            equals = ""
        if not (name and equals):
            raise UsageError(f"--shape {text}: write INPUT=1,3,224,224")
        if name in shapes:
            raise UsageError(f"--shape {name} is given twice")
        shapes[name] = shape
    return shapes


def read_recipe(path: Path | None, **overrides: Any) -> Recipe:
    """The recipe of `--recipe` (defaults without one) under the values that options gave."""
    recipe = Recipe() if path is None else load_recipe(path)
    return recipe.with_overrides(**overrides)


def parse_smooth(text: str) -> bool | float:
    """The value of --smooth: true, false or an exponent. Raises UsageError."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"--smooth {text}: true, false or an exponent from 0 to 1") from error
