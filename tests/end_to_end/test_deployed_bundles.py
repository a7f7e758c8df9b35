"""Bundles as they are deployed: memory, symbols and processors that do not fit, and loaders."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.bundles.library import read_library
from qglow.bundles.objects import symbols
from qglow.cli.main import main
from qglow.emulation.bundle import load_bundle
from qglow.emulation.machines import EMULATORS
from qglow.emulation.programs import build, run
from qglow.targets.registry import find_target, running_names
from tests.compilers import c_compiler
from tests.emulated import needs

DIGITS = Path(__file__).parents[2] / "calib_data"
MEMORY = {"memcpy", "memmove", "memset"}
ARM_MEMORY = {
    f"__aeabi_{name}{size}" for name in ("memcpy", "memmove", "memset", "memclr") for size in ("", "4", "8")
}
SOFT_FLOATS = {
    *(f"__aeabi_f{name}" for name in ("add", "sub", "mul", "div")),
    *(f"__aeabi_fcmp{name}" for name in ("eq", "lt", "le", "gt", "ge", "un")),
    *(
        "__aeabi_i2f",
        "__aeabi_ui2f",
        "__aeabi_f2iz",
        "__aeabi_f2uiz",
        "__aeabi_l2f",
        "__aeabi_lmul",
        "__clzsi2",
    ),
    *(f"__aeabi_d{name}" for name in ("add", "sub", "mul")),
    *(f"__aeabi_dcmp{name}" for name in ("eq", "lt", "le", "gt", "ge", "un")),
    "__aeabi_f2d",
    "__aeabi_d2f",
}
"""Functions of the compiler's library that code may call on processors without a float unit."""
ARCHIVED = [target.name for target in qglow.list_targets() if target.writes_bundles and target.name != "c"]


@pytest.fixture(scope="module")
def digits() -> qglow.QuantizedModel:
    model = qglow.load_model(DIGITS / "digits.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=20)
    return model.quantize(profile, check=False, repair=False)


def allowed(target: str) -> set[str]:
    """Symbols that an archive for a target may need from outside."""
    if not target.startswith("cortex-m"):
        return MEMORY
    without_floats = target in ("cortex-m0plus", "cortex-m3")
    return MEMORY | ARM_MEMORY | (SOFT_FLOATS if without_floats else set())


@pytest.mark.parametrize("target", ARCHIVED)
def test_archives_need_only_listed_symbols(digits: qglow.QuantizedModel, target: str, tmp_path: Path) -> None:
    if target.startswith("wasm32"):
        needs(target)
    models = {"int8": digits, "float": qglow.load_model(DIGITS / "digits.onnx")}
    for name, model in models.items():
        model.save_bundle(tmp_path / name, isa=target)
        members = read_library((tmp_path / name / "libdigits.a").read_bytes())
        found = [symbols(content) for content in members.values()]
        defined = {symbol for one in found for symbol in one.defined}
        undefined = {symbol for one in found for symbol in one.undefined} - defined
        assert undefined <= allowed(target)
        assert all(symbol.startswith("digits_") for symbol in defined)


def test_sources_need_only_listed_symbols(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    """Objects of the C sources, made by the compiler of the host."""
    cc = c_compiler()
    models = {"int8": digits, "float": qglow.load_model(DIGITS / "digits.onnx")}
    for name, model in models.items():
        made = tmp_path / name
        model.save_bundle(made, isa="c")
        sources = sorted(path.name for path in made.glob("digits_*.c"))
        subprocess.run([cc, "-std=c99", "-O2", "-ffp-contract=off", "-c", *sources], cwd=made, check=True)
        found = [symbols((made / source).with_suffix(".o").read_bytes()) for source in sources]
        defined = {symbol for one in found for symbol in one.defined}
        undefined = {symbol for one in found for symbol in one.undefined} - defined
        assert sources and undefined <= MEMORY | {"memcmp"}
        assert all(symbol.startswith("digits_") for symbol in defined)


def test_pages_beside_the_arena_are_guarded(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    """A header that says less than the code uses: the write behind the arena ends the program."""
    target = "aarch64-dotprod"
    needs(target)
    digits.save_bundle(tmp_path / "made", isa=target)
    manifest = load_bundle(tmp_path / "made").manifest
    header = tmp_path / "made" / "digits.h"
    wanted = f"DIGITS_ARENA_BYTES {manifest.arena_bytes}u"
    results = []
    for size in (manifest.arena_bytes, 4096):
        header.write_text(header.read_text().replace(wanted, f"DIGITS_ARENA_BYTES {size}u"))
        program = tmp_path / f"program{size}"
        sizes = manifest.selftest_bytes, 64 * 4 + 10 * 4 + 16
        build(tmp_path / "made", "digits", *sizes, EMULATORS[target], program)
        try:
            results.append(len(run(program, EMULATORS[target], struct.pack("<II", 1, 0) + bytes(64 * 4))))
        except qglow.ArtefactError as error:
            results.append(str(error))
    assert results[0] == 40 and "fails under qemu-aarch64" in str(results[1])


def test_a_microcontroller_without_a_float_unit_is_refused(
    digits: qglow.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("cortex-m4")
    digits.save_bundle(tmp_path / "made", isa="cortex-m4")
    assert load_bundle(tmp_path / "made").manifest.target == "cortex-m4"
    there = EMULATORS["cortex-m4"]
    names = {"mps2-an386": "mps2-an385", "cortex-m4": "cortex-m3"}
    weaker = replace(there, command=tuple(names.get(word, word) for word in there.command))
    monkeypatch.setitem(EMULATORS, "cortex-m4", weaker)
    with pytest.raises(qglow.ArtefactError, match="lacks instructions that the code uses"):
        load_bundle(tmp_path / "made")


@pytest.mark.slow
def test_linux_tells_whether_a_risc_v_processor_has_vectors(
    digits: qglow.QuantizedModel, tmp_path: Path
) -> None:
    """The header asks the system, for which the program needs a C library."""
    needs("riscv64-v")
    made = tmp_path / "made"
    digits.save_bundle(made, isa="riscv64-v")
    flags = ["-target", "riscv64-linux-musl", "-O1", "-static", "-fno-sanitize=all"]
    paths = [str(made / "main.c"), f"-I{made}", f"-L{made}", "-ldigits", "-o", str(tmp_path / "main")]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, *paths], check=True, capture_output=True)
    said = []
    for processor in ("rv64", "rv64,v=true,vlen=128,elen=64,vext_spec=v1.0"):
        command = ["qemu-riscv64", "-cpu", processor, str(tmp_path / "main")]
        said.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert said == ["check: 3\n", "digits: self-test passed\n"]


PYTHON = """
import numpy
from digits import load
model = load("digits.wasm")
given = (numpy.arange(64, dtype="float32") / 64).reshape(1, 1, 8, 8)
print(model.selftest(), model.run({"input": given})["logits"].tobytes().hex())
try:
    model.run({"input": given[0]})
except ValueError as error:
    print(error)
"""


def test_the_python_loader_runs_a_module(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    needs("wasm32-simd128")
    digits.save_bundle(tmp_path / "made", isa="wasm32-simd128")
    command = [sys.executable, "-c", PYTHON]
    done = subprocess.run(command, cwd=tmp_path / "made", capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    given = (np.arange(64, dtype=np.float32) / 64).reshape(1, 1, 8, 8)
    assert first == f"0 {digits.compile()({'input': given})['logits'].tobytes().hex()}"
    assert second == "input input is float32[1, 1, 8, 8], not float32[1, 8, 8]"


def test_a_header_is_c_plus_plus_too(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    digits.save_bundle(tmp_path / "made")
    source = (
        '#include "digits.h"\nstatic_assert(DIGITS_ALIGNMENT == 64u, "");\n'
        "int main() { return digits_check(nullptr, digits_weights) != DIGITS_OK; }\n"
    )
    (tmp_path / "program.cc").write_text(source)
    paths = [f"-I{tmp_path / 'made'}", f"-L{tmp_path / 'made'}", "-ldigits", "-o", str(tmp_path / "program")]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([compiler, *flags, str(tmp_path / "program.cc"), *paths], check=True, capture_output=True)
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 0


LIBRARY = """
#include "digits.h"
static _Alignas(64) unsigned char arena[DIGITS_ARENA_BYTES];
int32_t app_check(void) { return digits_check(arena, digits_weights); }
void app_run(const float *input, float *logits)
{
    const digits_io io = {.input = input, .logits = logits};
    digits_run(arena, digits_weights, &io);
}
"""


@pytest.mark.parametrize(
    ("target", "triple"),
    [
        ("aarch64", "aarch64-linux-android"),
        ("aarch64-dotprod", "aarch64-linux-android"),
        ("armv7", "arm-linux-androideabi"),
        ("x86-64-v2", "x86_64-linux-android"),
    ],
)
def test_a_shared_library_for_android_takes_a_bundle(
    digits: qglow.QuantizedModel, target: str, triple: str, tmp_path: Path
) -> None:
    """The linker, which refuses code that depends on its address, finds everything but memory functions."""
    if find_spec("ziglang") is None:
        pytest.skip("no C compiler is installed")
    made, app = tmp_path / "made", tmp_path / "libapp.so"
    digits.save_bundle(made, isa=target)
    (tmp_path / "app.c").write_text(LIBRARY)
    flags = ["-target", triple, "-shared", "-fPIC", "-O1", "-nostdlib"]
    paths = [str(tmp_path / "app.c"), f"-I{made}", f"-L{made}", "-ldigits", "-o", str(app)]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, *paths]
    subprocess.run(command, check=True, capture_output=True)
    assert set(symbols(app.read_bytes()).undefined) <= MEMORY
    if find_target(target).refusal() is not None or sys.platform != "linux":
        return
    library = ctypes.CDLL(str(app))
    given, found = np.linspace(-2, 2, 64, dtype=np.float32), np.zeros((1, 10), np.float32)
    assert library.app_check() == 0
    library.app_run(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(found.ctypes.data))
    wanted = digits.compile()({"input": given.reshape(1, 1, 8, 8)})["logits"]
    assert found.tobytes() == wanted.tobytes()


def test_the_loader_needs_no_qglow(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    if find_spec("wasmtime") is None:
        pytest.skip("wasmtime is not installed")
    needs("wasm32")
    digits.save_bundle(tmp_path / "made", isa="wasm32")
    imported = {
        line.split()[1]
        for line in (tmp_path / "made" / "digits.py").read_text().splitlines()
        if line.startswith("import ")
    }
    assert imported == {"numpy", "wasmtime"}


THREADS = 3


@pytest.mark.parametrize("io", ["float", "int8"])
@pytest.mark.parametrize("target", ["generic", "host"])
def test_threads_of_a_program_run_the_parts(
    digits: qglow.QuantizedModel, target: str, io: str, tmp_path: Path
) -> None:
    """The example compares the bytes of three threads with those of one."""
    compiler = c_compiler()
    if target == "generic" and target not in running_names():
        pytest.skip("the host cannot run it")
    model = digits
    if io == "int8":
        opened = qglow.load_model(DIGITS / "digits.onnx")
        profile = opened.profile(DIGITS / "calib.npz", samples=5)
        model = opened.quantize(profile, qglow.Recipe(io="int8"), check=False, repair=False)
    made = tmp_path / "made"
    model.save_bundle(made, isa=target, threads=THREADS)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "threads.c"]
    subprocess.run(
        [compiler, *flags, "-L.", "-ldigits", "-lpthread", "-o", "threads"],
        cwd=made,
        check=True,
        capture_output=True,
    )
    for _ in range(3):
        done = subprocess.run(["./threads"], cwd=made, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "the same bytes" in done.stdout
    if target == "generic":
        steps = int(done.stdout.split(",")[1].split()[0])
        assert steps > 5 and "threads.c" in {path.name for path in made.iterdir()}


@pytest.mark.slow
@pytest.mark.sweep
def test_threads_run_the_parts_on_another_processor(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    needs("aarch64-dotprod")
    made = tmp_path / "made"
    digits.save_bundle(made, isa="aarch64-dotprod", threads=THREADS)
    flags = ["-target", "aarch64-linux-musl", "-O1", "-static", "-fno-sanitize=all"]
    paths = ["threads.c", "-L.", "-ldigits", "-lpthread", "-o", "threads"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, *paths]
    subprocess.run(command, cwd=made, check=True, capture_output=True)
    emulated = ["qemu-aarch64", "-cpu", "max", "./threads"]
    done = subprocess.run(emulated, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "3 threads" in done.stdout and "the same bytes" in done.stdout


def test_parts_are_for_threads_of_bundles(
    digits: qglow.QuantizedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.save_bundle(tmp_path / "alone")
    assert "digits_part(" not in (tmp_path / "alone" / "digits.h").read_text()
    assert not (tmp_path / "alone" / "threads.c").exists()
    with pytest.raises(qglow.UsageError, match="have no parts for threads"):
        digits.save_bundle(tmp_path / "made", isa="c", threads=2)
    with pytest.raises(qglow.UsageError, match="threads"):
        digits.save_bundle(tmp_path / "made", threads=0)
    model = str(DIGITS / "digits.onnx")
    assert main(["compile", model, "--threads", "2", "-o", str(tmp_path / "x.qglow")]) == 2
    assert "need --emit-bundle" in capsys.readouterr().err
