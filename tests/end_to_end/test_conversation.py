"""Answers in the terminal: each goes on from all texts and answers before it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import tokenizers

import qglow
from qglow.cli.main import main
from qglow.generation.conversation import Conversation
from qglow.generation.text import TextTokens
from tests.end_to_end.decoder_model import WORDS, decoder
from tests.unit.importer.tiny import save

Capture = pytest.CaptureFixture[str]
LINES = ("w3 w11", "w4", "w7 w1 w1")
SIZES = ["--context", "40", "--piece", "8", "--count", "3", "--stop", "999"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(), tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words w0, w1 ...; a text begins with w19."""
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{n}": n for n in range(WORDS)}, unk_token="w0")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("w19 $A", special_tokens=[("w19", 19)])
    path = tmp_path_factory.mktemp("text") / "tokenizer.json"
    made.save(str(path))
    return path


def answers(model: Path, lines: tuple[str, ...], begin: str = "", template: str = "{}") -> list[list[int]]:
    """Tokens of the answers, each from the whole text before it, read anew."""
    generator = qglow.load_generator(qglow.load_model(model), context=40, piece=8)
    whole, found = [19], list[list[int]]()
    for number, line in enumerate(lines):
        written = ((begin if number == 0 else "") + template.replace("{}", line)).split()
        whole += [int(word[1:]) for word in written]
        generator.reset()
        found.append(list(generator.generate(whole, 3)))
        whole += found[-1]
    return found


def shown(found: list[list[int]]) -> str:
    return "".join(" ".join(["", *(f"w{token}" for token in answer)]) + "\n" for answer in found)


def talk(
    words: list[str], lines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = main(["generate", *words, *SIZES])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_lines_are_answered_with_all_before_them_in_mind(
    model: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = [str(model), "--tokenizer", str(tokenizer), "--chat"]
    code, out, _ = talk(words, LINES, monkeypatch, capsys)
    assert code == 0 and out == shown(answers(model, LINES))


def test_a_template_and_a_beginning_are_part_of_the_text(
    model: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = [
        str(model),
        "--tokenizer",
        str(tokenizer),
        "--chat",
        "--prompt",
        "w5 w6 ",
        "--template",
        "w2 {} w8",
    ]
    code, out, _ = talk(words, LINES[:2], monkeypatch, capsys)
    assert code == 0 and out == shown(answers(model, LINES[:2], "w5 w6 ", "w2 {} w8"))


def test_an_answer_that_ends_by_itself_is_known_whole(model: Path, tokenizer: Path) -> None:
    generator = qglow.load_generator(qglow.load_model(model), context=40, piece=8)
    conversation = Conversation(generator, TextTokens(tokenizer), "", "{}")
    first, second = answers(model, LINES[:1])[0][:2]
    if first != second:
        made = list(conversation.answer(LINES[0], 9, qglow.TokenSampling(), {second}))
        assert made == [f" w{first}"]
        assert generator.tokens == (19, 3, 11, first)


def test_a_full_context_is_told(
    model: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = [str(model), "--tokenizer", str(tokenizer), "--chat"]
    code, _, err = talk(words, (*LINES, "w1 " * 40), monkeypatch, capsys)
    assert code != 0 and "more than the context of 40" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chat"], "--chat needs the tokenizer of the model"),
        (["--chat", "--tokenizer", "T", "--tokens", "1"], "and no --tokens"),
        (["--chat", "--tokenizer", "T", "--template", "x"], "--template has no {} for the line"),
        (["--prompt", "w1", "--tokenizer", "T", "--template", "x {}"], "--template goes with --chat"),
    ],
)
def test_mistakes_are_told(
    words: list[str], message: str, model: Path, tokenizer: Path, capsys: Capture
) -> None:
    given = [str(tokenizer) if word == "T" else word for word in words]
    assert main(["generate", str(model), *given]) == 2
    assert message in capsys.readouterr().err
