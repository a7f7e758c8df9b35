"""Bundles of models whose tensors are called as C, the C library or Rust call things, or hold one element or
none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper

import qglow
from tests.compilers import c_compiler
from tests.emulated import needs

STRICT = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-ffp-contract=off")
CLASHES = ("io", "arena", "main", "refused", "wrong", "a", "A", "NULL", "stdin", "work", "mutex", "turn", "i")
CASTS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.INT32, TensorProto.UINT32)
KEYWORDS = ("Self", "self", "super", "crate", "type", "macro", "fn", "int")


def negated(name: str, shapes: dict[str, list[int]], folder: Path) -> qglow.Model:
    """A model that negates all inputs; each output is called as its input, with ".y" behind it."""
    nodes = [helper.make_node("Neg", [one], [f"{one}.y"]) for one in shapes]
    kinds = [
        [helper.make_tensor_value_info(one + end, TensorProto.FLOAT, shape) for one, shape in shapes.items()]
        for end in ("", ".y")
    ]
    graph = helper.make_graph(nodes, name, *kinds)
    file = folder / f"{name}.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return qglow.load_model(file)


def clashing(folder: Path) -> qglow.Model:
    return negated("clash", {name: [2 + number] for number, name in enumerate(CLASHES)}, folder)


def ran(folder: Path, file: str, *more: str) -> str:
    """What an example of a bundle says, compiled strictly."""
    command = [c_compiler(), *STRICT, file, *more, "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run(["./program"], cwd=folder, capture_output=True, text=True, check=True).stdout


def empty(folder: Path) -> qglow.Model:
    return negated("empty", {"x": [0, 3], "y": [2]}, folder)


@pytest.mark.parametrize("model", [clashing, empty])
@pytest.mark.parametrize("target", ["x86-64-v2", "c"])
def test_the_examples_compile(target: str, model: Callable[[Path], qglow.Model], tmp_path: Path) -> None:
    made, threads = tmp_path / "made", 1 if target == "c" else 2
    model(tmp_path).save_bundle(made, isa=target, threads=threads)
    name = next(made.glob("*.h")).stem
    sources = [path.name for path in sorted(made.glob("*_*.c"))]
    linked = sources or ["-L.", f"-l{name}", "-lpthread"]
    assert ran(made, "main.c", *linked) == f"{name}: self-test passed\n"
    if threads > 1:
        assert "the same bytes" in ran(made, "threads.c", *linked)


def test_strict_compilers_take_integers_in_sources(tmp_path: Path) -> None:
    """Sums in 64 bits, saturation, casts to fewer bits, and logic, with warnings on conversions."""
    steps = [("Add", ["i", "i"]), ("Abs", ["i"]), ("Not", ["b"]), ("And", ["b", "b"]), ("Mul", ["n", "n"])]
    nodes = [helper.make_node(op, given, [f"y{number}"]) for number, (op, given) in enumerate(steps)]
    nodes += [helper.make_node("Cast", ["f"], [f"to{kind}"], to=kind) for kind in CASTS]
    kinds = {"i": TensorProto.INT64, "b": TensorProto.BOOL, "n": TensorProto.INT32, "f": TensorProto.FLOAT}
    made = dict(
        zip([f"y{number}" for number in range(5)], [kinds[given[0]] for _, given in steps], strict=True)
    )
    made |= {f"to{kind}": kind for kind in CASTS}
    ends = [[helper.make_tensor_value_info(*one, [3]) for one in some.items()] for some in (kinds, made)]
    graph = helper.make_graph(nodes, "whole", *ends)
    file = tmp_path / "whole.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    qglow.load_model(file).save_bundle(tmp_path / "made", isa="c")
    sources = [path.name for path in sorted((tmp_path / "made").glob("whole_*.c"))]
    assert ran(tmp_path / "made", "main.c", *sources) == "whole: self-test passed\n"


def test_sizes_of_tensors_that_differ_in_capitals_alone_are_told_apart(tmp_path: Path) -> None:
    clashing(tmp_path).save_bundle(tmp_path / "made")
    header = (tmp_path / "made" / "clash.h").read_text()
    macros = [line.split()[1] for line in header.splitlines() if "_ELEMENTS" in line]
    assert len(macros) == len(set(macros)) == 2 * len(CLASHES)


def test_bindings_have_names_that_rust_takes(tmp_path: Path) -> None:
    negated("words", dict.fromkeys(KEYWORDS, [2]), tmp_path).save_bundle(tmp_path / "made")
    text = (tmp_path / "made" / "words.rs").read_text()
    fields = [line.split()[1].rstrip(":") for line in text.splitlines() if ": *const f32" in line]
    assert fields == ["Self_", "self_2", "super_", "crate_", "r#type", "r#macro", "r#fn", "int_"]
    compiler = shutil.which("rustc")
    if compiler is None:
        pytest.skip("no Rust compiler is installed")
    (tmp_path / "program.rs").write_text(
        '#![deny(warnings)]\n#[path = "made/words.rs"]\nmod words;\n'
        "fn main() {\n"
        "    let mut arena = vec![0u8; words::SELFTEST_BYTES + words::ALIGNMENT];\n"
        "    let start = arena.as_mut_ptr();\n"
        "    let moved = start.align_offset(words::ALIGNMENT);\n"
        "    let found = unsafe {\n"
        "        let (arena, weights) = (start.add(moved).cast(), words::words_weights.as_ptr().cast());\n"
        "        let refused = words::words_check_as(arena, weights, words::INTERFACE);\n"
        "        (refused, words::words_selftest(arena, weights))\n"
        "    };\n"
        "    assert_eq!(found, (0, 0));\n"
        "}\n"
    )
    command = [compiler, "--edition", "2021", "program.rs", "-L", "made", "-l", "static=words"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["./program"], cwd=tmp_path, check=True)


def test_the_python_loader_takes_one_number(tmp_path: Path) -> None:
    needs("wasm32")
    negated("one", {"x": []}, tmp_path).save_bundle(tmp_path / "made", isa="wasm32")
    code = 'import numpy, one; print(one.load().run({"x": numpy.array(3, "float32")})["x_y"])'
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "made", capture_output=True, text=True, check=False
    )
    assert done.stdout == "-3.0\n", done.stderr


STREAM = """
cmake_minimum_required(VERSION 3.16)
project(app C)
find_package(stream CONFIG REQUIRED PATHS ${CMAKE_SOURCE_DIR}/made NO_DEFAULT_PATH)
add_executable(app made/main.c)
target_link_libraries(app stream::stream)
"""


def test_cmake_builds_the_sources_of_a_model_with_states(tmp_path: Path) -> None:
    made = tmp_path / "made"
    negated("stream", {"x": [2], "h": [3]}, tmp_path).save_bundle(made, isa="c", states={"h": "h.y"})
    listed = (made / "stream-config.cmake").read_text()
    assert all(path.name in listed for path in made.glob("stream_*.c"))
    tool = shutil.which("cmake")
    if tool is None:
        pytest.skip("CMake is not installed")
    c_compiler()
    (tmp_path / "CMakeLists.txt").write_text(STREAM)
    for command in ([tool, "-S", ".", "-B", "build"], [tool, "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["build/app"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "self-test passed" in done.stdout
