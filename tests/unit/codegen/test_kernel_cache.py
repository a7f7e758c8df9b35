"""Code of single kernels, kept across programs: what is found, what is compiled anew, who may share it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from qglow.codegen import functions
from qglow.codegen.cache import KernelCache, kernel_digest
from qglow.codegen.calls import make_call
from qglow.codegen.compiler import CompiledProgram, compile_program
from qglow.codegen.functions import call_key
from qglow.codegen.module import ModuleBuilder
from qglow.core.types import ElementType, Quantization, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.liveness import Usage
from qglow.instructions.ops.elementwise import ElementAdd, ElementMul
from qglow.instructions.passes.stacking import stacks
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.targets.x86.isas import GENERIC, isa_by_name
from tests.portable_target import PORTABLE
from tests.runtimes import NATIVE_ISAS, Built, machine, plan_apart, prepare, reference

AVX2 = isa_by_name("avx2")


def chain(*operations: ElementAdd | ElementMul, name: str = "chain", size: int = 20) -> Program:
    """src, combined with itself by one operation after the other."""
    builder, kind = ProgramBuilder(name), float_type(size)
    value = builder.placeholder("src", kind)
    for number, operation in enumerate(operations):
        last = number == len(operations) - 1
        result = builder.placeholder("dest", kind) if last else builder.activation(f"value{number}", kind)
        builder.emit(operation.opcode, operation, result, value, value)
        value = result
    return builder.finish()


def compiled(program: Program, folder: Path | None, isa: VectorTarget = GENERIC) -> CompiledProgram:
    prepared = prepare(program, isa.name)
    plan_apart(prepared)
    return compile_program(prepared, isa, kernels=None if folder is None else KernelCache(folder, isa))


ADD, MUL = ElementAdd(), ElementMul()


def test_a_kernel_is_compiled_once_for_all_programs(tmp_path: Path) -> None:
    first = compiled(chain(ADD, name="one"), tmp_path)
    second = compiled(chain(ADD, MUL, ADD, name="another"), tmp_path)
    third = compiled(chain(MUL, ADD, name="a third"), tmp_path)
    assert [c.kernels_compiled for c in (first, second, third)] == [1, 1, 0]
    assert len(second.objects) == 3  # two kernels and the entries
    assert first.objects[0] == second.objects[0] == third.objects[1]


def test_what_is_found_is_not_emitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(chain(ADD, MUL), tmp_path)
    monkeypatch.setattr(functions, "emit_function", lambda *_: pytest.fail("emitted again"))
    assert compiled(chain(MUL, ADD), tmp_path).kernels_compiled == 0


def test_code_is_the_same_with_and_without_a_cache(tmp_path: Path) -> None:
    alone = compiled(chain(ADD, MUL), None).objects
    assert [compiled(chain(ADD, MUL), tmp_path).objects for _ in range(2)] == [alone] * 2


def test_entries_are_emitted_once_for_equal_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [chain(ADD, MUL), chain(MUL, ADD), chain(ADD, ADD, MUL)]
    alone = [compiled(program, None).objects[-1] for program in programs]
    assert len(set(alone)) == 3
    assert [compiled(program, tmp_path).objects[-1] for program in programs] == alone
    monkeypatch.setattr(ModuleBuilder, "_entries", lambda *_: pytest.fail("emitted again"))
    assert compiled(chain(MUL, ADD, name="another"), tmp_path).objects[-1] == alone[1]


def test_names_are_digests_of_texts(tmp_path: Path) -> None:
    """Nothing that the author of a model writes is in a name, nor in the code."""
    evil = '../../evil"\n@x'
    files = [file for name in ("plain", evil) for file in _written(tmp_path / str(len(name)), name)]
    assert len(set(files)) == len(files) // 2 == 4  # code and name of the kernel, and of the entries
    assert all(
        len(Path(file).stem) == 64 and set(Path(file).stem) <= set("0123456789abcdef") for file in files
    )
    assert all(b"evil" not in code for code in compiled(chain(ADD, name=evil), None).objects)


def _written(folder: Path, name: str) -> list[str]:
    compiled(chain(ADD, name=name), folder)
    return [path.name for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("suffix", [".o", ".name"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "folder"])
def test_damaged_entries_are_compiled_anew(tmp_path: Path, suffix: str, damage: str) -> None:
    whole = compiled(chain(ADD, MUL), tmp_path)
    for path in tmp_path.rglob(f"*{suffix}"):
        data = path.read_bytes()
        path.unlink()
        if damage == "folder":
            path.mkdir()
        elif damage != "gone":
            path.write_bytes(
                {"flip": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-7], "empty": b""}[damage]
            )
    again = compiled(chain(ADD, MUL), tmp_path)
    assert again.objects == whole.objects
    # Where only the way from the key is lost, the text still leads to the code.
    assert again.kernels_compiled == (2 if suffix == ".o" else 0)
    if damage != "folder":
        assert compiled(chain(MUL, ADD), tmp_path).kernels_compiled == 0


def test_targets_have_kernels_of_their_own(tmp_path: Path) -> None:
    compiled(chain(ADD), tmp_path, GENERIC)
    assert compiled(chain(ADD), tmp_path, AVX2).kernels_compiled == 1
    assert len({kernel_digest("text", isa) for isa in (GENERIC, AVX2)}) == 2


def test_kernels_of_a_foreign_target_are_found_by_their_text(tmp_path: Path) -> None:
    """The version in a key is that of qglow's sources alone, and not of a package with a target."""
    assert [compiled(chain(ADD), tmp_path, PORTABLE).kernels_compiled for _ in range(2)] == [1, 0]
    assert not list(tmp_path.rglob("*.name"))


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert compiled(chain(ADD), blocked).kernels_compiled == 1


def test_processes_may_share_a_cache(tmp_path: Path) -> None:
    """All at once in an empty folder: everybody gets the same code, and what is left is whole."""
    expected = compiled(chain(ADD, MUL), None).objects
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_objects, [str(tmp_path)] * 6)
    assert found == [expected] * 6
    assert compiled(chain(ADD, MUL), tmp_path).kernels_compiled == 0
    assert not list(tmp_path.rglob("*.tmp"))


def _objects(folder: str) -> tuple[bytes, ...]:
    return compiled(chain(ADD, MUL), Path(folder)).objects


def test_keys_can_be_read_back_to_the_last_bit() -> None:
    """What a key says in words, from which names are made, tells apart what differs."""

    def key(scale: float) -> str:
        kind = TensorType(ElementType.INT8, (1, 4), Quantization.per_tensor(scale, 3))
        builder = ProgramBuilder("keys")
        src, dest = builder.placeholder("src", kind), builder.placeholder("dest", kind)
        builder.emit("add", ElementAdd(lo=float(np.float32(scale))), dest, src, src)
        program = prepare(builder.finish(), "generic")
        [group] = stacks(program)
        return repr(call_key(make_call(group, Usage(program), GENERIC)))

    assert key(0.5) == key(0.5)
    assert key(0.5) != key(float(np.nextafter(np.float32(0.5), np.float32(1))))
    assert " at 0x" not in key(0.5)


def test_kernels_from_the_cache_compute_the_same(tmp_path: Path) -> None:
    """Programs that were never compiled run on kernels of those that were."""
    src = np.linspace(-2, 2, 20, dtype=np.float32)
    isa = NATIVE_ISAS[0]
    cache = KernelCache(tmp_path, machine(isa))
    for number, operations in enumerate([(ADD, MUL), (MUL, ADD), (MUL, MUL, ADD)]):
        prepared = prepare(chain(*operations), isa)
        plan_apart(prepared)
        built = Built(prepared, isa, cache)
        assert built.compiled.kernels_compiled == (0 if number else 2)
        expected = reference(prepared, {"src": src}).outputs["dest"]
        assert built.run({"src": src}, {}).outputs["dest"].tobytes() == expected.tobytes()
