"""qglow opt: passes over a graph or a program, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import MODEL, OUTPUT, CustomOperatorOptions
from qglow.cli.options import SHAPES, VALUES, parse_shapes, parse_values
from qglow.cli.output import listing, note, say
from qglow.core.errors import UsageError
from qglow.core.options import Bounds, Writes, declare, option

if TYPE_CHECKING:
    from qglow.core.passes import PassLog
    from qglow.graph.graph import Graph
    from qglow.instructions.program import Program

PASSES = "Passes"
EXAMPLES = (
    "qglow opt model.onnx --dump-each steps",
    'qglow opt model.onnx -p "fold-constants,fold-batchnorm" --stop-after 3',
)


@dataclass(frozen=True, kw_only=True)
class TextOptions(CustomOperatorOptions):
    """A model, or an IR as text."""

    model: Path = option(
        help="ONNX model, quantized directory, or text of a graph or program",
        more="A text has its constants beside it, in a file of the same name that ends in .npz.",
        argument=True,
        metavar="MODEL",
        group=MODEL,
    )
    shapes: Sequence[str] = declare(SHAPES, ())
    values: Sequence[str] = declare(VALUES, ())


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """Options of which passes run, and how far."""

    passes: str | None = option(
        None,
        "Passes in order, with options in braces [default: qglow's own]",
        more="Passes over graphs come first; where passes over programs follow, the graph is lowered in "
        "between. A graph's own passes make it canonical, a program's are those before kernels are chosen.",
        group=PASSES,
        metavar='"NAME,NAME{option=1}"',
        flags=("--passes", "-p"),
    )
    stop_after: int | None = option(
        None,
        "Stop after this number of rewrites",
        group=PASSES,
        metavar="N",
        bounds=Bounds(0),
        expected="a number of rewrites, at least 0",
    )


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """Options of what is written."""

    dump_each: Path | None = option(
        None,
        "Directory for the graph or program after each pass, as text",
        group=OUTPUT,
        metavar="DIR",
        writes=Writes.FOLDER,
    )
    log: bool = option(False, "Print every rewrite, and every refused one with the reason", group=OUTPUT)
    output: Path | None = option(
        None,
        "Text file to write, constants beside it [default: print the text]",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def opt(model: TextOptions, run: PassOptions, written: DumpOptions) -> None:
    """Run passes over a model and print what they leave.

    An ONNX model is taken as it was imported, before any pass. Prints the text of the graph or, where
    passes over programs were run, of the program; how many rewrites each pass did goes to standard error.
    """
    from qglow.bisection.passes import default_steps, parse_steps, run_steps
    from qglow.bisection.texts import print_ir, read_ir, write_ir
    from qglow.core.passes import PassLog

    ir = read_ir(model.model, parse_shapes(model.shapes), parse_values(model.values))
    steps = default_steps(ir) if run.passes is None else parse_steps(run.passes)
    log = PassLog(budget=run.stop_after)
    after_each = None if written.dump_each is None else _Dump(written.dump_each)
    if after_each is not None:
        after_each("input", ir)
    left = run_steps(ir, steps, log, after_each)
    for line in _summary(log, written.log):
        note(line)
    if written.output is None:
        listing(print_ir(left))
        return
    write_ir(left, written.output)
    say(f"{written.output}, constants in {written.output.with_suffix('.npz').name}")


class _Dump:
    """Writes what each step leaves to NUMBER-NAME.txt in a directory, constants beside it."""

    def __init__(self, folder: Path) -> None:
        if folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty; name another directory", field="dump_each")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._count = folder, 0

    def __call__(self, name: str, ir: Graph | Program) -> None:
        from qglow.bisection.texts import write_ir

        write_ir(ir, self._folder / f"{self._count:02}-{name}.txt")
        self._count += 1


def _summary(log: PassLog, every: bool) -> list[str]:
    if every:
        return [
            f"{entry.pass_name}: {entry.where}: {'' if entry.applied else 'refused: '}{entry.what}"
            for entry in log.entries
        ]
    counts: dict[str, int] = {}
    for entry in log.entries:
        if entry.applied:
            counts[entry.pass_name] = counts.get(entry.pass_name, 0) + 1
    listed = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
    return [f"{log.rewrites} rewrites: {listed}"]
