"""Generation of tokens by a compiled language model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, Shape
from qglow.generation.roles import FEW, Roles, scores_output
from qglow.generation.sampling import TokenSampling
from qglow.generation.source import EncoderReader
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable


class Generator:
    """A language model that goes on from tokens. It keeps what it has seen until `reset`.

    With a cache each token is computed once; a model without one sees the whole text for each new token.
    """

    def __init__(
        self,
        executable: Executable,
        roles: Roles,
        context: int,
        piece: int,
        source: EncoderReader | None = None,
        takes: Callable[[Mapping[str, Shape]], bool] | None = None,
    ) -> None:
        """A compiled model; one with a cache keeps its states itself (`StreamingExecutable`).

        context: the most tokens. piece: the most tokens that a call takes; those of more than
        `roles.scored(piece)` need not give scores. source: computes what the model keeps of a source; the
        executable holds it. takes: whether a call may have inputs of these shapes, where not every piece in
        the context may be the next. Raises UsageError where no output is the scores of tokens,
        [batch, tokens, vocabulary], or it has none of the tokens of a text that is filled up.
        """
        self._executable = executable
        self._roles = roles
        self._context = context if roles.length is None else min(context, roles.length)
        self._piece = piece
        self._source = source
        self._takes = takes
        self._has_source = source is None
        self._scores = scores_output(executable.outputs)
        _, rows, self._vocabulary = executable.outputs[self._scores].shape
        if roles.length is not None and rows < roles.length:
            raise UsageError(
                f"output '{self._scores}' has scores of the last {rows} of {roles.length} tokens, which a "
                "shorter text does not have: export the model with the scores of all tokens, or with a cache"
            )
        self._seen: list[int] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens so far: those that were given and those that were chosen."""
        return tuple(self._seen)

    @property
    def has_cache(self) -> bool:
        """Whether what was computed for tokens is kept."""
        return bool(self.states)

    @property
    def scores(self) -> str:
        """Name of the output that is the scores of tokens."""
        return self._scores

    @property
    def vocabulary(self) -> int:
        """Number of tokens that there are."""
        return self._vocabulary

    @property
    def states(self) -> dict[str, str]:
        """Inputs of the cache, each with the output that the next call reads there."""
        return self._executable.pairs if isinstance(self._executable, StreamingExecutable) else {}

    @property
    def executable(self) -> Executable:
        """The compiled model."""
        return self._executable

    @property
    def source(self) -> EncoderReader | None:
        """Reader of a source with the encoder, see `begin`; None where the model has none."""
        return self._source

    def begin(self, source: Mapping[str, Array] | Sequence[int]) -> None:
        """Let the encoder read a source, and forget all tokens and the source before.

        source: inputs of the encoder by name, or the tokens of a text. Raises UsageError for a model without
        an encoder, and DataError for a source that does not fit.
        """
        if self._source is None or not isinstance(self._executable, StreamingExecutable):
            raise UsageError("the model has no encoder that reads a source")
        given = source if isinstance(source, Mapping) else self._source.tokens(source)
        self._executable.reset(self._source.read(given))
        self._seen, self._has_source = [], True

    def reset(self) -> None:
        """Forget all tokens, and the source."""
        self._seen, self._has_source = [], self._source is None
        if isinstance(self._executable, StreamingExecutable):
            self._executable.reset()

    def read(self, tokens: Sequence[int]) -> Array:
        """Add tokens to those so far: scores [vocabulary] of the token after them.

        Raises DataError for no tokens, tokens that are none, and more than the context holds, and where a
        source is missing.
        """
        if not self._has_source:
            raise DataError("the model goes on from a source: let its encoder read one first, with `begin`")
        added = [int(token) for token in tokens]
        if not added:
            raise DataError("there is no token to go on from")
        wrong = [token for token in added if not 0 <= token < self._vocabulary]
        if wrong:
            raise DataError(f"{wrong[0]} is no token; the model has {self._vocabulary}")
        if len(self._seen) + len(added) > self._context:
            total = len(self._seen) + len(added)
            raise DataError(f"{total} tokens are more than the context of {self._context}")
        if not self.has_cache:
            self._seen += added
            return self._last(self._executable(self._inputs(0, self._padded())), len(self._seen))
        for part in self._parts(added):
            outputs = self._executable(self._inputs(len(self._seen), part))
            self._seen += part
        return self._last(outputs, len(part))

    def generate(
        self,
        tokens: Sequence[int],
        count: int,
        sampling: TokenSampling | None = None,
        stop: Collection[int] = (),
    ) -> Iterator[int]:
        """Go on from what was read and `tokens` by at most `count` tokens, one by one.

        It ends before a token of `stop`, and where the context is full. Raises what `read` does.
        """
        rules = sampling or TokenSampling()
        random = np.random.default_rng(rules.seed)
        scores = self.read(tokens)
        for place in range(count):
            token = rules.choose(scores, random)
            if token in stop:
                return
            yield token
            if place + 1 == count or len(self._seen) == self._context:
                return
            scores = self.read([token])

    def _parts(self, tokens: list[int]) -> Iterator[list[int]]:
        """Tokens of each call, after those before it. The last call is one that gives scores."""
        end, begin = len(tokens), 0
        if self._piece > self._roles.scored(self._piece) < end:
            end -= 1
        while begin < end:
            part = self._taken(tokens[begin : min(begin + self._piece, end)])
            yield part
            begin += len(part)
        if end < len(tokens):
            yield tokens[end:]

    def _taken(self, tokens: list[int]) -> list[int]:
        """Take as many tokens as the next call can: near the end of the context few, or one."""
        for count in (len(tokens), FEW):
            part = tokens[:count]
            if len(part) == 1 or self._takes is None:
                return part
            arrays = self._inputs(len(self._seen), part)
            if self._takes({name: array.shape for name, array in arrays.items()}):
                return part
        return tokens[:1]

    def _padded(self) -> list[int]:
        """Return the tokens, with zeros behind them where the model takes one length alone."""
        length = self._roles.length
        return self._seen + [0] * (0 if length is None else length - len(self._seen))

    def _inputs(self, past: int, tokens: Sequence[int]) -> dict[str, Array]:
        kinds = {name: np.dtype(kind.element.dtype) for name, kind in self._executable.inputs.items()}
        return self._roles.arrays(tokens, past, kinds, None if self.has_cache else len(self._seen))

    def _last(self, outputs: dict[str, Array], count: int) -> Array:
        """Scores of the last of `count` tokens; some models give those of their last places alone."""
        rows = outputs[self._scores][0]
        return np.asarray(rows[min(count, len(rows)) - 1])
