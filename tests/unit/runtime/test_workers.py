"""Programs on several threads: the same bits, from many threads at once, after a fork, at rest."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.linear import Gemm
from qglow.runtime.executable import Executable
from qglow.runtime.workers import workers
from qglow.targets.x86.isas import AMX_EMULATED, host_isas
from qglow.toolchain import CompileOptions, compile_graph

SIZE = 384
X = np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
COUNTS = (1, 2, 3, 7)


def layers(seed: int) -> Graph:
    """Two products that are worth several threads, with a small one at the end."""
    generator = np.random.default_rng(seed)
    builder = GraphBuilder("layers")
    value = builder.input("x", float_type(SIZE, SIZE))
    for number, columns in enumerate((SIZE, SIZE, 3)):
        weights = (generator.standard_normal((SIZE, columns)) / 20).astype(np.float32)
        product = builder.node(
            Gemm(), value, builder.constant(f"w{number}", weights), None, name=f"gemm{number}"
        )
        value = builder.node(Relu(), product, name=f"y{number}")
    return builder.finish(value)


def compiled(seed: int, threads: int) -> Executable:
    return compile_graph(layers(seed), CompileOptions(threads=threads))


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    """Results on one thread by seed."""
    return [compiled(seed, 1)({"x": X})["y2"] for seed in range(3)]


@pytest.mark.parametrize("threads", COUNTS)
def test_every_number_of_threads_gives_the_same_bits(threads: int, expected: list[np.ndarray]) -> None:
    executable = compiled(0, threads)
    assert executable.threads == threads
    for _ in range(20):
        np.testing.assert_array_equal(executable({"x": X})["y2"], expected[0])


def test_bound_calls_share_too(expected: list[np.ndarray]) -> None:
    result = np.zeros_like(expected[0])
    run = compiled(0, 3).bind({"x": X}, {"y2": result})
    for _ in range(20):
        result[:] = 0
        run()
        np.testing.assert_array_equal(result, expected[0])


def test_small_programs_stay_on_one_thread() -> None:
    builder = GraphBuilder("small")
    x = builder.input("x", float_type(8, 8))
    small = compile_graph(builder.finish(builder.node(Relu(), x, name="y")), CompileOptions(threads=4))
    assert small.threads == 1


def test_emulated_tiles_stay_on_one_thread() -> None:
    if AMX_EMULATED not in host_isas(emulated=True):
        pytest.skip("the host cannot emulate AMX")
    options = CompileOptions(isa=AMX_EMULATED.name, threads=4)
    assert compile_graph(layers(0), options).threads == 1


def test_many_programs_from_many_threads(expected: list[np.ndarray]) -> None:
    executables = [compiled(seed, 2 + seed) for seed in range(3)]
    failures = []

    def work(worker: int) -> None:
        for turn in range(30):
            seed = (worker + turn) % 3
            if not np.array_equal(executables[seed]({"x": X})["y2"], expected[seed]):
                failures.append((worker, turn))

    with ThreadPoolExecutor(6) as workers:
        list(workers.map(work, range(6)))
    assert not failures


def test_a_forked_child_starts_threads_of_its_own(expected: list[np.ndarray]) -> None:
    executable = compiled(1, 2)
    executable({"x": X})
    child = os.fork()
    if not child:
        signal.alarm(60)
        same = np.array_equal(executable({"x": X})["y2"], expected[1])
        os._exit(0 if same and workers(AMX_EMULATED).size == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(executable({"x": X})["y2"], expected[1])


def test_a_pool_at_rest_uses_no_time() -> None:
    compiled(0, 4)({"x": X})
    time.sleep(0.05)
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(0.5)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.05


def test_python_runs_meanwhile() -> None:
    """The interpreter's lock is free while native code runs."""
    run = compiled(0, 2).bind({"x": X}, {"y2": np.zeros((SIZE, 3), np.float32)})
    stop, counted = threading.Event(), 0

    def call() -> None:
        while not stop.is_set():
            run()

    worker = threading.Thread(target=call)
    worker.start()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        counted += 1
    stop.set()
    worker.join()
    assert counted > 1000


def test_interrupts_reach_python_and_not_the_pool() -> None:
    compiled(0, 4)({"x": X})
    received = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: received.append(threading.current_thread()))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [threading.main_thread()]
