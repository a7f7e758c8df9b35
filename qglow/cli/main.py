"""Entry point of the console script `qglow`."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from qglow.cli import (
    bench,
    bisect,
    check,
    compare,
    compile,
    cut,
    drift,
    explain,
    generate,
    import_gguf,
    inspect,
    known_targets,
    ops,
    opt,
    profile,
    quantize,
    recipe,
    run,
    sufficiency,
    tune,
)
from qglow.cli.application import new_application
from qglow.cli.command import Command, add_command
from qglow.cli.failure import guarded
from qglow.cli.flags import flags_of
from qglow.cli.paths import check_word

_DEBUG = "--debug"
_MADE = 20_000
"""Objects that a command makes before the collector looks for cycles: its graphs have hundreds of thousands,
nearly all of which stay."""

COMMANDS = {
    "profile": Command(profile.profile, profile.EXAMPLES),
    "profile merge": Command(profile.merge, profile.MERGE_EXAMPLES),
    "profile drift": Command(drift.drift, drift.EXAMPLES),
    "profile sufficiency": Command(sufficiency.sufficiency, sufficiency.EXAMPLES),
    "quantize": Command(quantize.quantize, quantize.EXAMPLES),
    "tune": Command(tune.tune, tune.EXAMPLES),
    "compare": Command(compare.compare, compare.EXAMPLES),
    "check": Command(check.check, check.EXAMPLES),
    "compile": Command(compile.compile, compile.EXAMPLES),
    "run": Command(run.run, run.EXAMPLES),
    "generate": Command(generate.generate, generate.EXAMPLES),
    "bench": Command(bench.bench, bench.EXAMPLES),
    "inspect": Command(inspect.inspect, inspect.EXAMPLES),
    "explain": Command(explain.explain, explain.EXAMPLES),
    "import-gguf": Command(import_gguf.import_gguf, import_gguf.EXAMPLES),
    "cut": Command(cut.cut, cut.EXAMPLES),
    "opt": Command(opt.opt, opt.EXAMPLES),
    "bisect": Command(bisect.bisect, bisect.EXAMPLES),
    "ops": Command(ops.ops, ops.EXAMPLES),
    "targets": Command(known_targets.targets, known_targets.EXAMPLES),
    "recipe show": Command(recipe.show, recipe.EXAMPLES),
}
"""All commands in the order of the help."""

app = new_application()
for _name, _command in COMMANDS.items():
    add_command(app, _name, _command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's) and return the exit code.

    0 success, 1 a comparison failed, 2 wrong usage, 3 unsupported model, 4 bad or stale input
    file, 5 regression against a baseline, 6 more memory needed than allowed, 70 internal error,
    130 interrupted.
    """
    if arguments is None:
        gc.set_threshold(_MADE)
        gc.freeze()  # what is imported stays to the end: the collector need not look at it again and again
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is no error
            stream.reconfigure(errors="backslashreplace")
    debug = _DEBUG in words
    words = [word for word in words if word != _DEBUG] or ["--help"]
    command = command_group()
    flags = flags_of(_command_of(command, words))

    def run() -> object:
        for word in words:
            check_word(word)
        return command.main(words, prog_name="qglow", standalone_mode=False)

    return guarded(run, debug, flags)


@cache
def command_group() -> Any:
    """The application as a group of commands: a process that runs many command lines makes it once."""
    return typer.main.get_command(app)


def _command_of(group: Any, words: Sequence[str]) -> Any:
    """The command that a command line names, else the group of all."""
    found = group.commands.get(" ".join(words[:2]))
    return found or group.commands.get(words[0], group)


if __name__ == "__main__":
    sys.exit(main())
