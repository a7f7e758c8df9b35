"""Static libraries and the symbols of object files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from qglow.bundles.library import read_library, write_library
from qglow.bundles.objects import code_bytes, symbols
from qglow.codegen.parallel import compile_apart
from qglow.core.errors import ArtefactError, InternalError
from qglow.targets.capabilities import machine
from qglow.targets.registry import find_target

TEXT = """
declare void @needed()
define void @{name}() nounwind {{
  call void @needed()
  ret void
}}
"""


def objects(target: str) -> dict[str, bytes]:
    texts = [TEXT.format(name=name) for name in ("first", "second")]
    made = compile_apart(texts, machine(find_target(target)))
    return dict(zip(["short.o", "a_name_of_more_than_fifteen_letters.o"], made, strict=True))


@pytest.mark.parametrize("target", ["generic", "cortex-m4", "wasm32"])
def test_symbols_of_both_classes_of_elf_and_of_webassembly(target: str) -> None:
    found = symbols(objects(target)["short.o"])
    assert found.defined == ("first",) and found.undefined == ("needed",)


@pytest.mark.parametrize("target", ["generic", "cortex-m4", "wasm32"])
def test_code_is_part_of_an_object_file(target: str) -> None:
    content = objects(target)["short.o"]
    assert 2 <= code_bytes(content) < len(content)


def test_members_are_read_back() -> None:
    members = objects("generic")
    assert read_library(write_library(members)) == members


def test_linker_tools_read_the_library(tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no C compiler is installed")
    (tmp_path / "lib.a").write_bytes(write_library(objects("generic")))
    said = subprocess.run(
        ["nm", "--print-armap", "lib.a"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "first in short.o" in said and "second in a_name_of_more_than_fifteen_letters.o" in said


@pytest.mark.parametrize("content", [b"", b"!<arch>\n" + b"x" * 30, b"ELF"])
def test_what_is_no_library_is_refused(content: bytes) -> None:
    if content.startswith(b"!"):
        content = write_library(objects("generic"))[:200]
    with pytest.raises(ArtefactError, match="damaged"):
        read_library(content)


def test_what_is_no_object_file_is_refused() -> None:
    with pytest.raises(InternalError, match="ELF"):
        symbols(b"MZ\0\0\0\0")
