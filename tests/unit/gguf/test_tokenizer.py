"""Tokenizers of GGUF files: the same tokens as those they were written from, or as the format defines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

import qglow
from qglow.cli.main import main
from qglow.gguf.tokenizer import EXPRESSIONS, NoTokenizerError, tokenizer_json
from tests.unit.gguf.writer import WORDS, gguf, llama

Capture = pytest.CaptureFixture[str]
TEXT = (
    "Once upon a time there was a little cat. The cat's name was Tim; it liked 1234 mice, didn't it?\n\n"
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.  Привет, мир! "
    "東京は3月です。\t\x07 ok 🙂\r\n"
)
PIECES = [
    "Once",
    " upon a",
    "time's 12345",
    "  two  spaces ",
    "mir!\n\n\n x",
    "über 東京 🙂",
    "",
    " ",
    "a\r\nb",
]
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def trained(name: str) -> tokenizers.Tokenizer:
    """A BPE over bytes that cuts texts as the expression of this name says."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    expression = EXPRESSIONS[name]
    if expression is None:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(expression), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    made.normalizer = normalizers.NFC() if name == "qwen2" else None
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    chosen = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    made.train_from_iterator([TEXT] * 20, chosen)
    return made


def of_bytes(name: str) -> tuple[dict[str, Any], tokenizers.Tokenizer]:
    """Metadata of a file with such a tokenizer, and the tokenizer."""
    made = trained(name)
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    entries = {"model": "gpt2", "pre": name, "tokens": tuple(tokens), "merges": tuple(merges)}
    kinds = np.where(np.array(tokens) == "<|end|>", 3, 1).astype(np.int32)
    return {f"tokenizer.ggml.{k}": v for k, v in entries.items()} | {"tokenizer.ggml.token_type": kinds}, made


def sentence_pieces() -> dict[str, Any]:
    """Metadata of a file with SentencePiece's BPE, whose scores have no order that its merges would have."""
    random = np.random.default_rng(3)
    words = {SPACE + word for word in TEXT.split()[:30]}
    parts = {word[a:b] for word in words for a in range(len(word)) for b in range(a + 1, a + 5)}
    letters = sorted({c for c in TEXT if ord(c) < 0x500} - set(" \n\r\t\x07") | {SPACE})
    several = [str(t) for t in random.permutation(sorted(part for part in parts if len(part) > 1))]
    ahead = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = [*ahead, *letters, *several]
    kinds = np.array([2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259), np.int32)
    scores = np.concatenate([np.zeros(259), -np.arange(len(tokens) - 259)]).astype(np.float32)
    entries = {
        "model": "llama",
        "tokens": tuple(tokens),
        "scores": scores,
        "token_type": kinds,
        "bos_token_id": 1,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items()}


def by_scores(metadata: dict[str, Any], text: str) -> list[int]:
    """Tokens of a text: the two neighbours with the best joint become one until none has any."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    known = {token: number for number, token in enumerate(tokens)}
    parts = list(SPACE + text.replace(" ", SPACE)) if text else []
    while True:
        pairs = [a + b for a, b in zip(parts, parts[1:], strict=False)]
        joints = [(-scores[known[pair]], place) for place, pair in enumerate(pairs) if pair in known]
        if not joints:
            break
        _, place = min(joints)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    found = [1]
    for part in parts:
        found += [known[part]] if part in known else [known[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_bpe_over_bytes_gives_the_tokens_that_it_gave(name: str) -> None:
    metadata, made = of_bytes(name)
    found = tokenizers.Tokenizer.from_str(tokenizer_json(metadata, 1000))
    for text in [TEXT, *PIECES]:
        plain = found.encode(text, add_special_tokens=False).ids
        assert plain == made.encode(text).ids
        assert found.decode(plain) == made.decode(plain)
    assert found.encode("a<|end|>").ids[-1] == made.token_to_id("<|end|>")


def test_pieces_of_sentences_are_joined_by_scores() -> None:
    metadata = sentence_pieces()
    found = tokenizers.Tokenizer.from_str(tokenizer_json(metadata, 5000))
    for text in [TEXT, *PIECES]:
        assert found.encode(text).ids == by_scores(metadata, text)
        if text:
            assert found.decode(found.encode(text).ids) == text


@pytest.mark.parametrize(
    ("pre", "entry", "begins"),
    [("gpt-2", None, False), ("llama-bpe", None, True), ("llama-bpe", False, False), ("gpt-2", True, True)],
)
def test_the_first_token_is_put_where_the_file_says(pre: str, entry: bool | None, begins: bool) -> None:
    metadata, _ = of_bytes(pre)
    metadata["tokenizer.ggml.bos_token_id"] = 0
    if entry is not None:
        metadata["tokenizer.ggml.add_bos_token"] = entry
    found = tokenizers.Tokenizer.from_str(tokenizer_json(metadata, 1000))
    assert (found.encode("Once").ids[0] == 0) == begins


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "bert"}, "of the kind 'bert'"),
        ({"pre": "tekken"}, "cut by 'tekken'"),
        ({"merges": ("a",)}, "the merge 'a' is none"),
        ({"merges": 3}, "no merges"),
        ({"tokens": ("a", "a")}, "some are twice"),
        ({"tokens": ("a" * 1001, "b")}, "more than 1000 characters"),
        ({"token_type": np.ones(3, np.int32)}, "types of tokens"),
        ({"tokens": 3}, "the file has none"),
    ],
)
def test_what_cannot_be_written_is_said(changes: dict[str, Any], reason: str) -> None:
    metadata, _ = of_bytes("gpt-2")
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    with pytest.raises(NoTokenizerError, match=reason):
        tokenizer_json(metadata, 1000)


def test_a_model_is_talked_to_without_naming_its_tokenizer(tmp_path: Path, capsys: Capture) -> None:
    metadata, tensors = llama("Q8_0")
    words = [SPACE, "a", "b", SPACE + "a", *(f"w{n}" for n in range(WORDS - 7))]
    entries = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", *words], "bos_token_id": 1}
    entries["scores"] = -np.arange(WORDS, dtype=np.float32)
    entries["token_type"] = np.array([2, 3, 3] + [1] * (WORDS - 3))
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in entries.items()}
    (tmp_path / "a.gguf").write_bytes(gguf(metadata, tensors))
    assert main(["import-gguf", str(tmp_path / "a.gguf"), "-o", str(tmp_path / "a.onnx")]) == 0
    assert "tokenizer.json: written" in capsys.readouterr().out
    asked = ["--prompt", "a", "--count", "3", "--context", "16", "--piece", "8"]
    assert main(["generate", str(tmp_path / "a.onnx"), *asked]) == 0
    found = capsys.readouterr().out
    generator = qglow.load_generator(qglow.load_model(tmp_path / "a.onnx"), context=16, piece=8)
    tokens = list(generator.generate([1, 6], 3, stop=[2]))
    made = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert found.strip() == made.decode([1, 6, *tokens]).strip()


def test_a_tokenizer_that_is_there_stays(tmp_path: Path) -> None:
    metadata, tensors = llama("Q8_0")
    del metadata["tokenizer.ggml.tokens"]
    (tmp_path / "a.gguf").write_bytes(gguf({**metadata, **of_bytes_as_lists()}, tensors))
    (tmp_path / "tokenizer.json").write_text("mine")
    forms = qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    assert forms["tokenizer.json"] == "not written: there is one already"
    assert (tmp_path / "tokenizer.json").read_text() == "mine"


def of_bytes_as_lists() -> dict[str, Any]:
    entries = {"model": "gpt2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items()}
