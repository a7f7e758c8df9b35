"""The tokenizer of a GGUF file as a tokenizer.json, which Hugging Face's `tokenizers` reads.

Two kinds are known. "gpt2" joins bytes by a list of merges (BPE); an expression, which `tokenizer.ggml.pre`
names, cuts the text before. "llama" is SentencePiece's BPE: the two neighbours are joined whose joint token
has the highest score; the same joints, ordered by score, are a list of merges.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.gguf.wire import Entry

KEYS = "tokenizer.ggml."
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EXPRESSIONS: Mapping[str, str | None] = {
    "gpt-2": None,
    "llama-bpe": _CONTRACTIONS + r"\p{N}{1,3}|" + _REST,
    "qwen2": _CONTRACTIONS + r"\p{N}|" + _REST,
}
"""What cuts a text, by its name; None: what `tokenizers` cuts by itself, that of GPT-2."""
_UNKNOWN, _CONTROL, _OWN, _BYTE = 2, 3, 4, 6
"""Types of tokens: the unknown one, those without text, those that a user added, and single bytes."""
_LONGEST = 1000
"""Characters of a token."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class NoTokenizerError(ValueError):
    """Reason why the tokenizer of a file cannot be written."""


@dataclass(frozen=True)
class _Told:
    """A tokenizer as metadata tells of it. kinds: types of tokens, from 1."""

    kind: str
    tokens: tuple[str, ...]
    kinds: Array
    begin: int | None
    adds_begin: bool
    entries: Mapping[str, Entry]

    def marked(self, *wanted: int) -> list[int]:
        """Numbers of the tokens of some types."""
        return [int(number) for number in np.flatnonzero(np.isin(self.kinds, wanted))]


def tokenizer_json(metadata: Mapping[str, Entry], words: int) -> str:
    """The tokenizer for a model of so many words. Raises NoTokenizerError."""
    told = _read(metadata, words)
    known = {"gpt2": _byte_bpe, "llama": _sentence_pieces}
    if told.kind not in known:
        raise NoTokenizerError(f"it is of the kind '{told.kind:.40}'; known are {', '.join(known)}")
    parts = known[told.kind](told)
    special = [(number, True) for number in told.marked(_UNKNOWN, _CONTROL)]
    special += [(number, False) for number in told.marked(_OWN)]
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, told.tokens[number], is_) for number, is_ in sorted(special)],
        **parts,
        "post_processor": _beginning(told) or parts.get("post_processor"),
    }
    return json.dumps(whole, ensure_ascii=False, indent=1)


def _read(metadata: Mapping[str, Entry], words: int) -> _Told:
    entries = {key.removeprefix(KEYS): value for key, value in metadata.items() if key.startswith(KEYS)}
    kind, tokens = entries.get("model"), entries.get("tokens")
    if not isinstance(kind, str) or not isinstance(tokens, tuple):
        raise NoTokenizerError("the file has none")
    if len(tokens) > words or len(set(tokens)) < len(tokens):
        raise NoTokenizerError(f"its {len(tokens)} tokens do not fit {words} words, or some are twice")
    if max(map(len, tokens), default=0) > _LONGEST:
        raise NoTokenizerError(f"it has a token of more than {_LONGEST} characters")
    kinds = entries.get("token_type", np.ones(len(tokens), np.int32))
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
        raise NoTokenizerError("types of tokens are not as many as tokens")
    begin = entries.get("bos_token_id")
    if type(begin) is not int or not 0 <= begin < len(tokens):
        begin = None
    # llama.cpp puts a token before texts of these kinds unless the file says that it should not.
    usual = kind == "llama" or entries.get("pre") == "llama-bpe"
    return _Told(kind, tokens, kinds, begin, bool(entries.get("add_bos_token", usual) is True), entries)


def _byte_bpe(told: _Told) -> dict[str, Any]:
    """Parts of a BPE over bytes."""
    name = told.entries.get("pre", "gpt-2")
    if not isinstance(name, str) or name not in EXPRESSIONS:
        raise NoTokenizerError(f"texts are cut by '{name!s:.40}'; known are {', '.join(EXPRESSIONS)}")
    merges = told.entries.get("merges")
    if not isinstance(merges, tuple):
        raise NoTokenizerError("the file has no merges")
    expression = EXPRESSIONS[name]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    cutter: dict[str, Any] = {**level, "use_regex": expression is None}
    if expression is not None:
        split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        cutter = {"type": "Sequence", "pretokenizers": [split, cutter]}
    return {
        "normalizer": {"type": "NFC"} if name == "qwen2" else None,
        "pre_tokenizer": cutter,
        "post_processor": {**level, "use_regex": True},
        "decoder": {**level, "use_regex": True},
        "model": _bpe(told, list(_pairs(told, merges)), ignore_merges=name == "llama-bpe"),
    }


def _pairs(told: _Told, merges: Sequence[str]) -> Iterator[tuple[str, str]]:
    known = frozenset(told.tokens)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= known:
            raise NoTokenizerError(f"the merge '{merge:.40}' is none of its tokens")
        yield left, right


def _sentence_pieces(told: _Told) -> dict[str, Any]:
    """Parts of SentencePiece's BPE, in which a space is a character, and bytes are tokens."""
    scores = told.entries.get("scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(told.tokens):
        raise NoTokenizerError("scores of tokens are not as many as tokens")
    unknown = told.marked(_UNKNOWN)
    begins = told.entries.get("add_space_prefix", True) is not False
    space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps = [*([{"type": "Prepend", "prepend": _SPACE}] if begins else []), space]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if begins:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    model = _bpe(told, _joints(told, scores), byte_fallback=True, fuse_unk=True)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {**model, "unk_token": told.tokens[unknown[0]] if unknown else None},
    }


def _joints(told: _Told, scores: Array) -> list[tuple[str, str]]:
    """Pairs of tokens whose joint is a token, those of the highest score first."""
    numbers = {token: number for number, token in enumerate(told.tokens)}
    apart = frozenset(told.tokens[number] for number in told.marked(_UNKNOWN, _CONTROL, _BYTE))
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, number in numbers.items():
        if token in apart:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in numbers and right in numbers:
                found.append((-float(scores[number]), numbers[left], numbers[right], (left, right)))
    return [pair for *_, pair in sorted(found)]


def _bpe(told: _Told, merges: Sequence[tuple[str, str]], **chosen: bool) -> dict[str, Any]:
    fixed = {"byte_fallback": False, "fuse_unk": False, "ignore_merges": False, **chosen}
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        **fixed,
        "vocab": {token: number for number, token in enumerate(told.tokens)},
        "merges": [list(pair) for pair in merges],
    }


def _added(number: int, token: str, special: bool) -> dict[str, Any]:
    sides = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **sides, "special": special}


def _beginning(told: _Told) -> dict[str, Any] | None:
    """The step that puts the first token before a text; None where none is put there."""
    if told.begin is None or not told.adds_begin:
        return None
    token = told.tokens[told.begin]
    single, other = (
        [{"SpecialToken": {"id": token, "type_id": place}}, {"Sequence": {"id": name, "type_id": place}}]
        for place, name in enumerate("AB")
    )
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *other],
        "special_tokens": {token: {"id": token, "ids": [told.begin], "tokens": [token]}},
    }
