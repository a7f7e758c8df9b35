"""qglow bisect: the first rewrite, kernel or node that makes a difference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import DATA, LIMITS, MODEL, OUTPUT, RUN
from qglow.cli.opt import TextOptions
from qglow.cli.options import RECIPE, parse_shapes, parse_values, read_recipe
from qglow.cli.output import say
from qglow.core.errors import ComparisonFailed, UsageError
from qglow.core.options import Bounds, Writes, declare, option

if TYPE_CHECKING:
    from qglow.core.types import Array
    from qglow.graph.graph import Graph
    from qglow.instructions.program import Program

EXAMPLES = (
    "qglow bisect model.quantized --isa avx2 --against generic",
    'qglow bisect model.onnx --passes "fold-constants,fold-batchnorm"',
    "qglow bisect model.onnx --profile p.yaml --data samples.npy --min-sqnr 20",
)
FLOAT_TOLERANCE = 1e-4
"""Passes round floats otherwise, and interpreters have no fused multiply-add."""


@dataclass(frozen=True, kw_only=True)
class ComparedOptions:
    """Options of the sides that are compared."""

    isa: str | None = option(
        None, "Target whose kernels to check [default: the host's best]", group=RUN, metavar="NAME"
    )
    against: str | None = option(
        None, "Target to compare with [default: reference]", group=RUN, metavar="NAME"
    )
    passes: str | None = option(
        None,
        "Look for a wrong rewrite of these passes, '' for qglow's own",
        more="Outputs are compared with those before any rewrite, both in the interpreter.",
        group=RUN,
        metavar="PASSES",
        flags=("--passes", "-p"),
    )
    against_passes: str | None = option(
        None, "Another list of passes to check, after the first", group=RUN, metavar="PASSES"
    )
    min_sqnr: float | None = option(
        None,
        "Look for the int8 node that brings an output's SQNR below this",
        more="Needs --profile and an ONNX model.",
        group=LIMITS,
        metavar="DB",
    )
    tolerance: float = option(
        FLOAT_TOLERANCE,
        "Largest difference of floats to ignore, relative to the largest",
        more="Integers have to be equal.",
        group=LIMITS,
        metavar="SHARE",
        bounds=Bounds(0.0),
        expected="a share, at least 0",
    )


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options of the samples to compare on."""

    profile: Path | None = option(None, "Profile of the model", group=MODEL, metavar="FILE")
    recipe: Path | None = declare(RECIPE, None)
    data: str | None = option(
        None,
        "Samples, or the inputs.npz of a minimal model [default: random]",
        group=DATA,
        metavar="PATH",
        reads=True,
    )
    select: str | None = option(None, "Samples to use, as a Python slice", group=DATA, metavar="SLICE")


@dataclass(frozen=True, kw_only=True)
class FoundOptions:
    """Options of the files that are written."""

    output: Path | None = option(
        None,
        "Directory for a minimal model that shows the difference",
        more="It holds minimal.txt with its constants, inputs.npz and, of a rewrite, after.txt.",
        group=OUTPUT,
        metavar="DIR",
        flags=("--output", "-o"),
        writes=Writes.FOLDER,
    )


def bisect(model: TextOptions, what: ComparedOptions, on: SampleOptions, written: FoundOptions) -> None:
    """Find the first step that makes a difference.

    Without other options, the first kernel whose result differs from the interpreter's. The program is
    not changed by being looked at: every buffer is compared where it lies. Exits with 1 where a
    difference is found, and with 0 where there is none.
    """
    if written.output is not None and written.output.is_dir() and any(written.output.iterdir()):
        raise UsageError(f"{written.output} is not empty; name another directory", field="output")
    if what.min_sqnr is not None:
        _node(model, what, on, what.min_sqnr)
        return
    from qglow.bisection.inputs import read_inputs
    from qglow.bisection.texts import read_ir

    ir = read_ir(model.model, parse_shapes(model.shapes), parse_values(model.values))
    (inputs,) = read_inputs(ir, on.data, read_recipe(on.recipe), on.select)
    if what.passes is not None or what.against_passes is not None:
        _rewrite(ir, inputs, what, written.output)
    else:
        _kernel(ir, inputs, what, written.output, model.model.suffix == ".onnx")


def _rewrite(
    ir: Graph | Program, inputs: dict[str, Array], what: ComparedOptions, folder: Path | None
) -> None:
    from qglow.bisection.minimal import write_rewrite
    from qglow.bisection.passes import default_steps, parse_steps
    from qglow.bisection.rewrites import first_rewrite

    for text in (what.passes, what.against_passes):
        if text is None:
            continue
        steps = parse_steps(text) if text else default_steps(ir)
        found = first_rewrite(ir, steps, inputs, what.tolerance)
        if found is None:
            continue
        say(f"rewrite {found.number} makes the first difference: {found.entry.pass_name} at "
            f"'{found.entry.where}': {found.entry.what}", str(found.difference))  # fmt: skip
        if folder is not None:
            write_rewrite(folder, found, inputs, what.tolerance)
            say(f"{folder}: minimal.txt, after.txt, inputs.npz; repeat it with: qglow bisect "
                f"{folder}/minimal.txt --data {folder}/inputs.npz -p {found.entry.pass_name}")  # fmt: skip
        raise ComparisonFailed(f"the pass {found.entry.pass_name} changes results")
    say("no rewrite makes a difference")


def _kernel(
    ir: Graph | Program, inputs: dict[str, Array], what: ComparedOptions, folder: Path | None, is_onnx: bool
) -> None:
    from qglow.bisection.kernels import first_kernel
    from qglow.bisection.minimal import minimal_program, write_minimal
    from qglow.graph.graph import Graph
    from qglow.passes.pipeline import canonicalize
    from qglow.targets.capabilities import stepped
    from qglow.targets.registry import find_target, select_target
    from qglow.toolchain.compilation import lower_graph

    left, right = stepped(select_target(what.isa)), stepped(find_target(what.against or "reference"))
    names = f"{left.description.name} and {right.description.name}"
    program = lower_graph(canonicalize(ir) if is_onnx else ir) if isinstance(ir, Graph) else ir
    found = first_kernel(program, left, right, inputs, what.tolerance)
    if found is None:
        say(f"no kernel makes a difference between {names}")
        return
    steps = zip(found.instructions, found.kernels, strict=True)
    listed = ", ".join(f"%{name} ({kernel})" for name, kernel in steps)
    say(f"the first difference between {names}, after {found.compared} equal results: {listed}",
        f"from {', '.join(found.nodes)}", str(found.difference))  # fmt: skip
    if folder is not None:
        made = minimal_program(program, found, left, right, inputs, what.tolerance)
        write_minimal(folder, made.program, made.inputs)
        say(f"{folder}: minimal.txt, inputs.npz; repeat it with: qglow bisect {folder}/minimal.txt "
            f"--data {folder}/inputs.npz --isa {left.description.name} "
            f"--against {right.description.name}")  # fmt: skip
    raise ComparisonFailed(f"{names} differ")


def _node(model: TextOptions, what: ComparedOptions, on: SampleOptions, limit: float) -> None:
    from qglow.bisection.inputs import read_inputs
    from qglow.bisection.nodes import first_node
    from qglow.profiling.profile_file import load
    from qglow.toolchain.loaded import read_profiled_model

    folder = Path(model.model)
    if folder.is_dir():
        raise UsageError(
            "an int8 node is looked for in the float model that a directory was made of: give that, "
            f"`profile` {folder / 'profile.yaml'} and `recipe` {folder / 'recipe.yaml'}",
            field="min_sqnr",
        )
    if on.profile is None or on.data is None:
        raise UsageError("an int8 node is looked for with `profile` and `data`", field="min_sqnr")
    profile = load(on.profile)
    loaded = read_profiled_model(profile, model.model)
    recipe = read_recipe(on.recipe)
    runs = read_inputs(loaded.graph, on.data, recipe, on.select, runs=4)
    statistics = profile.check_matches(loaded.graph)
    found = first_node(loaded.graph, statistics, profile.samples, recipe, runs, limit)
    if found is None:
        say(f"the int8 model keeps to {limit:g} dB")
        return
    say(f"int8 node {found.number} is the first to miss {limit:g} dB: '{found.node}' ({found.operator})")
    say(f"SQNR is {found.before:.1f} dB without it, {found.after:.1f} dB with it; the fault is in it or in")
    say(f"the range of a value that it reads. Try --keep-float '{found.node}', or see why:")
    given = "" if on.recipe is None else f" --recipe {on.recipe}"
    say(f"qglow explain {model.model} '{found.node}' --profile {on.profile}{given}")
    raise ComparisonFailed(f"node '{found.node}' in int8 misses {limit:g} dB")
