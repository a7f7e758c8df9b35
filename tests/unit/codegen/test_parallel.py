"""Programs in several modules: the same bytes from any number of processes, whatever becomes of these."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from qglow.codegen import parallel
from qglow.codegen.cache import ObjectCache
from qglow.codegen.compiler import compile_program
from qglow.codegen.functions import Batch
from qglow.codegen.module import ModuleBuilder
from qglow.codegen.parallel import compile_modules
from qglow.core.errors import CodegenError
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.x86.isas import GENERIC
from qglow.toolchain import lower_graph
from tests.runtimes import HOST_ISAS, Built, prepare, reference
from tests.unit.tuning.networks import quantized, runs

ENDLESS = 1e9
GENTLE = "import sys; sys.stdin.buffer.read(9); "
"""A process that waits until it is asked for something."""
SCRIPT = """
print("runs", flush=True)
from qglow.codegen.compiler import compile_program
from qglow.targets.x86.isas import GENERIC
from tests.unit.codegen.test_parallel import network
program = network("generic")
print(len(compile_program(program, GENERIC, processes=2, batch_size=0).objects))
"""


@functools.cache
def network(isa: str) -> Program:
    """A small int8 program with several kernels."""
    program = prepare(lower_graph(quantized().graph), isa)
    plan_memory(program)
    return program


@pytest.mark.parametrize("isa", HOST_ISAS)
def test_kernels_and_entries_are_files_of_their_own(isa: str) -> None:
    built = Built(network(isa), isa)
    assert len(built.compiled.objects) > 2
    [inputs] = runs(1)
    bits = [
        {name: array.tobytes() for name, array in built.run(inputs, {}, parts).outputs.items()}
        for parts in (1, 3)
    ]
    expected = reference(network(isa), inputs).outputs
    assert bits == [{name: array.tobytes() for name, array in expected.items()}] * 2


def test_code_depends_on_the_program_alone(started: list[subprocess.Popen[bytes]]) -> None:
    program = network("generic")
    alone = compile_program(program, GENERIC, batch_size=0)
    assert not started
    shared = [compile_program(program, GENERIC, batch_size=0, processes=count) for count in (2, 3)]
    assert [code.objects for code in shared] == [alone.objects] * 2
    assert compile_program(program, GENERIC, batch_size=ENDLESS).objects == alone.objects
    assert 2 <= len(started) <= 3
    assert all(process.returncode is not None for process in started)


def test_a_batch_of_its_own_is_as_large_as_the_size_that_is_given() -> None:
    builder = ModuleBuilder(network("generic"), GENERIC)
    batches = [list(builder.batches(builder.functions(None, size))) for size in (0, 200, 100_000)]
    counts = [len(found) for found in batches]
    assert counts[0] > counts[1] > counts[2] == 1
    texts = [[text for batch in found for text in batch] for found in batches]
    assert texts[0] == texts[1] == texts[2]


def test_one_batch_starts_no_process(started: list[subprocess.Popen[bytes]]) -> None:
    compile_program(network("generic"), GENERIC, processes=8)
    assert not started


def test_frozen_program_is_not_started_again(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    compile_program(network("generic"), GENERIC, batch_size=0, processes=2)
    assert not started


def test_cache_keeps_every_object(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    made, kept = (compile_program(network("generic"), GENERIC, cache, batch_size=0) for _ in range(2))
    assert (made.from_cache, kept.from_cache) == (False, True)
    assert kept.objects == made.objects and len(kept.objects) > 2


@pytest.mark.parametrize(
    "script",
    [
        "import os; os.kill(os.getpid(), 9)",
        GENTLE + "sys.exit(3)",
        GENTLE + "sys.stdout.write('no frame at all')",
        GENTLE + "sys.stdout.buffer.write(bytes([71, 9, 0, 0, 0, 0, 0, 0, 0, 1]))",
    ],
    ids=["at once", "when asked", "with rubbish", "in its answer"],
)
def test_work_of_a_process_that_dies_is_done_here(
    script: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = compile_program(network("generic"), GENERIC, batch_size=0).objects
    monkeypatch.setattr(parallel, "_start_process", starting(script))
    found = compile_program(network("generic"), GENERIC, batch_size=0, processes=2).objects
    assert found == expected
    [record] = caplog.records
    assert record.levelno == logging.WARNING and "has died" in record.getMessage()


def test_process_that_does_not_start_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = compile_program(network("generic"), GENERIC, batch_size=0).objects
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    found = compile_program(network("generic"), GENERIC, batch_size=0, processes=2).objects
    assert found == expected
    [record] = caplog.records
    assert "does not start" in record.getMessage()


def test_what_llvm_refuses_in_another_process_is_an_error_here(
    started: list[subprocess.Popen[bytes]],
) -> None:
    batches = [("define void @f() { ret i32 0 }",), *[("define void @g() { ret void }",)] * 3]
    with pytest.raises(CodegenError, match="LLVM refuses the code for generic"):
        compile_modules(generated(batches), GENERIC, 2)
    assert [process.returncode is not None for process in started] == [True]


def test_interruption_ends_a_process_whatever_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = starting("import time; time.sleep(600)")
    monkeypatch.setattr(parallel, "_start_process", lambda isa: started.append(start(isa)) or started[-1])

    def interrupted() -> Generator[Batch, None, None]:
        yield from [("define void @f() { ret void }",)] * 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_modules(interrupted(), GENERIC, 2)
    assert [process.returncode is not None for process in started] == [True]


def test_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "here"
    script.write_text(SCRIPT)
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "runs" and int(second) > 2 and done.stderr == ""
    assert not list(folder.iterdir())


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that a test starts."""
    found: list[subprocess.Popen[bytes]] = []
    start = parallel._start_process

    def recorded(isa: VectorTarget) -> subprocess.Popen[bytes]:
        found.append(start(isa))
        return found[-1]

    monkeypatch.setattr(parallel, "_start_process", recorded)
    return found


def starting(script: str) -> Callable[[VectorTarget], subprocess.Popen[bytes]]:
    """Starts Python with a script in place of the process that compiles."""
    pipe = subprocess.PIPE
    return lambda _: subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe)


def generated(batches: list[Batch]) -> Generator[Batch, None, None]:
    yield from batches
