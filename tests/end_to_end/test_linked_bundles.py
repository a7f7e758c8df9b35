"""Bundles in one program, between protected pages, and on processors that they do not fit."""

from __future__ import annotations

import platform
import shutil
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.bundles.library import read_library, write_library
from qglow.emulation.bundle import load_bundle
from qglow.emulation.machines import EMULATORS, Emulator
from qglow.emulation.programs import build, build_program, run
from tests.compilers import c_compiler
from tests.emulated import needs

DIGITS = Path(__file__).parents[2] / "calib_data"
REFUSED = 3
"""What `check` returns for a processor that lacks instructions."""
NOT_RUN = -1


@pytest.fixture(scope="module")
def digits() -> qglow.QuantizedModel:
    return named("digits", DIGITS)


def named(name: str, folder: Path) -> qglow.QuantizedModel:
    model = qglow.load_model(folder / f"{name}.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=20)
    return model.quantize(profile, check=False, repair=False)


BOTH = """
#include "runner.h"
#include "digits.h"
#include "second.h"
static _Alignas(64) unsigned char arena[DIGITS_SELFTEST_BYTES + SECOND_SELFTEST_BYTES];
int run_samples(void)
{
    int32_t found[4];
    found[0] = digits_check(arena, digits_weights);
    found[1] = second_check(arena, second_weights);
    found[2] = found[0] ? -1 : digits_selftest(arena, digits_weights);
    found[3] = found[1] ? -1 : second_selftest(arena, second_weights);
    system_write(found, sizeof found);
    return 0;
}
"""


def both(
    digits: qglow.QuantizedModel, targets: tuple[str, str], folder: Path, emulator: Emulator
) -> tuple[int, ...]:
    """Checks and self-tests of a model and of a copy that has another name, linked into one program."""
    shutil.copy(DIGITS / "digits.onnx", folder / "second.onnx")
    models = {"digits": digits, "second": named("second", folder)}
    members: dict[str, bytes] = {}
    for (name, model), target in zip(models.items(), targets, strict=True):
        model.save_bundle(folder / name, isa=target)
        members |= read_library((folder / name / f"lib{name}.a").read_bytes())
        shutil.copy(folder / name / f"{name}.h", folder)
    library, program = folder / "libboth.a", folder / "program"
    library.write_bytes(write_library(members))
    build_program(BOTH, library, emulator, program)
    return struct.unpack("<4i", run(program, emulator, b""))


@pytest.mark.parametrize(
    ("processor", "found"), [("cortex-a53", (0, REFUSED, 0, NOT_RUN)), ("max", (0, 0, 0, 0))]
)
def test_one_program_for_processors_with_and_without_dot_products(
    digits: qglow.QuantizedModel, processor: str, found: tuple[int, ...], tmp_path: Path
) -> None:
    """The one whose check returns 0 may run."""
    needs("aarch64")
    emulator = replace(EMULATORS["aarch64"], command=("qemu-aarch64", "-cpu", processor))
    assert both(digits, ("aarch64", "aarch64-dotprod"), tmp_path, emulator) == found


@pytest.mark.parametrize("target", ["cortex-m4", "armv7", "riscv64"])
def test_two_bundles_run_in_one_program(digits: qglow.QuantizedModel, target: str, tmp_path: Path) -> None:
    needs(target)
    assert both(digits, (target, target), tmp_path, EMULATORS[target]) == (0, 0, 0, 0)


def test_a_board_notices_what_is_written_beside_the_arena(
    digits: qglow.QuantizedModel, tmp_path: Path
) -> None:
    """A program that gives the code half of the arena that it needs."""
    target = "cortex-m4"
    needs(target)
    made = tmp_path / "made"
    digits.save_bundle(made, isa=target)
    manifest = load_bundle(made).manifest
    given = struct.pack("<II", 1, 0) + np.ones(64, np.float32).tobytes()
    said = []
    for size in (manifest.arena_bytes, manifest.arena_bytes // 2):
        program = tmp_path / f"program{size}"
        build(made, "digits", size, manifest.arena_bytes, EMULATORS[target], program)
        try:
            said.append(f"{len(run(program, EMULATORS[target], given))} bytes")
        except qglow.ArtefactError as error:
            said.append(str(error))
    assert said[0] == "40 bytes" and "memory beside the arena was written" in said[1]


PAGES = """
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "digits.h"
#define PAGE 4096u
#define ROUNDED(bytes) (((bytes) + PAGE - 1u) / PAGE * PAGE)

/* Memory that ends where a page begins that may not be accessed, as the one before it may not. */
static unsigned char *between(size_t bytes)
{
    const size_t inner = ROUNDED(bytes);
    unsigned char *pages = mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, inner, PROT_READ | PROT_WRITE)) { return NULL; }
    return pages + PAGE + (inner - bytes) / DIGITS_ALIGNMENT * DIGITS_ALIGNMENT;
}

int main(void)
{
    unsigned char *arena = between(GIVEN), *weights = between(DIGITS_WEIGHTS_BYTES);
    static float input[64], logits[10];
    const digits_io io = {.input = input, .logits = logits};
    if (!arena || !weights) { return 1; }
    memcpy(weights, digits_weights, DIGITS_WEIGHTS_BYTES);
    for (int i = 0; i < 64; i++) { input[i] = (float)i / 64.0f; }
    if (digits_check(arena, weights)) { return 2; }
    digits_run(arena, weights, &io);
    return fwrite(logits, sizeof logits, 1, stdout) != 1;
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
def test_pages_beside_the_memory_of_the_host_are_guarded(
    digits: qglow.QuantizedModel, tmp_path: Path
) -> None:
    """The code touches no page beside arena and weights, and the program ends where it has too little."""
    cc = c_compiler()
    digits.save_bundle(tmp_path / "made")
    (tmp_path / "pages.c").write_text(PAGES)
    ended = []
    for size in ("DIGITS_ARENA_BYTES", "4096u"):
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-DGIVEN={size}"]
        paths = ["pages.c", "-Imade", "-Lmade", "-ldigits", "-o", "pages"]
        subprocess.run([cc, *flags, *paths], cwd=tmp_path, check=True, capture_output=True)
        ended.append(subprocess.run(["./pages"], cwd=tmp_path, capture_output=True, check=False))
    given = (np.arange(64, dtype=np.float32) / 64).reshape(1, 1, 8, 8)
    assert ended[0].returncode == 0
    assert ended[0].stdout == digits.compile()({"input": given})["logits"].tobytes()
    assert ended[1].returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("target", "processor", "said"),
    [
        ("x86-64-v2", "Nehalem", "digits: self-test passed\n"),
        ("x86-64-v3", "Nehalem", "check: 3\n"),
        ("x86-64-v3", "max", "digits: self-test passed\n"),
        ("x86-64-v4", "max", "check: 3\n"),
        ("x86-64-vnni", "max", "check: 3\n"),
        ("x86-64-amx", "max", "check: 3\n"),
    ],
)
def test_x86_processors_that_lack_instructions_are_refused(
    digits: qglow.QuantizedModel, target: str, processor: str, said: str, tmp_path: Path
) -> None:
    """QEMU itself translates no AVX-512 and no AMX, whatever the host has."""
    if shutil.which("qemu-x86_64") is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no emulator of the processor is installed")
    digits.save_bundle(tmp_path / "made", isa=target)
    command = [c_compiler(), "-O1", "made/main.c", "-Imade", "-Lmade", "-ldigits", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    emulated = ["qemu-x86_64", "-cpu", processor, "./main"]
    done = subprocess.run(emulated, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == said
