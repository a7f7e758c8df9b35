"""Text as tokens and back (the `tokenizers` package, the extra `text`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from qglow.core.errors import InputFileError, UsageError
from qglow.core.inputs import note_input

_LAST = ("</s>", "<|endoftext|>", "<eos>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "[EOS]")
"""Tokens that end a text, as published tokenizers call them."""


class TextTokens:
    """The tokenizer of a file `tokenizer.json`, as Hugging Face's `tokenizers` writes it."""

    def __init__(self, path: Path) -> None:
        """Raises InputFileError for a file that is no tokenizer, UsageError without the package."""
        try:
            tokenizers = importlib.import_module("tokenizers")
        except ImportError as error:
            raise UsageError("text needs the package tokenizers: pip install 'qglow[text]'") from error
        if not path.is_file():
            raise InputFileError(f"{path} is no file; give the tokenizer.json of the model")
        note_input(path)
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises Exception itself
            raise InputFileError(f"{path} is no tokenizer: {error}") from error

    def encode(self, text: str, begins: bool = True) -> list[int]:
        """Tokens of a text; of one that begins, with those that the tokenizer puts around it."""
        return list(self._tokenizer.encode(text, add_special_tokens=begins).ids)

    @property
    def last(self) -> frozenset[int]:
        """Tokens that end a text."""
        found = (self._tokenizer.token_to_id(word) for word in _LAST)
        return frozenset(token for token in found if token is not None)

    def pieces(self, before: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        """The text of tokens behind others, piece by piece as they come; characters are given whole."""
        seen = list(before)
        shown = self._text(seen)
        for token in tokens:
            seen.append(token)
            text = self._text(seen)
            if text.endswith("\N{REPLACEMENT CHARACTER}"):
                continue  # the rest of a character is in the next token
            yield text[len(shown) :]
            shown = text

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))
