"""qglow generate: text from a language model."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import OUTPUT, GenerationOptions
from qglow.cli.encoders import (
    EncoderOptions,
    check_encoder_options,
    ends_of,
    folders_of,
    open_encoder,
    open_first,
    sources,
)
from qglow.cli.options import MOVED_MODEL, STATES, TRUST, TargetOptions, parse_states
from qglow.cli.output import note, say
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import declare, option

if TYPE_CHECKING:
    from qglow.api import Executable, Generator, Model, QuantizedModel, TokenSampling
    from qglow.generation.conversation import Conversation
    from qglow.generation.text import TextTokens

EXAMPLES = (
    "qglow generate llama.int8 --tokenizer tokenizer.json --prompt Once --count 100",
    "qglow generate llama.onnx --tokens 1,403,407 --count 20",
    "qglow generate llama.qglow --trust --tokens 1,403,407",
    "qglow generate llama.int8 --tokenizer tokenizer.json --chat",
    "qglow generate decoder_model_merged.onnx --encoder encoder_model.onnx --prompt Hello",
)
GENERATION = "Generation"
PLACE = "{}"
"""Place of a line in a template."""


@dataclass(frozen=True, kw_only=True)
class WriterOptions(TargetOptions):
    """A language model, and what it goes on from."""

    model: Path | None = declare(MOVED_MODEL, None)
    trust: bool = declare(TRUST, False)
    states: Sequence[str] = declare(STATES, ())
    tokenizer: Path | None = option(
        None, "The model's tokenizer.json [default: the one beside it]", group=GENERATION, metavar="FILE"
    )
    prompt: str | None = option(None, "Text to go on from", group=GENERATION, metavar="TEXT")
    tokens: str | None = option(
        None, "Tokens to go on from, instead of a text", group=GENERATION, metavar="N,N,..."
    )
    chat: bool = option(False, "Answer lines from the terminal, one after the other", group=GENERATION)
    template: str = option(
        PLACE, "What an answer goes on from; {} stands for the line", group=GENERATION, metavar="TEXT"
    )


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """Options of how tokens are chosen."""

    count: int = option(64, "Most tokens to add", group=GENERATION, metavar="N")
    temperature: float = option(
        0.0, "Divisor of scores; 0 takes the likeliest token", group=GENERATION, metavar="T"
    )
    top_k: int = option(0, "Likeliest tokens to choose among; 0 for all", group=GENERATION, metavar="K")
    seed: int = option(0, "Seed of the choices", group=GENERATION, metavar="N")
    stop: Sequence[int] = option(
        (),
        "Token that ends the text [default: the tokenizer's own]",
        group=GENERATION,
        metavar="N",
        typed=list[int],
    )
    times: bool = option(True, "Report tokens a second", group=OUTPUT, negative="--no-times")


def generate(
    what: WriterOptions, source: EncoderOptions, choice: ChoiceOptions, running: GenerationOptions
) -> None:
    """Generate text with a language model.

    The model reads tokens and gives scores of the next one. Keys and values of past tokens that it takes
    and gives, past... and present..., are kept from token to token.
    A .qglow file that `qglow compile --context` wrote begins at once.
    Without a tokenizer it goes on from --tokens and prints numbers. With --chat it answers the lines of
    the standard input, each with all before it in mind; --prompt then is what comes before the first one.
    With --encoder the encoder reads the prompt, or each sample of --data, and the decoder answers it.
    """
    from qglow.api import TokenSampling, load_generator
    from qglow.generation.conversation import Conversation

    sampling = TokenSampling(choice.temperature, choice.top_k, choice.seed)
    if choice.count < 1:
        raise UsageError(f"count is {choice.count}, it must be at least 1", field="count")
    tokenizer = _tokenizer(what, source)
    check_encoder_options(source)
    _check(what, source, tokenizer)
    given = [] if what.tokens is None else _tokens("tokens", what.tokens)
    start = None if source.start is None else _tokens("start", source.start)
    ends = None if source.encoder is None else ends_of(source, what.target, start)
    text = None
    if tokenizer is not None:
        from qglow.generation.text import TextTokens

        text = TextTokens(tokenizer)
    generator = load_generator(
        _opened(what, running),
        parse_states(what.states),
        encoder=open_encoder(source),
        first=open_first(source, what.target),
        context=running.context,
        piece=running.piece,
        cache=running.cache,
        source=running.source,
        isa=running.isa,
        threads=running.threads,
    )
    last = frozenset[int]() if ends is None else ends.last
    stop = frozenset(choice.stop) or last | (frozenset() if text is None else text.last)
    if what.chat and text is not None:
        conversation = Conversation(generator, text, what.prompt or "", what.template)
        _chat(conversation, choice.count, sampling, stop)
        return
    if what.prompt is not None and text is not None:
        given = text.encode(what.prompt)
    if ends is None:
        timed = _Timed(generator.generate(given, choice.count, sampling, stop))
        _write(what.prompt or "", given, timed, text)
        if choice.times:
            note(timed.report(len(given), generator))
        return
    if generator.source is not None and generator.source.refusal:
        note(f"the encoder is compiled for each length when it comes: {generator.source.refusal}")
    for name, inputs in sources(generator, source, given):
        generator.begin(inputs)
        timed = _Timed(generator.generate(ends.start, choice.count, sampling, stop))
        _write(f"{name}: " if name else "", ends.start, timed, text)
        if choice.times:
            note(timed.report(len(ends.start), generator))


def _write(before: str, given: Sequence[int], tokens: Iterable[int], text: TextTokens | None) -> None:
    """Write tokens as they come, as text or as numbers, behind what comes before them."""
    if text is None:
        say(before + ",".join(map(str, tokens)))
        return
    sys.stdout.write(before)
    for piece in text.pieces(given, tokens):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _tokenizer(what: WriterOptions, source: EncoderOptions) -> Path | None:
    """The tokenizer that is named, or for text the one beside the model, or in its directory."""
    is_text = what.chat or what.prompt or source.data is not None
    if what.tokenizer is not None or what.tokens is not None or not is_text:
        return what.tokenizer
    places = [folder / "tokenizer.json" for folder in folders_of(what.target)]
    return next((place for place in places if place.is_file()), None)


def _check(what: WriterOptions, source: EncoderOptions, tokenizer: Path | None) -> None:
    """Raise UsageError where it is not told what to go on from."""
    if source.encoder is not None and what.chat:
        raise UsageError(
            "--chat goes on from its own answers, which no encoder reads: give --prompt or --data"
        )
    if source.data is not None:
        if what.prompt is not None or what.tokens is not None:
            raise UsageError("the encoder reads --data, or --prompt, or --tokens: give one of them")
        return
    if what.chat:
        if tokenizer is None or what.tokens is not None:
            raise UsageError(
                "--chat needs the tokenizer of the model, --tokenizer tokenizer.json, and no --tokens"
            )
        if PLACE not in what.template:
            raise UsageError(f"template has no {PLACE} for the line", field="template")
        return
    if what.template != PLACE:
        raise UsageError("--template goes with --chat")
    if (what.prompt is None) == (what.tokens is None):
        raise UsageError("give --prompt with --tokenizer, or --tokens")
    if what.prompt is not None and tokenizer is None:
        raise UsageError("--prompt needs the tokenizer of the model: --tokenizer tokenizer.json")


def _chat(conversation: Conversation, count: int, sampling: TokenSampling, stop: frozenset[int]) -> None:
    """Answer lines of the standard input until it ends, or the context is full."""
    shown = "> " if sys.stdin.isatty() else ""
    while True:
        sys.stdout.write(shown)
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        for piece in conversation.answer(line.rstrip("\r\n"), count, sampling, stop):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")


def _opened(what: WriterOptions, running: GenerationOptions) -> Model | QuantizedModel | Executable:
    """A model to compile, or a program that was compiled for generation."""
    if what.target.suffix == ".qglow":
        from qglow.api import load

        if what.shapes or what.values or what.model:
            raise UsageError(f"{what.target} is compiled already: --shape, --value and --model do not apply")
        return load(what.target, isa=running.isa, trust=what.trust, threads=running.threads)
    if what.trust:
        raise UsageError(f"{what.target} holds no machine code: --trust goes with a .qglow file")
    return open_graph_target(what.target, what.shapes, float_model=what.model, values=what.values)


class _Timed:
    """Tokens as they come, with the times of the first one and of all others."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._first = self._rest = 0.0
        self._count = 0

    def __iter__(self) -> Iterator[int]:
        begin = time.perf_counter()
        for token in self._tokens:
            self._count += 1
            if self._count == 1:
                self._first = time.perf_counter() - begin
            self._rest = time.perf_counter() - begin - self._first
            yield token

    def report(self, given: int, generator: Generator) -> str:
        """Tokens a second, of those that were given and of those that were added."""
        parts = [f"{given} tokens read in {self._first:.2f} s"]
        if self._count > 1:
            parts.append(f"{(self._count - 1) / max(self._rest, 1e-9):.0f} tokens/s added")
        cache = "with a cache" if generator.has_cache else "without a cache: every token reads all before it"
        return ", ".join([*parts, cache])


def _tokens(name: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"--{name} {text}: write numbers, as 1,403,407")
    return [int(word) for word in words]
