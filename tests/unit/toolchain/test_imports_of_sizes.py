"""Programs of several sizes come from one reading of the file, whose weights are decoded and packed once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qglow
from qglow.core.errors import ModelError
from qglow.core.kept_imports import KeptImports
from qglow.core.types import Array
from qglow.toolchain.bounded import every_bound
from qglow.toolchain.opened import resizable_to
from qglow.toolchain.undecided import open_model
from scripts.benchmarks.measurements.decoding import own_shapes
from scripts.random_llama import LlamaSize, Weights, random_llama
from tests.unit.importer.tiny import save

SIZE = LlamaSize(layers=1, width=64, heads=2, groups=2, inner=96, words=300)
BOUNDS: dict[str, int | tuple[int, ...] | str] = {
    "batch": 1,
    "new": (1, 8),
    "past": 16,
    "total": "past + new",
}
Counted = Callable[..., Any]


def counting(function: Counted, name: Callable[..., object], counts: Counter[object]) -> Counted:
    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name(*arguments)] += 1
        return function(*arguments, **named)

    return counted


@pytest.mark.parametrize("weights", ["float32", "int4", "int8"])
def test_a_file_is_read_decoded_and_packed_once(
    weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(random_llama(SIZE, weights=weights), tmp_path, "llama.onnx")
    model = resizable_to(open_model(path), BOUNDS)
    read, decoded, packed = Counter[object](), Counter[object](), Counter[object]()
    from qglow.importer import blocks, loading, value_table

    monkeypatch.setattr(loading, "_read", counting(loading._read, str, read))
    by_name = counting(value_table.to_array, lambda tensor, *_: tensor.name, decoded)
    monkeypatch.setattr(value_table, "to_array", by_name)
    monkeypatch.setattr(blocks, "pack", counting(blocks.pack, lambda codes, _: codes.shape, packed))
    made = [model.form(taken) for taken in every_bound(model.dimensions)]
    stored = [name for name in decoded if name]  # attributes of nodes have no names
    assert len(made) == 2 and list(read.values()) == [1]
    assert len(stored) > 8 and {decoded[name] for name in stored} == {1}
    matrices = len(list(SIZE.matrices())) + 1
    assert sum(packed.values()) == (0 if weights == "float32" else matrices)
    for graph, _ in made:
        shared = [value.data for value in graph.constants() if value.data is not None]
        assert any(not array.flags.writeable for array in shared if array.nbytes > 1 << 12)
    assert model._kept.held
    model.forget_file()
    assert not model._kept.held


def test_a_file_that_changes_between_sizes_is_refused(tmp_path: Path) -> None:
    path = save(random_llama(SIZE), tmp_path, "llama.onnx")
    model = resizable_to(open_model(path), BOUNDS)
    first, *_ = every_bound(model.dimensions)
    model.form(first)
    before = path.stat()
    save(random_llama(SIZE, seed=1), tmp_path, "llama.onnx")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # its time does not tell
    with pytest.raises(ModelError, match="has changed since it was loaded"):
        model.form(first)


FORMS: dict[str, tuple[Weights, dict[str, Any]]] = {
    "float": ("float32", {}),
    "int4": ("int4", {}),
    "int8": ("int8", {}),
    "quantized int8": ("float32", {"dynamic": True}),
    "quantized blocks": ("float32", {"weights": "int4:16", "dynamic": True}),
}


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every import begin anew."""

    def made(self: KeptImports, how: object, sources: object, make: Callable[[], Array]) -> Array:
        return make()

    monkeypatch.setattr(KeptImports, "parsed", lambda self, place, parse: parse(place))
    monkeypatch.setattr(KeptImports, "initializer", lambda self, name, decode: decode())
    monkeypatch.setattr(KeptImports, "derived", made)


def opened(form: str, folder: Path) -> qglow.Model | qglow.QuantizedModel:
    weights, chosen = FORMS[form]
    path = save(random_llama(SIZE, weights=weights), folder, "llama.onnx")
    model = qglow.load_model(path)
    return qglow.load_model(path, own_shapes(model)).quantize(**chosen) if chosen else model


@pytest.mark.parametrize("form", list(FORMS))
def test_no_byte_of_a_program_depends_on_what_is_kept(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(form, tmp_path)
    one, other = tmp_path / "one.qglow", tmp_path / "other.qglow"
    qglow.save_generator(model, one, context=16, piece=8, isa="reference")
    forgetful(monkeypatch)
    qglow.save_generator(model, other, context=16, piece=8, isa="reference")
    assert one.read_bytes() == other.read_bytes()


def test_blocks_of_dequantize_linear_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened("quantized blocks", tmp_path).save(tmp_path / "quantized")
    model = qglow.load_model(tmp_path / "quantized" / "model.qdq.onnx")
    one, other = tmp_path / "one.qglow", tmp_path / "other.qglow"
    qglow.save_generator(model, one, context=16, piece=8, isa="reference")
    forgetful(monkeypatch)
    qglow.save_generator(model, other, context=16, piece=8, isa="reference")
    assert one.read_bytes() == other.read_bytes()
