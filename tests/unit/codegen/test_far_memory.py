"""Tests of linking where memory near the code is taken, as in processes with many gigabytes in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow

PROGRAM = """
import mmap
import sys

import numpy as np

import qglow

model = qglow.load_model(sys.argv[1])
RESERVED, PAGE = 6 << 30, mmap.PAGESIZE
libc = __import__("ctypes").CDLL(None, use_errno=True)
libc.mmap.restype = __import__("ctypes").c_void_p
libc.mmap.argtypes = [__import__("ctypes").c_void_p, *[__import__("ctypes").c_size_t] * 5]
libc.munmap.argtypes = [__import__("ctypes").c_void_p, __import__("ctypes").c_size_t]


def reserve(size):
    return libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, 2**64 - 1, 0)


def before_linking(objects, target, names, link=qglow.codegen.jit.link):
    # A hole of one page: what is allocated first fits it, the next is beyond what is reserved.
    start = reserve(RESERVED)
    while reserve(PAGE) > start:
        pass
    libc.munmap(start + RESERVED - 16 * PAGE, PAGE)
    return link(objects, target, names)


qglow.codegen.jit.link = before_linking
program = model.compile(threads=1)
x = np.linspace(-3, 3, 7, dtype=np.float32)
print([float(value) for value in program({"x": x})["y"]])
"""
"""Reserves all memory around the code but a page, then links and calls a program."""


@pytest.mark.skipif(sys.platform != "linux", reason="holes in memory are made by calls of Linux")
def test_far_constants(tmp_path: Path) -> None:
    """A program whose constants do not fit beside its code is linked all the same."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [7]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Gelu", ["x"], ["y"])], "far", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "far.onnx"
    path.write_bytes(model.SerializeToString())
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    near = qglow.load_model(path).compile(threads=1)({"x": np.linspace(-3, 3, 7, dtype=np.float32)})
    assert ran.stdout.strip() == str([float(value) for value in near["y"]])
