"""Bundles whose states are int8: in C, in parts for threads, and beside scales that are states as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow import Array
from qglow.emulation.manifest import read_manifest
from tests.compilers import c_compiler
from tests.end_to_end.test_stream_bundles import (
    CALLS,
    IN_PARTS,
    ONCE,
    assert_same_stream,
    kept_in_int8,
    may_run,
    pieces_of,
    quantize_to,
)
from tests.end_to_end.test_streaming import CACHED, drawn, node
from tests.unit.importer.tiny import save

TOKENS, HEAD = 6, 8
KEPT = {"cache": "next_cache", "scales": "next_scales"}

STREAM = """
#include <stdio.h>
#include <string.h>
#include "tiny.h"
static _Alignas(64) unsigned char arena[TINY_SELFTEST_BYTES];
static TYPE x[TINY_X_ELEMENTS], y[TINY_Y_ELEMENTS], cache[TINY_CACHE_ELEMENTS];
int main(void)
{
    const tiny_io io = {.x = x, .y = y, .cache = cache};
    const tiny_tensor *const kept = &tiny_tensors[TINY_TENSORS - 1];
    unsigned count = 0;
    if (tiny_check(arena, tiny_weights) || tiny_selftest(arena, tiny_weights)) { return 1; }
    if (kept->role != 2u || kept->zero_point != TINY_CACHE_ZERO_POINT) { return 2; }
    if (!(kept->scale == TINY_CACHE_SCALE) || kept->bytes != sizeof cache) { return 3; }
    memset(cache, 0x5A, sizeof cache);
    while (fread(x, sizeof x, 1, stdin)) {
        if (count++ % CALLS == 0) { tiny_reset(&io); }
        RUN
        fwrite(y, sizeof y, 1, stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize(
    ("target", "threads", "run"),
    [("host", 1, ONCE), ("host", 3, IN_PARTS), ("generic", 3, IN_PARTS), ("c", 1, ONCE)],
)
@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_streams_in_c_begin_anew(element: str, target: str, threads: int, run: str, tmp_path: Path) -> None:
    """Two streams, one after the other; the table of tensors tells how the state is to be read."""
    may_run(target)
    quantized, made = kept_in_int8(tmp_path, element), tmp_path / "made"
    quantized.save_bundle(made, isa=target, states=CACHED, threads=threads)
    manifest = read_manifest(made)
    source = STREAM.replace("RUN", run).replace("TYPE", f"{element}_t").replace("CALLS", f"{CALLS}u")
    source = source.replace("tiny", manifest.prefix).replace("TINY", manifest.prefix.upper())
    (made / "stream.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-ffp-contract=off"]
    rest = list(manifest.sources) or ["-L.", f"-l{manifest.prefix}"]
    subprocess.run([c_compiler(), *flags, "stream.c", *rest, "-o", "stream"], cwd=made, check=True)
    pieces = [{"x": quantize_to(quantized, piece["x"])} for piece in pieces_of(2)]
    program = quantized.compile(states=CACHED)
    wanted = b"".join(program(piece)["y"].tobytes() for piece in pieces)
    given = b"".join(piece["x"].tobytes() for piece in pieces)
    done = subprocess.run(["./stream"], cwd=made, input=2 * given, capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stdout == 2 * wanted


def keys_in_int8() -> onnx.ModelProto:
    """Attention over the last tokens, which it keeps as int8 with a scale for each of them."""
    nodes = [
        node("Abs", ["x"], ["sizes"]),
        node("ReduceMax", ["sizes"], ["largest"], axes=[2], keepdims=1),
        node("Max", ["largest", "least"], ["bounded"]),
        node("Div", ["bounded", "levels"], ["scale"]),
        node("Div", ["x", "scale"], ["exact"]),
        node("Round", ["exact"], ["rounded"]),
        node("Cast", ["rounded"], ["steps"], to=TensorProto.INT8),
        node("Slice", ["cache", "one", "end", "one"], ["older"]),
        node("Concat", ["older", "steps"], ["next_cache"], axis=1),
        node("Slice", ["scales", "one", "end", "one"], ["older_scales"]),
        node("Concat", ["older_scales", "scale"], ["next_scales"], axis=1),
        node("Cast", ["next_cache"], ["wide"], to=TensorProto.FLOAT),
        node("Mul", ["wide", "next_scales"], ["keys"]),
        node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "keys"], ["y"]),
    ]
    constants: dict[str, Array] = {
        "least": np.array(1e-20, np.float32),
        "levels": np.array(127, np.float32),
        "one": np.array([1]),
        "end": np.array([10**6]),
    }
    value = helper.make_tensor_value_info
    cache = TensorProto.INT8, [1, TOKENS, HEAD]
    scales, token = (TensorProto.FLOAT, [1, TOKENS, 1]), (TensorProto.FLOAT, [1, 1, HEAD])
    graph = helper.make_graph(
        nodes,
        "tiny",
        [value("x", *token), value("cache", *cache), value("scales", *scales)],
        [value("y", *token), value("next_cache", *cache), value("next_scales", *scales)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("target", ["host", "aarch64-dotprod", "cortex-m4", "wasm32-simd128", "c"])
def test_keys_in_int8_are_kept_beside_their_scales(target: str, tmp_path: Path) -> None:
    """More tokens than places, so that the oldest are lost; no bit differs."""
    may_run(target)
    model = qglow.load_model(save(keys_in_int8(), tmp_path))
    pieces = [{"x": drawn(1, 1, HEAD, seed=number)} for number in range(2 * TOKENS)]
    assert_same_stream(model, KEPT, pieces, tmp_path, target)
    kept = {tensor.name: tensor.c_type for tensor in read_manifest(tmp_path / "made").tensors}
    assert (kept["cache"], kept["scales"]) == ("int8_t", "float")
