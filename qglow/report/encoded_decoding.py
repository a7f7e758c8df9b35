"""Decoders that go on from what an encoder has read: the first tokens are the encoder's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from qglow.core.errors import ModelError
from qglow.core.types import Array
from qglow.report.decoding import Decoder, Feeds, Session, onnxruntime_value

BEGINNING = 0
"""Token that answers begin with: any one takes the same time."""
Source = Mapping[str, Array] | Sequence[int]
"""Inputs of an encoder by name, or the tokens of a text."""
_HIDDEN_AXES, _MASK_AXES = 3, 2
"""Axes of what an encoder gives, [batch, places, width], and of a mask of its places."""


class SourceReader(Decoder, Protocol):
    """A language model whose encoder reads a source first: `Generator` is one."""

    def begin(self, source: Source) -> None:
        """Let the encoder read a source, and forget all tokens."""


class EncodedDecoder:
    """A model with an encoder as `measure_decoding` takes one: what it reads first is the source."""

    def __init__(self, model: SourceReader, source: Mapping[str, Array] | None = None) -> None:
        """source: what the encoder reads in place of the first tokens, where these are no text of its."""
        self._model, self._source = model, source
        self._begun = False

    def reset(self) -> None:
        """Forget all tokens, and the source."""
        self._model.reset()
        self._begun = False

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these; the first ones are the encoder's, whose answer begins."""
        if self._begun:
            return self._model.read(tokens)
        self._model.begin(tokens if self._source is None else self._source)
        self._begun = True
        return self._model.read([BEGINNING])


@dataclass(frozen=True)
class EncodedFiles:
    """Files of a model with an encoder. first: the decoder's form that reads no cache."""

    encoder: Path | bytes
    first: Path | bytes
    decoder: Path | bytes


@dataclass(frozen=True)
class EncodedNames:
    """Names of a decoder with an encoder.

    states: outputs by the input that reads them in the next call. source: inputs of both forms that the
    source decides. scores: the output of `read`. branch: the input that chooses whether the cache is read,
    in a file of both forms. like: finds the one of some names that means the same.
    """

    states: Mapping[str, str]
    source: Sequence[str]
    scores: str
    branch: str | None
    like: Callable[[str, Sequence[str]], str | None]


class OnnxruntimeEncodedDecoder:
    """A model with an encoder in onnxruntime; the form without a cache computes its first token."""

    def __init__(
        self,
        files: EncodedFiles,
        names: EncodedNames,
        encoder_feeds: Feeds | None,
        feeds: Feeds,
        threads: int = 1,
    ) -> None:
        """encoder_feeds: inputs of an encoder of texts; None for another one, which reads arrays.

        feeds: inputs of the decoder that are tokens of an answer, or go with them.

        Raises ModelError where onnxruntime refuses a file, or the form without a cache does not give what
        the other one reads.
        """
        self._encoder = Session(files.encoder, threads)
        self._decoder = Session(files.decoder, threads)
        self._first = self._decoder if files.first == files.decoder else Session(files.first, threads)
        self._names, self._encoder_feeds, self._feeds = names, encoder_feeds, feeds
        self._kept: dict[str, Any] = {}
        self._past = 0
        keys = [name for name in names.source if self._decoder.axes(name) > _HIDDEN_AXES]
        self._given = {name: self._output_for(name) for name in (*names.states, *keys)}

    def reset(self) -> None:
        """Forget all tokens, and the source."""
        self._kept, self._past = {}, 0

    def begin(self, source: Source) -> None:
        """Let the encoder read a source, and forget all tokens; ModelError for no result."""
        self.reset()
        kinds = self._encoder.kinds
        if isinstance(source, Mapping):
            arrays = {name: array.astype(kinds[name]) for name, array in source.items() if name in kinds}
        else:
            assert self._encoder_feeds is not None
            arrays = self._encoder_feeds(source, 0, kinds)
        encoded = self._encoder.run(arrays, None)
        hidden = next((a for a in encoded.values() if len(a.shape()) == _HIDDEN_AXES), None)
        if hidden is None:
            raise ModelError(f"the encoder gives no [batch, places, width], only {', '.join(encoded)}")
        self._hidden = hidden

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these."""
        session = self._decoder if self._kept else self._first
        feeds = self._feeds(tokens, self._past, self._decoder.kinds | session.kinds)
        if self._names.branch is not None:
            feeds[self._names.branch] = np.array([bool(self._kept)])
        values = self._of_source(session) | self._kept
        if self._kept:
            outputs = dict(self._names.states)
        else:
            outputs = self._given
            values |= session.nothing(session.inputs.keys() - values.keys() - feeds.keys())
        found = session.run(feeds, [self._names.scores, *outputs.values()], values)
        self._kept |= {name: found[output] for name, output in outputs.items()}
        self._past += len(tokens)
        return np.asarray(found[self._names.scores].numpy()[0, -1])

    def _output_for(self, name: str) -> str:
        """Output of the form without a cache that an input of the other one reads."""
        found = self._names.like(name, self._first.outputs)
        if found is None:
            raise ModelError(f"the decoder's form without a cache gives nothing for input '{name}'")
        return found

    def _of_source(self, session: Session) -> dict[str, Any]:
        """Results of the encoder and a mask of its places, where a session reads them."""
        places = self._hidden.shape()[1]
        made = {}
        for name in self._names.source:
            if session.axes(name) == _HIDDEN_AXES:
                made[name] = self._hidden
            elif session.axes(name) == _MASK_AXES:
                made[name] = onnxruntime_value(np.ones((1, places), session.kinds[name]))
        return made
