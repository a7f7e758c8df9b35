"""Tokens per second of decoders: programs in turns, over a Llama with drawn weights."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import ModelError, UsageError
from qglow.core.types import Array
from qglow.generation import find_roles
from qglow.report.decoding import OnnxruntimeDecoder, decoding_section, measure_decoding
from qglow.report.decoding_rivals import LlamaCppDecoder
from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import decoding
from scripts.benchmarks.rivals.decoders import packed
from scripts.benchmarks.rivals.openvino_decoders import Weights, openvino_decoder
from scripts.random_llama import LlamaSize, random_llama
from scripts.random_llama import main as write_llama
from tests.unit.gguf import writer
from tests.unit.importer.tiny import save

Capture = pytest.CaptureFixture[str]
TINY = LlamaSize(layers=2, width=32, heads=4, groups=2, inner=48, words=40)
SIZES = [
    f"--{name}={getattr(TINY, name)}" for name in ("layers", "width", "heads", "groups", "inner", "words")
]
TOKENS = [7, 3, 31, 12, 5, 5, 30, 1, 19, 22, 8]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_llama(TINY, seed=3), tmp_path_factory.mktemp("llama"), "llama.onnx")


def in_onnxruntime(path: Path) -> OnnxruntimeDecoder:
    model = qglow.load_model(path)
    roles = find_roles(model.dimensions)
    states = {name: name.replace("past_key_values", "present") for name in roles.states}
    return OnnxruntimeDecoder(path, states, "logits", roles.arrays)


def test_a_drawn_llama_goes_on_alike_in_both(llama: Path) -> None:
    onnx.checker.check_model(llama, full_check=True)
    generator = qglow.load_generator(qglow.load_model(llama), context=16, piece=8)
    rival = in_onnxruntime(llama)
    for begin, end in itertools.pairwise((0, 5, 6, 7, len(TOKENS))):
        found, wanted = generator.read(TOKENS[begin:end]), rival.read(TOKENS[begin:end])
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    rival.reset()
    generator.reset()
    np.testing.assert_allclose(generator.read(TOKENS), rival.read(TOKENS), rtol=1e-3, atol=1e-4)


def test_a_drawn_llama_has_the_sizes_that_are_asked_for(tmp_path: Path) -> None:
    assert write_llama([str(tmp_path / "l.onnx"), *SIZES, "--seed=3"]) == 0
    model = onnx.load(tmp_path / "l.onnx")
    assert model == random_llama(TINY, seed=3) != random_llama(TINY, seed=4)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    assert shapes["token_embd.weight"] == (40, 32) and shapes["output.weight.transposed"] == (32, 40)
    assert shapes["blk.1.attn_k.weight.transposed"] == (32, 16)
    assert shapes["blk.1.ffn_down.weight.transposed"] == (48, 32)
    matrices = [math.prod(shape) for name, shape in shapes.items() if name.endswith(".weight.transposed")]
    gains = 32 * sum(name.endswith("norm.weight") for name in shapes)
    assert TINY.parameters == sum(matrices) + gains  # the head is the table
    assert sum(value.name.startswith("past") for value in model.graph.input) == 4


def test_a_llama_of_drawn_integers_goes_on_alike_in_both(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "l.onnx"
    sizes = [size.replace("--inner=48", "--inner=64") for size in SIZES]
    assert write_llama([str(path), *sizes, "--weights=int4"]) == 0
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert {"MatMulNBits", "GatherBlockQuantized"} <= kinds
    generator = qglow.load_generator(qglow.load_model(path), context=16, piece=8)
    found, wanted = generator.read(TOKENS), in_onnxruntime(path).read(TOKENS)
    assert np.std(wanted) > 1e-3
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(SystemExit):
        write_llama([str(path), *SIZES, "--weights=int4"])
    assert "multiples of 32" in capsys.readouterr().err


@pytest.mark.parametrize("weights", ["float32", "int8", "int4"])
def test_a_drawn_gguf_file_has_the_weights_of_the_drawn_model(weights: str, tmp_path: Path) -> None:
    sizes = [*(size.replace("--inner=48", "--inner=64") for size in SIZES), f"--weights={weights}"]
    made = {}
    for name in ("drawn.gguf", "drawn.onnx"):
        assert write_llama([str(tmp_path / name), *sizes]) == 0
    qglow.import_gguf(tmp_path / "drawn.gguf", tmp_path / "imported.onnx")
    for name in ("imported", "drawn"):
        model = onnx.load(tmp_path / f"{name}.onnx")
        made[name] = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shared = [
        name for name in made["drawn"] if name.startswith(("blk", "token_embd")) and name in made["imported"]
    ]
    assert len(shared) >= 2 * 9 + 1
    # Keys and queries of such files have their halves interleaved.
    for name in (name for name in shared if "attn_q" not in name and "attn_k" not in name):
        np.testing.assert_array_equal(made["imported"][name], made["drawn"][name])


class Counted:
    """A decoder that takes a second for a call and two for each token."""

    def __init__(self, clock: list[int], weight: int) -> None:
        self._clock, self._weight, self.calls = clock, weight, list[list[int]]()

    def reset(self) -> None:
        self.calls.clear()

    def read(self, tokens: Sequence[int]) -> Array:
        self.calls.append(list(tokens))
        self._clock[0] += self._weight * (1 + 2 * len(tokens)) * 10**9
        return np.zeros(1)


def test_programs_read_a_text_and_go_on_in_turns() -> None:
    clock = [0]
    decoders = {"one": Counted(clock, 1), "other": Counted(clock, 3)}
    told: list[int] = []
    found = measure_decoding(
        {name: (lambda decoder=decoder: decoder) for name, decoder in decoders.items()},  # type: ignore[misc]
        lambda: [4, 5, 6, 7],
        3,
        2,
        threads=1,
        advance=told.append,
        clock=lambda: clock[0],
    )
    assert decoders["other"].calls == [[4, 5, 6], [7]] and told == [1, 1]
    assert found.prefill_s.tolist() == [[7, 7], [21, 21]] and found.decode_s.tolist() == [[3, 3], [9, 9]]
    assert found.speeds["one"].prefill == pytest.approx(3 / 7)
    assert found.speeds["other"].decode == pytest.approx(1 / 9)
    assert found.ratio("other", "one").ratio == 3 and found.ratio("one", "other", "prefill").low < 0.34
    (shown,) = decoding_section(found).blocks
    assert "3 tokens read, 1 added one by one, 2 texts, one thread" in str(shown)
    with pytest.raises(UsageError, match="at least one program"):
        measure_decoding({}, list, 1, 1, threads=1)


def test_memory_is_that_of_each_program(llama: Path) -> None:
    class Large(Counted):
        def __init__(self) -> None:
            super().__init__([0], 1)
            self.held = np.ones(1 << 25, np.uint8)

    clock = itertools.count()
    found = measure_decoding(
        {"large": Large, "small": lambda: Counted([0], 1)},
        lambda: [1, 2],
        1,
        1,
        threads=1,
        clock=lambda: next(clock),
    )
    assert found.speeds["large"].memory > 1 << 24 > found.speeds["small"].memory


def test_the_command_measures_a_float_and_a_quantized_model(
    llama: Path, tmp_path: Path, capsys: Capture
) -> None:
    sizes = ["--prefill", "9", "--decode", "4", "--texts", "2", "--threads", "1", "--piece", "8"]
    written = tmp_path / "times.json"
    assert main(["bench", str(llama), *sizes, "-o", str(written)]) == 0
    text = capsys.readouterr().out
    assert "9 tokens read, 4 added one by one, 2 texts" in text and "onnxruntime" in text
    document = json.loads(written.read_text())
    assert set(document["speeds"]) == {"qglow", "onnxruntime"} and document["decode"] == 4
    model = qglow.load_model(llama)
    bound = qglow.load_model(llama, decoding.own_shapes(model))
    bound.quantize(weights="int4").save(tmp_path / "int4")
    assert main(["bench", str(tmp_path / "int4"), *sizes]) == 0
    text = capsys.readouterr().out
    assert "qglow quantized" in text and "qglow float32" in text


def test_a_file_with_weights_in_blocks_is_not_called_float(llama: Path, tmp_path: Path) -> None:
    bound = qglow.load_model(llama, decoding.own_shapes(qglow.load_model(llama)))
    blocks = tmp_path / "blocks.onnx"
    blocks.write_bytes(bound.quantize(weights="int4").qdq_bytes())
    model = qglow.load_model(blocks, decoding.own_shapes(qglow.load_model(blocks)))
    found = qglow.bench_decoding(
        model.quantize(dynamic=True), prefill=4, decode=2, texts=1, threads=1, piece=8
    )
    assert list(found.speeds) == ["qglow quantized", "qglow weights as given", "onnxruntime"]


def test_rows_that_onnxruntime_rounds_are_told(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "l.onnx"
    sizes = [size.replace("--inner=48", "--inner=64") for size in SIZES]
    assert write_llama([str(path), *sizes, "--weights=int4"]) == 0
    command = ["bench", str(path), "--prefill=4", "--decode=2", "--texts=1", "--threads=1", "--piece=8"]
    assert main(command) == 0 and "accuracy_level" not in capsys.readouterr().out
    model = onnx.load(path)
    products = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    for node in products:
        kept = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("accuracy_level", 4)])
    onnx.save(model, path)
    assert main(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"round the rows of {len(products)} products to int8 (accuracy_level 4)" in said
    model = qglow.load_model(path, decoding.own_shapes(qglow.load_model(path)))
    found = qglow.bench_decoding(
        model.quantize(dynamic=True), prefill=4, decode=2, texts=1, threads=1, piece=8
    )
    assert found.rounded == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefill", "0"], "--prefill is 0, it must be at least 1"),
        (["--decode", "4", "--layers"], "--layers does not go with --prefill and --decode"),
        (["--texts", "3"], "--texts goes with --prefill and --decode"),
        (["--state", "a=b"], "--state goes with --prefill and --decode"),
        (["--gguf", "a.gguf"], "--gguf goes with --prefill and --decode"),
    ],
)
def test_mistakes_are_told(arguments: list[str], message: str, llama: Path, capsys: Capture) -> None:
    assert main(["bench", str(llama), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_without_a_cache_is_refused(tmp_path: Path, capsys: Capture) -> None:
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Gather", ["w", "tokens"], ["logits"])
    weights = onnx.numpy_helper.from_array(np.ones((5, 5), np.float32), "w")
    ends = ([info("tokens", 7, [1, "n"])], [info("logits", 1, [1, "n", 5])])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends, [weights]), ir_version=8)
    assert main(["bench", str(save(model, tmp_path)), "--decode", "4"]) == 2
    assert "the model has no cache" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "count"), [([], 8), (["--openvino"], 11)])
def test_the_benchmark_has_a_row_for_each_program(more: list[str], count: int, capsys: Capture) -> None:
    if more:
        pytest.importorskip("openvino")
        pytest.importorskip("nncf")
    times = ["--prefill=9", "--decode=3", "--texts=1", "--piece=8"]
    assert run(decoding.BENCHMARK, [*SIZES, *times, *more]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == count + 2 and lines[2].startswith("| qglow float32 |")


def test_openvino_goes_on_as_the_file_does(llama: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    roles = find_roles(qglow.load_model(llama).dimensions)
    states = {name: name.replace("past_key_values", "present") for name in roles.states}
    kinds: tuple[Weights, ...] = ("float32", "int8")
    made = {kind: openvino_decoder(llama, kind, states, "logits", roles.arrays) for kind in kinds}
    oracle = in_onnxruntime(llama)
    for begin, end in itertools.pairwise((0, 5, 6, 7, len(TOKENS))):
        wanted = oracle.read(TOKENS[begin:end])
        for weights, rival in made.items():
            near = 1e-4 if weights == "float32" else 0.05 * float(np.abs(wanted).max())
            np.testing.assert_allclose(rival.read(TOKENS[begin:end]), wanted, rtol=0, atol=near)
    made["float32"].reset()
    oracle.reset()
    np.testing.assert_allclose(made["float32"].read(TOKENS), oracle.read(TOKENS), rtol=1e-3, atol=1e-4)


def test_the_command_measures_openvino_too(llama: Path, capsys: Capture) -> None:
    pytest.importorskip("openvino")
    sizes = ["--prefill", "9", "--decode", "4", "--texts", "1", "--threads", "1", "--piece", "8"]
    assert main(["bench", str(llama), *sizes, "--openvino"]) == 0
    assert "OpenVINO" in capsys.readouterr().out


def test_programs_are_measured_without_one_that_refuses_the_file() -> None:
    def refuses() -> Counted:
        raise ModelError("it has an operator that is not known")

    programs = {"one": lambda: Counted([0], 1), "rival": refuses, "other": lambda: Counted([0], 1)}
    found = measure_decoding(programs, lambda: [1, 2], 1, 1, threads=1, optional=["rival"])
    assert list(found.speeds) == ["one", "other"] and found.decode_s.shape == (2, 1)
    assert found.refused == {"rival": "it has an operator that is not known"}
    assert "rival did not take part: it has an operator that is not known" in found._repr_html_()
    with pytest.raises(ModelError, match="an operator that is not known"):
        measure_decoding(programs, lambda: [1, 2], 1, 1, threads=1)


def test_the_command_goes_on_where_openvino_refuses_weights_in_blocks(
    tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("openvino")
    metadata, tensors = writer.llama("Q4_0")
    (tmp_path / "a.gguf").write_bytes(writer.gguf(metadata, tensors))
    qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    sizes = ["--prefill", "9", "--decode", "4", "--texts", "1", "--threads", "1", "--piece", "8"]
    assert main(["bench", str(tmp_path / "a.onnx"), *sizes, "--openvino"]) == 0
    text = capsys.readouterr().out
    assert "onnxruntime" in text and "OpenVINO did not take part: OpenVINO cannot load the model" in text


class FakeLlamaCpp(ModuleType):
    """Stands for the wheel of llama.cpp: a file's text is its number of tokens, or a fault."""

    GGML_TYPE_F32 = 0

    class Llama:
        def __init__(self, path: str, **options: object) -> None:
            text = Path(path).read_text()
            if not text.isdigit():
                raise ValueError(text)
            self.words, self.ctx = int(text), self
            self.options, self.calls = options, list[list[int]]()

        def n_vocab(self) -> int:
            return self.words

        def reset(self) -> None:
            self.calls.clear()

        def eval(self, tokens: list[int]) -> None:
            self.calls.append(tokens)

    @staticmethod
    def llama_get_logits_ith(model: Llama, place: int) -> object:
        scores = np.arange(model.words, dtype=np.float32) + sum(map(sum, model.calls))
        return scores.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def test_llama_cpp_reads_a_file_of_as_many_tokens(
    llama: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", FakeLlamaCpp("llama_cpp"))
    files = {"good": "40", "other": "41", "bad": "no model"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    decoder = LlamaCppDecoder(tmp_path / "good", 16, 40)
    assert decoder.read([1, 2])[:2].tolist() == [3.0, 4.0] and decoder.read([3])[0] == 6.0
    decoder.reset()
    assert decoder.read([5])[0] == 5.0
    sizes = ["--prefill", "9", "--decode", "4", "--texts", "1", "--threads", "1", "--piece", "8"]
    assert main(["bench", str(llama), *sizes, "--gguf", str(tmp_path / "good")]) == 0
    assert "llama.cpp" in capsys.readouterr().out
    for name, code, message in (
        ("other", 2, "has 41 tokens, and the model 40"),
        ("bad", 4, "llama.cpp cannot load it: no model"),
        ("none", 4, "there is no such file"),
    ):
        assert main(["bench", str(llama), *sizes, "--gguf", str(tmp_path / name)]) == code
        assert message in capsys.readouterr().err


def test_llama_cpp_that_is_not_installed_is_named(
    llama: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    assert main(["bench", str(llama), "--decode", "2", "--gguf", str(tmp_path / "a.gguf")]) == 2
    assert "pip install llama-cpp-python" in capsys.readouterr().err


def test_llama_cpp_has_the_scores_that_the_imported_file_has(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    metadata, tensors = writer.llama("Q8_0")
    words = [f"w{number}" for number in range(writer.WORDS - 3)]
    entries = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", *words], "bos_token_id": 1}
    entries["scores"] = -np.arange(writer.WORDS, dtype=np.float32)
    entries["token_type"] = np.array([2, 3, 3] + [1] * (writer.WORDS - 3), np.int32)
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in entries.items()}
    metadata |= {"llama.context_length": 64, "llama.rope.dimension_count": writer.DEPTH}
    (tmp_path / "a.gguf").write_bytes(writer.gguf(metadata, tensors))
    qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    generator = qglow.load_generator(qglow.load_model(tmp_path / "a.onnx"), context=64, piece=8)
    rival = LlamaCppDecoder(tmp_path / "a.gguf", 64, generator.vocabulary)
    for begin, end in itertools.pairwise((0, 5, 6, 7, len(TOKENS))):
        found, wanted = rival.read(TOKENS[begin:end]), generator.read(TOKENS[begin:end])
        # llama.cpp rounds activations to int8 where weights are.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.05 * float(np.abs(wanted).max()))


def test_weights_of_4_bits_are_near_the_real_ones() -> None:
    real = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    made = packed(real)
    assert made["packed"].shape == (3, 2, 16) and made["zeros"].shape == (3,)
    steps = np.stack([made["packed"] & 15, made["packed"] >> 4], -1).reshape(3, 2, 32)
    zeros = np.stack([made["zeros"] & 15, made["zeros"] >> 4], -1).reshape(3, 2)
    found = (steps.astype(np.float32) - zeros[..., None]) * made["scales"].reshape(3, 2, 1)
    error = np.abs(found.reshape(3, -1)[:, :40].T - real)
    assert error.max() < 0.6 * made["scales"].max()
