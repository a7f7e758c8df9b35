"""Programs for given shapes and ranges in one model.qglow: the bits of static programs, and weights once."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.cli.main import main
from qglow.codegen import compiler
from qglow.core.errors import ArtefactError, DataError, UnsupportedError, UsageError
from qglow.core.files import sha256_hex
from qglow.core.types import Array
from qglow.runtime.collection import load_collected_code, save_collected_code
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.collected import make_collection
from qglow.toolchain.opened import resizable_in
from tests.end_to_end.bits import same
from tests.end_to_end.decoder_model import DEPTH, HEADS, STATES, decoder, tokens
from tests.runtimes import NATIVE_ISAS, PLAIN, machine
from tests.unit.importer.tiny import save, tiny_model

WIDTH = 96
SHAPES: list[dict[str, tuple[int | str, ...]]] = [
    {"x": (1, "1..40", WIDTH)},
    {"x": (1, 9, WIDTH)},
    {"x": (2, 30, WIDTH)},
]
TAKEN = ((1, 1), (1, 9), (1, 17), (1, 40), (2, 30))
"""Batches and lengths: of a range, and of programs alone."""
node = helper.make_node


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(11)
    shapes = {**dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH)), "w1": (WIDTH, 500), "w2": (500, 10)}
    constants = {
        name: (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["seen"]),
        node("Add", ["seen", "x"], ["residual"]),
        node("MatMul", ["residual", "w1"], ["wide"]),
        node("Relu", ["wide"], ["positive"]),
        node("MatMul", ["positive", "w2"], ["y"]),
    ]
    model = tiny_model(nodes, {"x": ["N", "T", WIDTH]}, ["y"], constants, opset=17)
    return save(model, tmp_path_factory.mktemp("ahead"), "attention.onnx")


def sample(batch: int, length: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(length).normal(size=(batch, length, WIDTH)).astype(np.float32)}


def sequences() -> Iterator[dict[str, Array]]:
    for length in (5, 9, 9, 30):
        yield {"x": sample(1, length)["x"][0]}


@pytest.fixture(scope="module")
def model(path: Path) -> qglow.Model:
    return qglow.load_model(path)


@pytest.fixture(scope="module")
def quantized(model: qglow.Model) -> qglow.QuantizedModel:
    return model.quantize(model.profile(sequences), repair=False, check=False)


@pytest.fixture(scope="module")
def files(
    model: qglow.Model, quantized: qglow.QuantizedModel, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    for name, source in (("float", model), ("int8", quantized)):
        source.save_program(folder / f"{name}.qglow", shapes=SHAPES)
    return {name: folder / f"{name}.qglow" for name in ("float", "int8")}


@pytest.mark.parametrize("kind", ["float", "int8"])
@pytest.mark.parametrize("isa", [*NATIVE_ISAS, "reference"])
def test_every_program_has_the_bits_of_a_static_one(
    model: qglow.Model, quantized: qglow.QuantizedModel, files: dict[str, Path], kind: str, isa: str
) -> None:
    source = model if kind == "float" else quantized
    program, own = qglow.load(files[kind], isa=isa), source.compile(isa=isa)
    assert isinstance(program, BoundedExecutable) and program.isa == isa
    assert [one.form.taken.open for one in program._programs] == [(), ("T",), ()]
    for batch, length in TAKEN:
        inputs = sample(batch, length)
        if (kind, isa) == ("float", "reference"):  # numpy's own products, in its own order
            np.testing.assert_allclose(program(inputs)["y"], own(inputs)["y"], rtol=1e-4, atol=1e-5)
        else:
            assert same(program(inputs), own(inputs)), (batch, length)
    if kind == "int8" and isa == "reference":
        assert same(program(sample(1, 17)), quantized.interpret(sample(1, 17)))


def test_a_range_takes_its_own_sizes_alone(files: dict[str, Path]) -> None:
    program = qglow.load(files["float"])
    for batch, length in ((1, 0), (1, 41), (2, 9), (9, 30), (1, 41)):
        with pytest.raises(DataError, match="no program takes|the bound is"):
            program(sample(batch, length))
        with pytest.raises(DataError):
            program.prepare({"x": (batch, length, WIDTH)})
    with pytest.raises(DataError, match="x"):
        program({"y": sample(1, 9)["x"]})


def test_programs_are_shown(files: dict[str, Path]) -> None:
    program = qglow.load(files["int8"])
    shown = [f"x [1, 9, {WIDTH}]", f"x [1, 1..40, {WIDTH}]", f"x [2, 30, {WIDTH}]"]
    assert program.to_dict()["programs"] == shown
    assert all(text in repr(program) for text in shown)
    assert program.programs == tuple({"x": (n, t, WIDTH)} for n, t in ((1, 9), (1, 40), (2, 30)))


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_weights_are_stored_once(
    model: qglow.Model, quantized: qglow.QuantizedModel, files: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    source = model.at({"x": (1, 9, WIDTH)}) if kind == "float" else quantized
    source.save_program(tmp_path / "one.qglow")
    one, three = (_sizes(file) for file in (tmp_path / "one.qglow", files[kind]))
    assert three["constants"] < 1.05 * one["constants"] + 4096
    # With few registers, tiles of few rows pack small weights in a way of their own.
    packings = 1 if machine(NATIVE_ISAS[-1]).registers >= 32 else 2
    assert three["weights"] < 1.05 * packings * one["weights"] + 4096
    total = sum(array.nbytes for name, array in _constants(files[kind]).items())
    assert total > 50_000, "weights have to be what counts"


def _sizes(path: Path) -> dict[str, int]:
    found = {"constants": 0, "weights": 0}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            part = "weights" if info.filename.endswith("weights.bin") else info.filename.split("/")[0]
            found[part] = found.get(part, 0) + info.file_size
    return found


def _constants(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("constants/")]
        return {name: np.load(archive.open(name)) for name in names}


def test_the_same_shapes_give_the_same_bytes(
    quantized: qglow.QuantizedModel, files: dict[str, Path], tmp_path: Path
) -> None:
    quantized.save_program(tmp_path / "again.qglow", shapes=SHAPES)
    assert (tmp_path / "again.qglow").read_bytes() == files["int8"].read_bytes()


def _refuse(*arguments: object, **keywords: object) -> Any:
    raise AssertionError("nothing is to be made")


def test_nothing_is_compiled_for_who_trusts_the_file(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "compile_modules", _refuse)
    program = qglow.load(files["int8"], trust=True)
    for batch, length in TAKEN:
        program(sample(batch, length))
    with pytest.raises(AssertionError, match="nothing"):
        qglow.load(files["int8"])  # the cache is empty


def test_code_that_is_not_trusted_is_compiled_once(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = qglow.load(files["int8"])(sample(1, 17))
    monkeypatch.setattr(compiler, "compile_modules", _refuse)
    monkeypatch.setattr("qglow.toolchain.collected.emit_together", _refuse)
    assert same(qglow.load(files["int8"])(sample(1, 17)), first)


def test_cached_code_is_that_of_the_same_programs_and_compiler(model: qglow.Model, tmp_path: Path) -> None:
    made = make_collection(*resizable_in(model._opened, SHAPES[1]))
    [code] = made.code
    path, identity = tmp_path / "code", made.stored.identity
    save_collected_code(path, identity, code)
    assert load_collected_code(path, identity, 1, code.target, code.compiler) is not None
    assert load_collected_code(path, "0" * 64, 1, code.target, code.compiler) is None
    assert load_collected_code(path, identity, 1, code.target, "another compiler") is None
    assert load_collected_code(path, identity, 1, "another target", code.compiler) is None
    with pytest.raises(ArtefactError, match="damaged"):
        load_collected_code(path, identity, 2, code.target, code.compiler)


def test_a_directory_compiles_only_what_it_has_no_program_for(
    quantized: qglow.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quantized.save(tmp_path / "int8", shapes=SHAPES) == ()
    own = {taken: quantized.compile()(sample(*taken)) for taken in (*TAKEN, (3, 4))}
    with monkeypatch.context() as patched:
        patched.setattr("qglow.artefacts.replay.quantize_with", _refuse)
        patched.setattr(compiler, "compile_modules", _refuse)
        program = qglow.load_quantized(tmp_path / "int8").compile()
        assert "1..40" in repr(program) and len(program.programs) == 3
        for taken in TAKEN:
            assert same(program(sample(*taken)), own[taken]), taken
        with pytest.raises(AssertionError, match="nothing"):
            program(sample(3, 4))
    assert same(program(sample(3, 4)), own[3, 4])
    assert program.programs[-1] == {"x": (3, 4, WIDTH)}
    program.prepare({"x": (1, 33, WIDTH)})
    assert len(program.programs) == 4


def test_a_dimension_may_be_a_sum(tmp_path: Path) -> None:
    model = qglow.load_model(save(decoder(given=True), tmp_path))
    cache: dict[str, tuple[int | str, ...]] = dict.fromkeys(STATES, (1, HEADS, "0..24", DEPTH))
    chosen = [
        {"tokens": (1, new), "position_ids": (1, new), "attention_mask": (1, "past + new"), **cache}
        for new in (1, "1..8")
    ]
    model.save_program(tmp_path / "decoder.qglow", shapes=chosen)
    program, own = qglow.load(tmp_path / "decoder.qglow"), model.compile()
    random = np.random.default_rng(4)
    for new, past in ((1, 0), (1, 24), (8, 24), (5, 17), (3, 0)):
        inputs = {
            "tokens": tokens(new),
            "position_ids": np.arange(past, past + new)[None],
            "attention_mask": np.ones((1, past + new), np.int64),
            **{n: random.normal(size=(1, HEADS, past, DEPTH)).astype(np.float32) for n in STATES},
        }
        assert same(program(inputs), own(inputs)), (new, past)


def test_a_small_range_that_no_program_takes_has_one_for_each_size(tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "all"], ["y"], name="merged")
    made = tiny_model([node], {"x": (1, 4, "T")}, ["y"], {"all": np.array([-1])})
    model = qglow.load_model(save(made, tmp_path))
    notes = model.save_program(tmp_path / "few.qglow", shapes={"x": (1, 4, "20..24")})
    assert len(notes) == 1 and "5 programs" in notes[0] and "merged" in notes[0]
    program, own = qglow.load(tmp_path / "few.qglow"), model.compile()
    assert [one["x"][2] for one in program.programs] == [20, 21, 22, 23, 24]
    drawn = {"x": np.random.default_rng(0).normal(size=(1, 4, 22)).astype(np.float32)}
    assert same(program(drawn), own(drawn))
    with pytest.raises(UnsupportedError, match="merged.*more than 16"):
        model.save_program(tmp_path / "many.qglow", shapes={"x": (1, 4, "1..200")})
    assert not (tmp_path / "many.qglow").exists()


def test_a_range_below_the_least_bound_is_taken_size_by_size(model: qglow.Model, tmp_path: Path) -> None:
    assert model.save_program(tmp_path / "small.qglow", shapes={"x": ("1..3", 4, WIDTH)}) == ()
    program = qglow.load(tmp_path / "small.qglow")
    assert [one["x"][0] for one in program.programs] == [1, 2, 3]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([], "no shape"),
        ({"y": (1, 2, WIDTH)}, "no input is called 'y'"),
        ({"x": (1, 2)}, "axes"),
        ({"x": (1, 2, 3)}, "axis 2 of 'x' is 96"),
        ({"x": (1, "5..2", WIDTH)}, "5..2"),
        ({"x": (1, -1, WIDTH)}, "-1"),
        ({"x": (1, "1..", WIDTH)}, "1\\.\\."),
        ({"x": (1, "N+M", WIDTH)}, "N\\+M"),
        ({"x": ("1..6", "1..6", WIDTH)}, "more than 16"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    model: qglow.Model, tmp_path: Path, shapes: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        model.save_program(tmp_path / "no.qglow", shapes=shapes)
    assert not (tmp_path / "no.qglow").exists()


def test_commands_write_and_run_several_programs(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "x.qglow", tmp_path / "data"
    data.mkdir()
    for length in (3, 9, 33):
        np.savez(data / f"{length}.npz", x=sample(1, length)["x"])
    ranges = ["--shape", f"x=1,1..40,{WIDTH}", "--shape", f"x=1,9,{WIDTH}"]
    assert main(["compile", str(path), *ranges, "-o", str(out)]) == 0
    assert [one["x"][1] for one in qglow.load(out).programs] == [9, 40]
    assert main(["run", str(out), "--data", str(data), "-o", str(tmp_path / "y.npz")]) == 0
    assert main(["compile", str(path), *ranges, "--emit-bundle", str(tmp_path / "bundle")]) == 2
    assert main(["compile", str(path), *ranges, "--shape", "z=1", "-o", str(out)]) == 2
    profile, int8 = tmp_path / "p.yaml", tmp_path / "int8"
    assert main(["profile", str(path), "--data", str(data), "-o", str(profile)]) == 0
    assert main(["quantize", "--profile", str(profile), *ranges, "-o", str(int8)]) == 0
    assert [one["x"][1] for one in qglow.load_quantized(int8).compile().programs] == [9, 40]
    assert main(["run", str(int8), "--data", str(data), "-o", str(tmp_path / "z.npz")]) == 0
    again = tmp_path / "again.qglow"
    assert main(["compile", str(int8), "--shape", f"x=1,5..12,{WIDTH}", "-o", str(again)]) == 0
    drawn = sample(1, 7)
    assert same(qglow.load(again)(drawn), qglow.load_quantized(int8).compile()(drawn))
    capsys.readouterr()


def test_a_file_is_inspected(
    model: qglow.Model, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(files["int8"])]) == 0
    shown = capsys.readouterr().out
    assert f"x [1, 1..40, {WIDTH}]" in shown and "packed weights" in shown and "constants" in shown
    model.at({"x": (1, 9, WIDTH)}).save_program(tmp_path / "one.qglow", isa=PLAIN)
    assert main(["inspect", str(tmp_path / "one.qglow")]) == 0
    shown = capsys.readouterr().out
    assert f"x [1, 9, {WIDTH}]" in shown and PLAIN in shown
    assert main(["inspect", str(files["int8"]), "--stage", "llvm"]) == 2
    (tmp_path / "bad.qglow").write_bytes(files["int8"].read_bytes()[:5000])
    assert main(["inspect", str(tmp_path / "bad.qglow")]) == main(
        ["run", str(tmp_path / "bad.qglow"), "--data", "."]
    )
    capsys.readouterr()


def forged(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy with other facts, whose digests are right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(members["facts.json"])
    change(facts)
    members["facts.json"] = json.dumps(facts).encode()
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"]["facts.json"] = sha256_hex(members["facts.json"])
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def _first_filler(facts: dict[str, Any], **changes: object) -> None:
    next(form for form in facts["forms"] if form["fillers"])["fillers"][0].update(changes)


FORGERIES: list[Callable[[dict[str, Any]], None]] = [
    lambda facts: facts["forms"].pop(),
    lambda facts: facts["forms"][0]["inputs"].clear(),
    lambda facts: facts["forms"][0]["sizes"].update(T=10**6),
    lambda facts: facts["forms"][0]["least"].update(T=10**9),
    lambda facts: facts["forms"][0]["counts"]["y"].pop(),
    lambda facts: facts["forms"][0]["counts"]["y"][1].__setitem__(0, 10**9),
    lambda facts: facts["forms"][0]["outputs"][0].__setitem__(0, "other"),
    lambda facts: facts["inputs"][0][1][1].append(["no such dimension", 1]),
    lambda facts: facts["bounds"].append(["S", []]),
    lambda facts: _first_filler(facts, bound=10**7),
    lambda facts: _first_filler(facts, rank=10**9),
    lambda facts: _first_filler(facts, kind="Filler"),
    lambda facts: _first_filler(facts, name="x"),
    lambda facts: facts.clear(),
]


@pytest.mark.parametrize("place", range(len(FORGERIES)))
def test_forged_facts_are_refused(files: dict[str, Path], tmp_path: Path, place: int) -> None:
    file = forged(files["float"], tmp_path / "forged.qglow", FORGERIES[place])
    with pytest.raises(ArtefactError, match="forged.qglow is damaged"):
        qglow.load(file, trust=True)


@pytest.mark.parametrize("member", ["facts.json", "programs/1.txt", "constants/0.npy"])
def test_damage_is_refused(files: dict[str, Path], tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(files["int8"]) as archive:
        content = archive.read(member)
    data = bytearray(files["int8"].read_bytes())
    data[data.index(content) + len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.qglow"
    damaged.write_bytes(bytes(data))
    with pytest.raises(ArtefactError, match="damaged"):
        qglow.load(damaged)
