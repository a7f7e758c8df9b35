"""A conversation with a language model: texts that it answers one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from qglow.generation.generator import Generator
from qglow.generation.sampling import TokenSampling
from qglow.generation.text import TextTokens


class Conversation:
    """Answers of a generator, each with all texts and answers before it in mind."""

    def __init__(self, generator: Generator, text: TextTokens, prompt: str, template: str) -> None:
        """prompt: comes before the first text. template: what an answer goes on from, {} is the text."""
        self._generator = generator
        self._text = text
        self._prompt = prompt
        self._template = template
        self._unread: list[int] = []

    def answer(self, line: str, count: int, sampling: TokenSampling, stop: Collection[int]) -> Iterator[str]:
        """The answer to a text, piece by piece, of at most `count` tokens.

        Raises DataError where the context is full.
        """
        begins = not self._generator.tokens
        written = (self._prompt if begins else "") + self._template.replace("{}", line)
        given = [*self._unread, *self._text.encode(written, begins)]
        seen = len(self._generator.tokens) + len(given)
        made: list[int] = []

        def kept(tokens: Iterator[int]) -> Iterator[int]:
            for token in tokens:
                made.append(token)
                yield token

        yield from self._text.pieces(given, kept(self._generator.generate(given, count, sampling, stop)))
        # The last token of an answer is read with the next text.
        self._unread = made[len(self._generator.tokens) - seen :]
