"""Entry point of the console script `qglow`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import typer

from qglow.cli import (
    bench,
    check,
    compare,
    compile,
    drift,
    explain,
    inspect,
    ops,
    profile,
    quantize,
    recipe,
    run,
    sufficiency,
    tune,
)
from qglow.cli.application import new_application
from qglow.cli.failure import guarded

_DEBUG = "--debug"

app = new_application()
app.command("profile")(profile.profile)
app.command("profile merge")(profile.merge)
app.command("profile drift")(drift.drift)
app.command("profile sufficiency")(sufficiency.sufficiency)
app.command("quantize")(quantize.quantize)
app.command("tune")(tune.tune)
app.command("compare")(compare.compare)
app.command("check")(check.check)
app.command("compile")(compile.compile)
app.command("run")(run.run)
app.command("bench")(bench.bench)
app.command("inspect")(inspect.inspect)
app.command("explain")(explain.explain)
app.command("ops")(ops.ops)
app.command("recipe show")(recipe.show)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's) and return the exit code.

    0 success, 1 a comparison failed, 2 wrong usage, 3 unsupported model, 4 bad or stale input
    file, 5 regression against a baseline, 70 internal error, 130 interrupted.
    """
    if arguments is None:
        gc.freeze()  # what is imported stays to the end: the collector need not look at it again and again
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = _DEBUG in words
    words = [word for word in words if word != _DEBUG] or ["--help"]
    command = typer.main.get_command(app)
    return guarded(lambda: command.main(words, prog_name="qglow", standalone_mode=False), debug)


if __name__ == "__main__":
    sys.exit(main())
