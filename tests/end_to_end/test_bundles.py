"""Bundles: written, linked by a C compiler, loaded, emulated and compared."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.bundles.interface import BundleTensor
from qglow.cli.main import main
from qglow.emulation.bundle import load_bundle
from qglow.emulation.machines import EMULATORS
from qglow.targets.registry import running_names
from tests.compilers import c_compiler
from tests.emulated import needs
from tests.zoo import zoo_model

DIGITS = Path(__file__).parents[2] / "calib_data"
HOST_TARGETS = [name for name in running_names() if name != "reference"]
EMULATED = (
    "wasm32",
    "wasm32-simd128",
    "aarch64-dotprod",
    "armv7",
    "riscv64",
    "cortex-m4",
    "cortex-m55",
    "cortex-m0plus",
)


@pytest.fixture(scope="module")
def digits() -> qglow.QuantizedModel:
    model = qglow.load_model(DIGITS / "digits.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=20)
    return model.quantize(profile, check=False, repair=False)


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    with np.load(DIGITS / "test.npz") as data:
        name = next(key for key in data if data[key].ndim == 4)
        return [data[name][number : number + 1].astype(np.float32) for number in range(3)]


def built(folder: Path, source: str, *libraries: Path) -> subprocess.CompletedProcess[str]:
    """Compile C code with bundles, strictly, and run it."""
    (folder / "program.c").write_text(source)
    paths = [word for library in libraries for word in (f"-I{library}", f"-L{library}")]
    names = [f"-l{next(library.glob('*.h')).stem}" for library in libraries]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    command = [c_compiler(), *flags, "program.c", *paths, *names, "-o", "program"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return subprocess.run(["./program"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", HOST_TARGETS)
def test_a_bundle_of_the_host_gives_the_bits_of_the_program(
    digits: qglow.QuantizedModel, images: list[np.ndarray], target: str, tmp_path: Path
) -> None:
    digits.save_bundle(tmp_path / "made", isa=target)
    bundle, program = qglow.load_bundle(tmp_path / "made"), digits.compile(isa=target)
    assert bundle.isa == target
    for image in images:
        wanted = program({"input": image})
        found = bundle({"input": image})
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("target", EMULATED)
def test_an_emulated_bundle_gives_the_bits_of_the_program(
    digits: qglow.QuantizedModel, images: list[np.ndarray], target: str, tmp_path: Path
) -> None:
    needs(target)
    digits.save_bundle(tmp_path / "made", isa=target)
    bundle, program = qglow.load_bundle(tmp_path / "made"), digits.compile()
    for image in images:
        assert np.array_equal(bundle({"input": image})["logits"], program({"input": image})["logits"])


@pytest.mark.parametrize("name", ["digits", "mlperftiny_kws_dscnn", "mlperftiny_resnet8"])
def test_c_sources_give_the_bits_of_the_program(
    digits: qglow.QuantizedModel, name: str, tmp_path: Path
) -> None:
    cc, int8 = c_compiler(), digits
    if name != "digits":
        model = qglow.load_model(zoo_model(name))
        random = np.random.default_rng(0)
        shapes = {key: kind.shape for key, kind in model.compile().inputs.items()}
        data = {key: random.standard_normal((8, *shape[1:]), np.float32) for key, shape in shapes.items()}
        int8 = model.quantize(model.profile(data), check=False, repair=False)
    program = int8.compile()
    int8.save_bundle(tmp_path / "made", isa="c")
    bundle = qglow.load_bundle(tmp_path / "made")
    for seed in range(2):
        random = np.random.default_rng(seed)
        given = {key: random.standard_normal(kind.shape, np.float32) for key, kind in program.inputs.items()}
        wanted, found = program(given), bundle(given)
        assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    sources = sorted(path.name for path in (tmp_path / "made").glob("*_*.c"))
    subprocess.run([cc, *flags, *sources], cwd=tmp_path / "made", check=True, capture_output=True)
    objects = [str(path) for path in (tmp_path / "made").glob("*.o")]
    subprocess.run(
        [cc, "-std=c11", "main.c", *objects, "-o", "main"],
        cwd=tmp_path / "made",
        check=True,
        capture_output=True,
    )
    done = subprocess.run(["./main"], cwd=tmp_path / "made", capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "self-test passed" in done.stdout


def test_c_sources_refuse_flags_that_change_results(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    cc, made = c_compiler(), tmp_path / "made"
    digits.save_bundle(made, isa="c")
    for flags, said in ((["-ffast-math"], "-ffast-math"), (["-mfpmath=387"], "FLT_EVAL_METHOD")):
        command = [cc, "-std=c99", "-c", *flags, "digits_code.c"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        assert done.returncode and said in done.stderr
    assert "-ffp-contract=off" in (made / "digits-config.cmake").read_text()


def test_sources_of_a_float_model_run(tmp_path: Path) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=3)
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "neighbours", kinds[:1], kinds[1:])
    file, made = tmp_path / "lrn.onnx", tmp_path / "made"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    c_compiler()
    assert main(["compile", str(file), "--emit", "c", "--emit-bundle", str(made)]) == 0
    given = {"x": np.arange(36, dtype=np.float32).reshape(1, 4, 3, 3)}
    wanted = qglow.load_model(file).compile()(given)["y"]
    assert load_bundle(made)(given)["y"].tobytes() == wanted.tobytes()
    assert main(["compile", str(file), "--emit", "c"]) == 2
    assert main(["compile", str(file), "--emit", "c", "--target", "riscv64", "--emit-bundle", str(made)]) == 2


def test_the_size_of_code_is_told_only_where_it_is_known(
    digits: qglow.QuantizedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.save(tmp_path / "int8")
    for name, more in (("c", ["--emit", "c"]), ("m4", ["--target", "cortex-m4"])):
        made = str(tmp_path / name)
        assert main(["compile", str(tmp_path / "int8"), *more, "--emit-bundle", made]) == 0
        said = capsys.readouterr()
        assert "weights" in said.err + said.out and ("code " in said.err + said.out) is (name == "m4")


def test_instructions_are_counted_in_emulators_only(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    digits.save_bundle(tmp_path / "made")
    with pytest.raises(qglow.UsageError, match="not counted"):
        load_bundle(tmp_path / "made").instructions()


def test_a_processor_without_dot_products_is_refused_before_it_meets_one(
    digits: qglow.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("aarch64-dotprod")
    digits.save_bundle(tmp_path / "made", isa="aarch64-dotprod")
    command = ("qemu-aarch64", "-cpu", "cortex-a53")
    old = replace(EMULATORS["aarch64-dotprod"], command=command)
    monkeypatch.setitem(EMULATORS, "aarch64-dotprod", old)
    with pytest.raises(qglow.ArtefactError, match="lacks instructions that the code uses"):
        load_bundle(tmp_path / "made")


def test_the_example_compiles_and_passes_its_self_test(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    digits.save_bundle(tmp_path / "made")
    done = built(tmp_path, (tmp_path / "made" / "main.c").read_text(), tmp_path / "made")
    assert done.returncode == 0 and "self-test passed" in done.stdout


JAVASCRIPT = """
import { readFile } from "node:fs/promises";
import { load } from "./made/digits.mjs";
const model = await load(await readFile("made/digits.wasm"));
const input = new Float32Array(64).map((_, i) => i / 64);
const { logits } = model.run({ input });
console.log(JSON.stringify([model.selftest(), Array.from(logits)]));
try { model.run({ input: new Float32Array(3) }); } catch (error) { console.log(error.message); }
"""


def test_the_javascript_loader_runs_a_module(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    needs("wasm32-simd128")
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    digits.save_bundle(tmp_path / "made", isa="wasm32-simd128")
    (tmp_path / "try.mjs").write_text(JAVASCRIPT)
    done = subprocess.run(["node", "try.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    given = (np.arange(64, dtype=np.float32) / 64).reshape(1, 1, 8, 8)
    assert json.loads(first) == [0, digits.compile()({"input": given})["logits"][0].tolist()]
    assert second == "input input has 64 elements"


MISUSED = """
#include <stdio.h>
#include <string.h>
#include "digits.h"
static _Alignas(64) unsigned char arena[DIGITS_SELFTEST_BYTES + 64];
static _Alignas(64) unsigned char weights[DIGITS_WEIGHTS_BYTES];
int main(void)
{
    memcpy(weights, digits_weights, sizeof weights);
    printf("%d", (int)digits_check(arena, weights));
    printf(" %d", (int)digits_check(arena + 1, weights));
    printf(" %d", (int)digits_check(arena, weights + 8));
    printf(" %d", (int)digits_check_as(arena, weights, DIGITS_INTERFACE + 1u));
    weights[DIGITS_WEIGHTS_BYTES / 2] ^= 1;
    printf(" %d", (int)digits_check(arena, weights));
    return 0;
}
"""


def test_check_refuses_what_does_not_fit(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    digits.save_bundle(tmp_path / "made")
    assert built(tmp_path, MISUSED, tmp_path / "made").stdout == "0 1 2 4 5"


def test_self_test_finds_wrong_weights(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    """Plain kernels: others have places in memory among their weights, which a wrong byte sends anywhere."""
    digits.save_bundle(tmp_path / "made", isa=HOST_TARGETS[0])
    source = (
        MISUSED[: MISUSED.index('    printf("%d", (int)digits_check(arena, weights));')]
        + "    if (digits_check(arena, weights)) { return 1; }\n"
        + "    for (size_t i = 0; i < sizeof weights; i += 7) { weights[i] ^= 64; }\n"
        + '    printf("%d", (int)digits_selftest(arena, weights));\n    return 0;\n}\n'
    )
    assert built(tmp_path, source, tmp_path / "made").stdout == "1"


def test_two_bundles_link_into_one_program(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "other-model", kinds[:1], kinds[1:])
    file = tmp_path / "other.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    qglow.load_model(file).save_bundle(tmp_path / "b")
    digits.save_bundle(tmp_path / "a")
    other = next((tmp_path / "b").glob("*.h")).stem
    source = f"""
#include <stdio.h>
#include "digits.h"
#include "{other}.h"
static _Alignas(64) unsigned char arena[DIGITS_SELFTEST_BYTES + {other.upper()}_SELFTEST_BYTES];
int main(void)
{{
    if (digits_check(arena, digits_weights) || {other}_check(arena, {other}_weights)) {{ return 1; }}
    printf("%d %d", (int)digits_selftest(arena, digits_weights),
           (int){other}_selftest(arena, {other}_weights));
    return 0;
}}
"""
    assert built(tmp_path, source, tmp_path / "a", tmp_path / "b").stdout == "0 0"


def test_equal_models_give_equal_bytes(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    for name in ("a", "b"):
        digits.save_bundle(tmp_path / name, isa="cortex-m4")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)


def test_microcontrollers_get_startup_code_and_folders_usual_permissions(
    digits: qglow.QuantizedModel, tmp_path: Path
) -> None:
    digits.save_bundle(tmp_path / "made", isa="cortex-m4")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert "0xE000ED88" in (tmp_path / "made" / "startup.c").read_text()
    assert "mps2-an386" in (tmp_path / "made" / "board.ld").read_text()
    digits.save_bundle(tmp_path / "without", isa="cortex-m3")
    assert "0xE000ED88" not in (tmp_path / "without" / "startup.c").read_text()


def test_what_does_not_fit_a_device_is_refused_with_the_layer(
    digits: qglow.QuantizedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not digits.save_bundle(tmp_path / "fits", isa="cortex-m4", max_arena="16K", max_flash="256K")
    with pytest.raises(qglow.MemoryLimitError, match="arena takes .*is the first to hold"):
        digits.save_bundle(tmp_path / "made", isa="cortex-m4", max_arena="2K")
    with pytest.raises(
        qglow.MemoryLimitError, match="code takes .*K.*find no room.*'block4.0.conv/Conv' has the largest"
    ):
        digits.save_bundle(tmp_path / "made", isa="cortex-m4", max_flash="36K")
    with pytest.raises(qglow.UsageError, match="max_flash='much' is no size"):
        digits.save_bundle(tmp_path / "made", max_flash="much")
    assert not (tmp_path / "made").exists()
    model = str(DIGITS / "digits.onnx")
    assert main(["compile", model, "--max-arena", "1K", "-o", str(tmp_path / "x.qglow")]) == 2
    assert main(["compile", model, "--emit-bundle", str(tmp_path / "made"), "--max-arena", "1K"]) == 6
    assert main(["inspect", str(tmp_path / "fits")]) == 2
    assert "is a bundle, which holds code alone" in capsys.readouterr().err


def test_what_fits_otherwise_is_made_so_with_the_same_bits(
    digits: qglow.QuantizedModel, images: list[np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("cortex-m4")
    needs("aarch64")
    digits.save_bundle(tmp_path / "usual", isa="cortex-m4")
    digits.save_bundle(tmp_path / "large", isa="aarch64")
    (in_strips, *_) = digits.save_bundle(tmp_path / "strips", isa="cortex-m4", max_arena="7K")
    (small, *_) = digits.save_bundle(tmp_path / "small", isa="aarch64", max_flash="74K")
    assert "strips of rows" in in_strips and "to fit the flash" in small
    names = ("usual", "strips", "large", "small")
    usual, strips, large, little = (load_bundle(tmp_path / name) for name in names)
    assert strips.manifest.arena_bytes <= 7 * 1024 < usual.manifest.arena_bytes
    assert little.manifest.code_bytes + little.manifest.weights_bytes <= 74 * 1024
    assert little.manifest.code_bytes < 0.8 * large.manifest.code_bytes
    for image in images:
        wanted = usual({"input": image})["logits"]
        assert np.array_equal(strips({"input": image})["logits"], wanted)
        assert np.array_equal(little({"input": image})["logits"], wanted)
    model, made = str(DIGITS / "digits.onnx"), str(tmp_path / "told")
    assert main(["compile", model, "--target", "cortex-m4", "--emit-bundle", made, "--max-arena", "32K"]) == 0
    told = capsys.readouterr()
    assert "note: to fit the arena" in told.err and "_convolution" in told.out
    assert f"arena {load_bundle(tmp_path / 'told').manifest.arena_bytes / 1000:.2f} kB" in told.out


@pytest.mark.parametrize("target", ["cortex-m4", "wasm32", "aarch64"])
def test_bytes_of_kernels_are_those_of_the_code(
    digits: qglow.QuantizedModel, target: str, tmp_path: Path
) -> None:
    if target == "wasm32":
        needs(target)
    digits.save_bundle(tmp_path / "made", isa=target)
    manifest = json.loads((tmp_path / "made" / "digits.json").read_text())
    kernels, code = manifest["kernel_bytes"], manifest["code_bytes"]
    assert kernels["digits_run"] > 0 and any(name.endswith("_convolution") for name in kernels)
    assert 0.6 * code < sum(kernels.values()) <= code


def test_manifest_and_header_describe_the_tensors(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    digits.save_bundle(tmp_path / "made", isa="riscv64")
    manifest = json.loads((tmp_path / "made" / "digits.json").read_text())
    assert manifest["target"] == "riscv64" and manifest["cpu"] == "generic-rv64"
    assert [(t["field"], t["role"], t["shape"]) for t in manifest["tensors"]] == [
        ("input", "input", [1, 1, 8, 8]),
        ("logits", "output", [1, 10]),
    ]
    header = (tmp_path / "made" / "digits.h").read_text()
    assert "const float *input;" in header and "float *logits;" in header


def test_int8_ends_are_what_the_model_says(tmp_path: Path, images: list[np.ndarray]) -> None:
    """Targets hold activations with and without a bias; callers see the same bytes."""
    model = qglow.load_model(DIGITS / "digits.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=20)
    int8 = model.quantize(profile, qglow.Recipe(io="int8"), check=False, repair=False)
    kind = int8.compile().inputs["input"]
    assert BundleTensor("input", "input", kind, None).scale > 0  # type: ignore[arg-type]
    stored = np.arange(-32, 32, dtype=np.int8).reshape(kind.shape)
    wanted = int8.compile()({"input": stored})
    for target in (HOST_TARGETS[0], "aarch64-dotprod"):
        if target not in HOST_TARGETS:
            needs(target)
        int8.save_bundle(tmp_path / target, isa=target)
        found = qglow.load_bundle(tmp_path / target)({"input": stored})
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("damage", ["weights", "library", "manifest", "missing", "target", "empty"])
def test_a_damaged_bundle_is_refused(digits: qglow.QuantizedModel, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "made"
    digits.save_bundle(folder)
    if damage == "weights":
        content = bytearray((folder / "digits.weights.bin").read_bytes())
        content[5] ^= 1
        (folder / "digits.weights.bin").write_bytes(content)
    elif damage == "library":
        (folder / "libdigits.a").write_bytes(b"!<arch>\n")
    elif damage == "manifest":
        (folder / "digits.json").write_text("[" * 50_000)
    elif damage == "missing":
        (folder / "libdigits.a").unlink()
    elif damage == "target":
        text = (folder / "digits.json").read_text()
        (folder / "digits.json").write_text(text.replace('"prefix": "digits"', '"prefix": "../x"'))
    else:
        shutil.rmtree(folder)
    with pytest.raises(qglow.ArtefactError):
        qglow.load_bundle(folder)


def test_a_damaged_module_is_refused(digits: qglow.QuantizedModel, tmp_path: Path) -> None:
    needs("wasm32")
    digits.save_bundle(tmp_path / "made", isa="wasm32")
    content = (tmp_path / "made" / "digits.wasm").read_bytes()
    (tmp_path / "made" / "digits.wasm").write_bytes(content[:-1])
    with pytest.raises(qglow.ArtefactError, match="digits.wasm is not the file that its manifest names"):
        load_bundle(tmp_path / "made")


def test_commands_write_run_and_compare_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, quantized, bundle = tmp_path / "p.yaml", tmp_path / "q", tmp_path / "b"
    data, model = str(DIGITS / "test.npz"), str(DIGITS / "digits.onnx")
    assert main(["profile", model, "--data", str(DIGITS / "calib.npz"), "-o", str(profile)]) == 0
    assert main(["quantize", "--profile", str(profile), "-o", str(quantized), "--no-repair"]) == 0
    assert main(["compile", str(quantized), "--emit-bundle", str(bundle)]) == 0
    assert main(["run", str(bundle), "--data", data, "--samples", "3"]) == 0
    assert main(["compare", str(quantized), "--data", data, "--samples", "20", "--bundle", str(bundle)]) == 0
    capsys.readouterr()
    assert main(["compile", str(quantized), "--emit-bundle", str(bundle)]) == 4
    assert "is not empty" in capsys.readouterr().err
    assert (
        main(["compile", str(quantized), "--emit-bundle", str(tmp_path / "c"), "--target", "reference"]) == 2
    )
    assert "writes no bundles" in capsys.readouterr().err and not (tmp_path / "c").exists()
    assert main(["run", str(bundle), "--data", data, "--isa", "generic"]) == 2


@pytest.mark.parametrize("target", ["cortex-m4", "wasm32", "c"])
def test_a_target_of_another_processor_is_emulated_where_figures_are_wanted(
    digits: qglow.QuantizedModel, target: str
) -> None:
    if target == "c":
        c_compiler()
    else:
        needs(target)
    data = DIGITS / "test.npz"
    found = qglow.compare(digits, data, samples=5, isa=target)
    here = qglow.compare(digits, data, samples=5)
    assert found.pairings[0].overall == here.pairings[0].overall
