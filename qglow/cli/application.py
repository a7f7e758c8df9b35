"""The Typer application, before it has commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qglow.cli.help import PlainGroup
from qglow.core.version import __version__

_EXAMPLES = (
    "qglow profile model.onnx --data calibration/ --recipe recipe.yaml -o profile.yaml",
    "qglow quantize --profile profile.yaml -o model.quantized",
    "qglow compare model.quantized --data test/ --labels labels.csv",
)


class TwoWordGroup(PlainGroup):
    """Finds commands of two words ("profile merge") beside those of one ("profile").

    A group "profile" would take the model's path for the name of one of its commands.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first words name, and the words after it."""
        if " ".join(args[:2]) in self.commands:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)


def new_application() -> typer.Typer:
    """The application with its own options and no commands yet."""
    app = typer.Typer(
        cls=TwoWordGroup,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="\n".join(_EXAMPLES),
    )
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"qglow {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Valid after any command.")
    ] = False,
) -> None:
    """Turn a trained ONNX model into an int8 program that is compiled and checked.

    The usual way: profile a model over calibration data, quantize it with that profile, compare
    the result with onnxruntime on other data.
    """
