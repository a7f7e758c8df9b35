"""qglow compile: a program for this processor, or the instructions that it would be made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import CACHE, MODEL, OUTPUT, PIECE, RUN, DeviceOptions, NativeOptions
from qglow.cli.options import KEPT_STATES, TargetOptions, names_programs, parse_programs, parse_states
from qglow.cli.output import listing, notes, say, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import Writes, declare, option

if TYPE_CHECKING:
    from qglow.api import Model, QuantizedModel

_LISTED_KERNELS = 8
EXAMPLES = (
    "qglow compile model.quantized --tune -o model.qglow",
    "qglow compile encoder.onnx --shape ids=1,1..64 --shape ids=1,1..512 -o encoder.qglow",
    "qglow compile model.quantized --target cortex-m4 --emit-bundle build/model",
    "qglow compile model.quantized --emit c --emit-bundle build/model",
)


@dataclass(frozen=True, kw_only=True)
class CompileFlags(DeviceOptions):
    """Options of compilation, and of what is written."""

    tune: bool = option(False, "Time kernels on this processor first, and keep the best for later", group=RUN)
    context: int | None = option(
        None,
        "Compile a language model for qglow generate, with as many tokens at most",
        group=MODEL,
        metavar="N",
    )
    piece: int = declare(PIECE, 64)
    cache: str = declare(CACHE, "float32")
    states: Sequence[str] = declare(KEPT_STATES, ())
    dump_ir: bool = option(False, "Print the instruction program instead of compiling", group=OUTPUT)
    emit: str | None = option(
        None,
        "Write C99 sources, for any compiler: the same as --target c, into the folder of --emit-bundle",
        group=OUTPUT,
        choices=("c",),
    )
    emit_bundle: Path | None = option(
        None,
        "Write a C library with header, weights and self-test, which runs without qglow, into this folder",
        group=OUTPUT,
        metavar="DIR",
        writes=Writes.FILE_OR_FOLDER,
    )
    output: Path | None = option(
        None,
        "The program to write [default: TARGET's name with .qglow or .bundle]",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE_OR_FOLDER,
    )


def compile(model: TargetOptions, nodes: NativeOptions, how: CompileFlags) -> None:
    """Compile a model to one .qglow file, or to a bundle for a target that runs without Python.

    An ONNX model is compiled in float; a quantized directory, or an ONNX model that is quantized already,
    in int8.

    --shape may be given several times, and with ranges, as ids=1,1..512: the .qglow file then has a program
    for each shape, all with the same weights.

    --tune times settings of kernels for every shape of a layer, and keeps the best in the user's cache for
    every later compilation. Results stay the same bits. It can be interrupted, and goes on where it was.
    """
    from qglow.toolchain.files import suffix_for

    if how.emit is not None:
        how = _with_sources(how)
    several = names_programs(model.shapes) or (bool(model.shapes) and model.target.is_dir())
    shapes = () if several else model.shapes
    loaded = open_graph_target(model.target, shapes, native=nodes.native, values=model.values)
    if several and (how.dump_ir or how.tune or how.emit_bundle):
        raise UsageError(
            "--dump-ir, --tune and --emit-bundle are for one program: give one --shape, no ranges"
        )
    if how.dump_ir:
        listing(loaded.text("instructions"))
    if how.dump_ir and how.output is None:
        return
    if how.tune:
        _tune(loaded, how.isa)
    if how.emit_bundle is not None:
        if how.output is not None:
            raise UsageError("--output is for a program, --emit-bundle for a bundle: give one of them")
        limits = {"max_arena": how.max_arena, "max_flash": how.max_flash}
        states = parse_states(how.states)
        notes(loaded.save_bundle(how.emit_bundle, isa=how.isa, threads=how.threads, states=states, **limits))
        _say_size(how.emit_bundle)
        _say_memory(how.emit_bundle)
        return
    if how.max_arena or how.max_flash or how.threads > 1:
        raise UsageError("--max-arena, --max-flash and --threads are for bundles: they need --emit-bundle")
    if how.states and how.context is None:
        raise UsageError("--state is for bundles and language models: it needs --emit-bundle or --context")
    path = how.output or Path(f"{model.target.resolve().stem}{suffix_for(how.isa)}")
    if how.context is not None:
        from qglow.api import save_generator

        if several or model.shapes:
            raise UsageError("--context says which shapes there are: give no --shape")
        save_generator(
            loaded,
            path,
            parse_states(how.states),
            context=how.context,
            piece=how.piece,
            cache=how.cache,
            isa=how.isa,
        )
        _say_size(path)
        return
    notes(loaded.save_program(path, isa=how.isa, shapes=parse_programs(model.shapes) if several else None))
    _say_size(path)


def _with_sources(how: CompileFlags) -> CompileFlags:
    """The options that --emit c stands for. Raises UsageError for another target, and without a folder."""
    if how.isa not in (None, how.emit):
        raise UsageError(f"--emit {how.emit} is for any processor: give no --target")
    if how.emit_bundle is None:
        raise UsageError(f"--emit {how.emit} writes a folder: name it with --emit-bundle")
    return replace(how, isa=how.emit)


def _say_size(path: Path) -> None:
    from qglow.display.blocks import byte_count

    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    say(f"{path}: {byte_count(sum(file.stat().st_size for file in files))}")


def _say_memory(bundle: Path) -> None:
    """The memory that a bundle takes on its device, and the largest of its kernels."""
    from qglow.display.blocks import byte_count
    from qglow.emulation.manifest import is_bundle, read_manifest

    if not is_bundle(bundle):
        return  # of a target of another package, which writes what it likes
    known = read_manifest(bundle)
    sizes = {"weights": known.weights_bytes, "arena": known.arena_bytes}
    if not known.sources:  # a compiler is to come that decides about the size of code
        sizes = {"code": known.code_bytes, **sizes}
    say(", ".join(f"{name} {byte_count(size)}" for name, size in sizes.items()))
    largest = sorted(known.kernels.items(), key=lambda item: -item[1])
    for name, size in largest[:_LISTED_KERNELS]:
        say(f"  {byte_count(size):>9}  {name}")
    if len(largest) > _LISTED_KERNELS:
        others = largest[_LISTED_KERNELS:]
        rest = byte_count(sum(size for _, size in others))
        say(f"  {rest:>9}  {len(others)} other functions; {known.prefix}.json has all")


def _tune(model: Model | QuantizedModel, isa: str | None) -> None:
    with showing_progress("measuring", unit="kernels") as progress:
        found = model.tune_kernels(isa=isa, progress=progress)
    say(
        f"{found.kernels} kernels for {found.shapes} shapes measured: others than estimated for "
        f"{found.changed}, {found.gain:.3f} times as fast"
    )
