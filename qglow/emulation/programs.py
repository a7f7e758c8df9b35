"""Building and running of the program that runs a bundle in an emulator.

The C compiler and linker is zig's, which comes as a Python package and knows every processor; QEMU is the
system's. Both are asked for only where a bundle is for another processor.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from qglow.bundles.texts import board_texts
from qglow.bundles.zig import run_zig
from qglow.core.errors import ArtefactError, UsageError
from qglow.emulation.machines import Emulator

_COMMON = ("runner.h", "memory.c")
_SECONDS = 600
"""Longest time of an emulated run."""
_PER_PROCESSOR = 9
"""First QEMU whose plugins have version 2 of its interface, and no longer version 1."""
_REASONS = {
    11: "the arena is not aligned",
    12: "the weights are not aligned",
    13: "the emulated processor lacks instructions that the code uses",
    14: "the header belongs to another build",
    15: "the weights belong to another build",
    20: "the self-test fails",
    30: "the check accepts memory that is not aligned",
    31: "memory beside the arena was written",
    40: "the input ends too early",
    41: "the output cannot be written",
    42: "the files of the host cannot be opened",
    43: "the processor faulted",
    44: "the system protects no pages",
}


def build(
    folder: Path, prefix: str, arena_bytes: int, tensor_bytes: int, emulator: Emulator, result: Path
) -> None:
    """Build the program that runs the bundle in `folder` over samples, as samples.c.in says.

    arena_bytes: of the self-test. tensor_bytes: of all tensors, each with its alignment. Raises what
    `build_program` does.
    """
    values = {
        "PREFIX": prefix,
        "PREFIX_UPPER": prefix.upper(),
        "ARENA": f"{arena_bytes}u",
        "TENSOR_BYTES": f"{tensor_bytes}u",
        "HAS_PAGES": f"{int(emulator.board is None)}",
    }
    build_program(_filled("samples.c.in", values), folder / f"lib{prefix}.a", emulator, result)


def build_program(samples: str, library: Path, emulator: Emulator, result: Path) -> None:
    """Compile C code that defines `run_samples`, and link it with a library for an emulator.

    Other files are written beside the result. Raises UsageError where the compiler is missing, ArtefactError
    where the library does not link.
    """
    work, start = result.parent, "linux.c" if emulator.board is None else "cortexm.c"
    (work / "samples.c").write_text(samples)
    for name in (*_COMMON, start):
        (work / name).write_text(_source(name))
    more: list[str] = []
    if emulator.board is not None:
        for name, text in board_texts(emulator.board, emulator.has_float_unit).items():
            (work / name).write_text(text)
        more = ["-T", "board.ld", "startup.c"]
    target = ["-target", emulator.triple, f"-mcpu={emulator.cpu}"]
    flags = ["-O1", "-ffreestanding", "-fno-builtin", "-fno-sanitize=all", "-static"]
    sources = ["samples.c", "memory.c", start]
    paths = [f"-I{library.resolve().parent}", *more, *sources, str(library.resolve()), "-o", result.name]
    run_zig(["cc", *target, *flags, *paths], work, f"{library} does not link")


def run(program: Path, emulator: Emulator, given: bytes) -> bytes:
    """Run the program on its input and return its output.

    Raises UsageError where the emulator is missing, ArtefactError where the program refuses or fails.
    """
    return _run(program, emulator, given, ())[0]


def executed(program: Path, emulator: Emulator, given: bytes) -> int:
    """Run the program on its input and count the instructions that it executes.

    Raises what `run` does, and UsageError where QEMU has no plugins or the compiler is missing.
    """
    name, plugin = emulator.command[0], program.parent / "count.so"
    if not plugin.exists():
        (program.parent / "count.c").write_text(_source("count.c"))
        interface = f"-DVERSION={1 if emulator_version(name) < _PER_PROCESSOR else 2}"
        flags = ["cc", "-shared", "-fPIC", "-O1", interface, "count.c", "-o", plugin.name]
        run_zig(flags, program.parent, "the counter of instructions does not compile")
    loaded = ("-plugin", str(plugin))
    try:
        said = _run(program, emulator, given, loaded)[1]
    except ArtefactError as error:
        # QEMU that is linked statically, as Debian's for programs of Linux since version 10, loads none.
        if "plugin" not in str(error):
            raise
        said = ""
    found = re.search(r"executed (\d+)", said)
    if found is None:
        raise UsageError(
            f"{name} takes no plugins, so that instructions cannot be counted; "
            "QEMU that is linked dynamically takes them"
        )
    return int(found[1])


def emulator_version(name: str) -> int:
    """First number of the version of QEMU. name: of its program. Raises UsageError where it is missing."""
    _require(name)
    done = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\d+)", done.stdout)
    if found is None:
        raise UsageError(f"{name} --version tells no version; is it QEMU?")
    return int(found[1])


def _require(name: str) -> None:
    if shutil.which(name) is None:
        raise UsageError(f"{name} is not installed; scripts/emulators.sh installs all emulators")


def _run(program: Path, emulator: Emulator, given: bytes, more: Sequence[str]) -> tuple[bytes, str]:
    """Output of the program, and what the emulator said."""
    name, *options = emulator.command
    _require(name)
    folder = program.parent
    written = folder / "output.bin"
    if emulator.board is not None:
        (folder / "input.bin").write_bytes(given)
        given = b""
    command = [name, *more, *options, program.name if emulator.board else f"./{program.name}"]
    try:
        done = subprocess.run(
            command, cwd=folder, input=given, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ArtefactError(f"the program did not end within {_SECONDS} seconds under {name}") from error
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        last = said.splitlines()[-1:] or [f"exit status {done.returncode}"]
        reason = _REASONS.get(done.returncode, last[0])
        raise ArtefactError(f"the bundle fails under {name}: {reason}")
    return done.stdout if emulator.board is None else written.read_bytes(), said


def _source(name: str) -> str:
    return files("qglow.emulation").joinpath("sources", name).read_text(encoding="utf-8")


def _filled(name: str, values: dict[str, str]) -> str:
    text = _source(name)
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
