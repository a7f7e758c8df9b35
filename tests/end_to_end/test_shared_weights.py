"""Programs of one decoder pack large weights alike and hold them once."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from qglow.kernels.emit.kernel import parse_kernel
from qglow.kernels.products.linear import TiledFullyConnected
from qglow.runtime.native import NativeProgram
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.growing import GrowingExecutable
from scripts.benchmarks.measurements.decoding import own_shapes
from scripts.random_llama import LlamaSize, random_llama
from tests.runtimes import NATIVE_ISAS, machine
from tests.unit.importer.tiny import save

SIZE = LlamaSize(layers=1, width=128, heads=4, groups=4, inner=512, words=8000)
"""Its weights take more than a megabyte in int8, the least for which programs pack them alike."""
SMALL = LlamaSize(layers=1, width=32, heads=4, groups=4, inner=64, words=40)
FORMS: dict[str, dict[str, Any]] = {
    "float": {},
    "dynamic": {"dynamic": True},
    "blocks": {"weights": "int4"},
    "dynamic blocks": {"weights": "int4:64:symmetric", "dynamic": True},
}
BLOCK_ISAS = ("avx2", NATIVE_ISAS[-1])
"""Those that programs with blocks are compiled for: one of few registers, and one of many."""
OWN_PACKINGS = ("avx2", "amx")
"""Those whose code for pairs of bytes and for tiles packs int8 weights in a way that few rows do without."""
BOUNDS = {"batch": 1, "new": (1, 16), "past": 24, "total": "past + new"}


def llama(folder: Path, size: LlamaSize, form: str = "float") -> qglow.Model | qglow.QuantizedModel:
    path = save(random_llama(size), folder, "llama.onnx")
    model, chosen = qglow.load_model(path), FORMS[form]
    return qglow.load_model(path, own_shapes(model)).quantize(**chosen) if chosen else model


def inputs(size: LlamaSize, past: int, new: int) -> dict[str, Array]:
    random = np.random.default_rng(past)
    cache = {
        f"past_key_values.{layer}.{kind}": random.normal(size=(1, size.groups, past, size.depth))
        for layer in range(size.layers)
        for kind in ("key", "value")
    }
    return {
        "input_ids": random.integers(0, size.words, (1, new)),
        "attention_mask": np.ones((1, past + new), np.int64),
        "position_ids": np.arange(past, past + new)[None],
        **{name: array.astype(np.float32) for name, array in cache.items()},
    }


def compiled(model: qglow.Model | qglow.QuantizedModel, isa: str | None = None) -> BoundedExecutable:
    found = model.compile(bounds=BOUNDS, isa=isa, threads=1)
    assert isinstance(found, BoundedExecutable)
    return found


@pytest.mark.parametrize(
    ("isa", "form"),
    [(isa, form) for isa in NATIVE_ISAS for form in FORMS if "blocks" not in form or isa in BLOCK_ISAS],
)
def test_weights_are_held_once_and_bits_stay(isa: str, form: str, tmp_path: Path) -> None:
    model = llama(tmp_path, SIZE, form)
    bounded, own = compiled(model, isa), model.compile(isa=isa, threads=1)
    loaded = [one.executable._loaded for one in bounded._programs]
    blocks = [program._weights for program in loaded if isinstance(program, NativeProgram)]
    assert len(blocks) == 2 and blocks[0] is blocks[1]
    listed = [constant for one in bounded._programs for constant in one.executable.program.constants]
    assert listed and all(constant.data is None for constant in listed)
    single = model.compile(bounds={**BOUNDS, "new": 16}, isa=isa, threads=1)
    if not (form == "dynamic" and isa in OWN_PACKINGS):
        assert bounded.weight_bytes < 1.02 * single.weight_bytes
    for past, new in ((7, 1), (24, 16), (3, 5)):
        given = inputs(SIZE, past, new)
        found, wanted = bounded(given), own(given)
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted), (past, new)


def test_programs_without_scores_leave_the_others_one_packing(tmp_path: Path) -> None:
    model = llama(tmp_path, SIZE)
    whole = compiled(model)
    generator = qglow.load_generator(model, context=32, piece=32, threads=1)
    assert isinstance(generator.executable, GrowingExecutable)
    assert generator.executable._executable.weight_bytes < 1.02 * whole.weight_bytes


def widths(bounded: BoundedExecutable) -> list[set[tuple[str, int]]]:
    """Weights of each program with the vectors of a block in which they are packed."""
    return [
        {
            (i.operand("filter").name, kernel.vectors)
            for i in one.executable.program.code
            if i.kernel
            and isinstance(kernel := parse_kernel(i.kernel, machine(one.executable.isa)), TiledFullyConnected)
        }
        for one in bounded._programs
    ]


def test_only_large_weights_decide_on_other_kernels(tmp_path: Path) -> None:
    isa = NATIVE_ISAS[-1]
    first, second = widths(compiled(llama(tmp_path, SIZE), isa))
    assert len(first) == 8 and first == second
    first, second = widths(compiled(llama(tmp_path, SMALL), isa))
    alone = llama(tmp_path, SMALL).compile(bounds={**BOUNDS, "new": 1}, isa=isa, threads=1)
    assert isinstance(alone, BoundedExecutable)
    assert [first] == widths(alone)


def test_an_interpreter_shares_nothing_and_gives_the_same(tmp_path: Path) -> None:
    model = llama(tmp_path, SMALL)
    bounded, given = compiled(model, "reference"), inputs(SMALL, 3, 5)
    found, wanted = bounded(given), model.compile()(given)
    np.testing.assert_allclose(found["logits"], wanted["logits"], rtol=1e-3, atol=1e-5)
    assert bounded.weight_bytes == max(one.executable.weight_bytes for one in bounded._programs)


TIED = LlamaSize(layers=1, width=128, heads=2, groups=2, inner=128, words=12_000)
"""The table of words is nearly all of it."""
TABLE_BYTES = {"float": 4.0, "dynamic": 1.0, "blocks": 0.5, "dynamic blocks": 0.5}


@pytest.mark.parametrize("form", FORMS)
def test_the_head_and_the_table_of_words_are_held_once(form: str, tmp_path: Path) -> None:
    model = llama(tmp_path, TIED, form)
    path = tmp_path / "llama.qglow"
    qglow.save_generator(model, path, context=32, piece=32)
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    table = TABLE_BYTES[form] * TIED.words * TIED.width
    constants = sum(size for name, size in sizes.items() if name.startswith("constants/"))
    packed = sum(size for name, size in sizes.items() if name.endswith("weights.bin"))
    assert table < constants < 1.5 * table
    # What is packed has scales too, and sums of blocks for many rows.
    assert table < packed
    if not (form == "dynamic" and NATIVE_ISAS[-1] in OWN_PACKINGS):
        assert packed < 1.5 * table
    generator, single = (
        qglow.load_generator(qglow.load(path, trust=True)),
        qglow.load_generator(model, context=32),
    )
    tokens = np.random.default_rng(1).integers(0, TIED.words, 21).tolist()
    every = generator.read(tokens)
    for token in tokens:
        found = single.read([token])
    np.testing.assert_array_equal(every, found)
