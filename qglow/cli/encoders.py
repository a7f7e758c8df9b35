"""Encoders for `qglow generate`: what a decoder goes on from, and the tokens that it begins with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qglow.cli.options import PossibleDataOptions
from qglow.cli.output import note
from qglow.cli.targets import open_graph_target
from qglow.core.errors import InputFileError, UsageError
from qglow.core.options import option

if TYPE_CHECKING:
    from qglow.api import Array, Generator, Model, QuantizedModel

SOURCE = "Encoder"
_CONFIGS = ("generation_config.json", "config.json")
_START = "decoder_start_token_id"
_FORCED = "forced_bos_token_id"
_LAST = "eos_token_id"
_WITH_PAST = "_with_past"
_ONNX = "onnx"
"""Folder that published models have beside their tokenizer and configuration."""


@dataclass(frozen=True, kw_only=True)
class EncoderModelOptions:
    """The encoder of a decoder."""

    encoder: Path | None = option(
        None,
        "Encoder that reads the prompt, or the data, for a decoder",
        more="Whisper, T5, BART and their like are exported as an encoder and a decoder. The encoder is an "
        "ONNX model or a quantized directory.",
        group=SOURCE,
        metavar="MODEL",
    )
    first: Path | None = option(
        None,
        "The decoder's form without a cache, which gives keys and values of a source",
        more="A decoder that is merged of both forms has it in itself; for decoder_with_past_model.onnx it "
        "is decoder_model.onnx beside it.",
        group=SOURCE,
        metavar="MODEL",
    )


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(EncoderModelOptions, PossibleDataOptions):
    """An encoder, and what it reads."""

    start: str | None = option(
        None,
        "Tokens that a decoder begins with [default: those of config.json beside it]",
        group=SOURCE,
        metavar="N,N,...",
    )


@dataclass(frozen=True)
class AnswerEnds:
    """Tokens that an answer begins with, and those that end it."""

    start: list[int]
    last: frozenset[int]


def check_encoder_options(options: EncoderOptions) -> None:
    """Raise UsageError for options that go with an encoder, without one."""
    for name in ("first", "start", "data"):
        if options.encoder is None and getattr(options, name) is not None:
            raise UsageError(f"--{name} goes with --encoder")


def open_encoder(options: EncoderModelOptions) -> Model | QuantizedModel | None:
    """The encoder, if there is one."""
    return None if options.encoder is None else open_graph_target(options.encoder, ())


def open_first(options: EncoderModelOptions, target: Path) -> Model | QuantizedModel | None:
    """The decoder's form without a cache: the one that is named, or the one beside a form with a cache."""
    place = options.first
    if options.encoder is not None and place is None and _WITH_PAST in target.name:
        beside = target.with_name(target.name.replace(_WITH_PAST, ""))
        place = beside if beside.exists() else None
        if place is not None:
            note(f"keys and values of a source by {place}; another one with --first")
    return None if place is None else open_graph_target(place, ())


def ends_of(options: EncoderOptions, target: Path, start: list[int] | None) -> AnswerEnds:
    """Tokens of `start` and of the model's configuration, which Hugging Face's libraries write beside it.

    Raises UsageError where nothing tells what to begin with, InputFileError for a damaged configuration.
    """
    assert options.encoder is not None
    places = dict.fromkeys((*folders_of(target), *folders_of(options.encoder)))
    found: dict[str, Any] = {}
    for path in (folder / name for folder in places for name in _CONFIGS):
        if path.is_file():
            found = {**_read(path), **found}
    last = found.get(_LAST)
    ends = frozenset(_tokens_in(last if isinstance(last, list) else [last]))
    if start is not None:
        return AnswerEnds(start, ends)
    if not _tokens_in([found.get(_START)]):
        raise UsageError(
            f"no {_CONFIGS[1]} beside {target} says what the decoder begins with ({_START}): give "
            "--start N,N,..."
        )
    return AnswerEnds(_tokens_in([found[_START], found.get(_FORCED)]), ends)


def folders_of(target: Path) -> list[Path]:
    """Folders of what belongs to a model: its own one, and the one around a folder `onnx`."""
    folder = target.resolve().parent
    own = [target] if target.is_dir() else []
    return [*own, folder, folder.parent] if folder.name == _ONNX else [*own, folder]


def sources(
    generator: Generator, options: EncoderOptions, tokens: list[int]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """Names and inputs of what the encoder reads: the prompt's tokens without a name, or samples of data."""
    reader = generator.source
    assert reader is not None
    if options.data is None:
        yield "", reader.tokens(tokens)
    else:
        yield from reader.samples(options.data, options.select, options.samples)


def _read(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read as JSON: {error}; give --start N,N,...") from error
    known = read if isinstance(read, dict) else {}
    return {name: value for name, value in known.items() if value is not None}


def _tokens_in(values: Sequence[object]) -> list[int]:
    """Tokens among some values of a configuration."""
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0]
