"""Roles of the inputs and outputs of a language model, told by their names and shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array, Dimension, TensorType
from qglow.display.lines import listed, near

Dimensions = Mapping[str, Sequence[Dimension] | None]

_TOKENS = re.compile(r"ids|tokens?|^x$|^idx$", re.IGNORECASE)
_MASK = re.compile(r"mask", re.IGNORECASE)
_POSITIONS = re.compile(r"position|^pos", re.IGNORECASE)
_KINDS = re.compile(r"type|segment", re.IGNORECASE)
_SOURCE = re.compile(r"encoder|cross", re.IGNORECASE)
_HIDDEN = re.compile(r"hidden|embed", re.IGNORECASE)
_BRANCH = re.compile(r"use_cache", re.IGNORECASE)
FEW = 16
"""Tokens that a program reads at once and gives scores of; of more, only the last one's are computed."""
_FLEETING = frozenset(
    (
        "past",
        "present",
        "cache",
        "new",
        "next",
        "updated",
        "old",
        "prev",
        "in",
        "out",
        "input",
        "output",
        "kv",
    )
)
"""Words that tell a state before a call from the one after it."""
_SINGULAR = {"keys": "key", "values": "value"}
_BOTH = ["key", "value"]
"""Words that stand for keys and values together, as in past_key_values.0.key."""


@dataclass(frozen=True)
class Roles:
    """Names of a language model's inputs. tokens, mask, positions and kinds: [batch, tokens].

    mask: 1 for every token, those in the cache too. kinds: zeros. states: inputs that keep an output for the
    next call. new, past: dimensions of the tokens of a call, and of those in the cache; None where the file
    fixes them, or has no cache. total: dimension of the mask, where it is one of its own. length: tokens of a
    text, where the file fixes them. source: inputs that an encoder's text or sound decides, which stay the
    same for all tokens. places: dimension of the source's places. row: positions of one axis, [tokens].
    alike: dimensions that a file calls otherwise, each with the one of these that it is: exporters may give
    every input names of its own.

    With `past` alone, without `new`, every call reads one token.
    """

    tokens: str
    mask: str | None = None
    positions: str | None = None
    kinds: str | None = None
    states: Sequence[str] = ()
    new: str | None = None
    past: str | None = None
    total: str | None = None
    length: int | None = None
    source: Sequence[str] = ()
    places: str | None = None
    row: str | None = None
    alike: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fixed(self) -> bool:
        """Whether the file fixes the number of tokens of a text, and has no cache."""
        return self.new is None and self.past is None

    @property
    def takes_one(self) -> bool:
        """Whether the file fixes one token a call, beside a cache."""
        return self.new is None and self.past is not None

    def bounds(self, context: int, piece: int, source: int = 1) -> dict[str, int | tuple[int, ...] | str]:
        """Bounds for `context` tokens, of which a call takes at most `piece`, or all without a cache.

        source: the most places of a source.
        """
        result: dict[str, int | tuple[int, ...] | str] = {}
        if self.is_fixed:
            return result
        result |= self.alike
        if self.places is not None:
            result[self.places] = source
        if self.past is None:
            return result if self.new is None else {**result, self.new: ascending_bounds(context, 32)}
        if self.new is None:
            piece = 1
        else:
            few = (1, FEW, piece) if self.scored(piece) < piece else (1, piece)
            result[self.new] = few if piece > 1 else 1
        # A call of one token has at most the others of the context before it, and tables may end there.
        result[self.past] = ascending_bounds(context if piece > 1 else context - 1, 256)
        if self.total is not None:
            result[self.total] = f"{self.past} + {self.new or 1}"
        return result

    def scored(self, piece: int) -> int:
        """The most tokens of a call that gives scores, where one takes at most `piece`."""
        return piece if self.past is None or piece < 2 * FEW else FEW

    def arrays(
        self,
        tokens: Sequence[int],
        past: int,
        kinds: Mapping[str, np.dtype[np.generic]],
        known: int | None = None,
    ) -> dict[str, Array]:
        """Inputs that are no states, for tokens behind `past` others; their types by name.

        known: how many are tokens of the text, where others fill it up (default: all).
        """
        total = past + len(tokens)
        made: dict[str, Array] = {self.tokens: np.array([tokens])}
        if self.mask is not None:
            made[self.mask] = np.arange(total)[None] < (total if known is None else known)
        if self.positions is not None:
            made[self.positions] = np.arange(past, total)[None]
        if self.row is not None:
            made[self.row] = np.arange(past, total)
        if self.kinds is not None:
            made[self.kinds] = np.zeros((1, len(tokens)))
        return {name: array.astype(kinds[name]) for name, array in made.items()}


def find_roles(inputs: Dimensions) -> Roles:
    """Roles of the inputs of these dimensions; those that no other role fits are states.

    Raises UsageError where there are no tokens, and beside a cache for a number of tokens that has no name
    and is not one.
    """
    source = tuple(name for name in inputs if _SOURCE.search(name))
    left = {name: sizes for name, sizes in inputs.items() if name not in source}
    mask, positions, kinds = (_take(left, pattern) for pattern in (_MASK, _POSITIONS, _KINDS))
    tokens = _take(left, _TOKENS)
    if tokens is None:
        embedded = next((name for name in inputs if "embeds" in name), None)
        why = (
            ""
            if embedded is None
            else f": '{embedded}' takes what a table makes of them, export it with that"
        )
        raise UsageError(f"no input is called as tokens are{why}; the inputs are {', '.join(inputs)}")
    length = (inputs[tokens] or (None, None))[-1]
    row = _take(left, _POSITIONS, (length,)) if length is not None else None
    past = _past(inputs, list(left))
    if past is not None and length is None:
        raise UsageError(f"the number of tokens of input '{tokens}' has no name in the file, beside a cache")
    if past is not None and isinstance(length, int) and length != 1:
        raise UsageError(
            f"input '{tokens}' has {length} tokens in the file, beside a cache: a fixed number must be 1"
        )
    sums = [d for d in (inputs[mask] or ())[1:] if isinstance(d, str)] if mask is not None else []
    total = next((d for d in sums if d not in (length, past) and "+" not in d), None)
    places = _past(inputs, source)
    known = {length, past, places} | ({total} if past is not None else set())
    rows = [name for name in (mask if past is None else None, positions, kinds) if name is not None]
    alike = {
        **_alike(inputs, left, past, known),
        **_alike(inputs, source, places, known),
        **_alike(inputs, rows, length, known),
    }
    return Roles(
        tokens,
        mask,
        positions,
        kinds,
        tuple(left),
        length if isinstance(length, str) else None,
        past,
        total if past is not None else None,
        length if isinstance(length, int) and past is None else None,
        source,
        places,
        row,
        alike,
    )


def find_branch(inputs: Dimensions) -> str | None:
    """Name of the input of one element that chooses whether a model reads its cache, if there is one.

    Models that are merged of one for the first token and one for all others have it.
    """
    return next((n for n, d in inputs.items() if _BRANCH.search(n) and tuple(d or ()) in ((), (1,))), None)


def like_named(name: str, names: Sequence[str]) -> str | None:
    """The only one of these names that is this one but for words that tell before from after, or None."""
    like = [other for other in names if _lasting(other) == _lasting(name)]
    return like[0] if len(like) == 1 else None


def scores_output(outputs: Mapping[str, TensorType]) -> str:
    """Name of the output that is the scores of tokens, [batch, tokens, vocabulary], among those of no states.

    Raises UsageError where there is none, or only what a model without its last layer gives.
    """
    rows = [
        name for name, kind in outputs.items() if (kind.is_float or kind.is_half) and len(kind.shape) == 3
    ]
    named = [name for name in rows if "logits" in name.lower()]
    scores = named or [name for name in rows if not _HIDDEN.search(name)]
    if scores:
        return scores[0]
    if rows:
        raise UsageError(
            f"no output is scores of tokens: '{rows[0]}' is what the layer that gives scores would read; "
            "export the model with that layer, as for text-generation"
        )
    raise UsageError(f"no output is scores of tokens; the outputs are {', '.join(outputs)}")


def pair_states(
    states: Sequence[str],
    outputs: Sequence[str],
    given: Mapping[str, str] | None = None,
    continued: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Each state with the output that `given` names, else the one of a like name, else that of `continued`.

    continued: states with the one output that is the state followed by new places. Some exporters write names
    in another order than the tensors: an output that continues another state has no like name, and neither
    has one that several states are like. Raises UsageError for a state without an output, and for names in
    `given` that are none of these.
    """
    pairs = dict(given or {})
    _check_known("input", pairs, states)
    _check_known("output", pairs.values(), outputs)
    left = [name for name in states if name not in pairs]
    free = [name for name in outputs if name not in pairs.values()]
    named = {name: like_named(name, free) for name in left}
    times = Counter(named.values())
    joined = continued or {}
    owners = {output: name for name, output in joined.items()}
    for name, output in named.items():
        if output is not None and times[output] == 1 and owners.get(output, name) == name:
            pairs[name] = output
    for name in left:
        if name in pairs:
            continue
        if joined.get(name) not in free or joined[name] in pairs.values():
            raise UsageError(f"input '{name}' has no output of a like name; name it: `states={name}=OUTPUT`")
        pairs[name] = joined[name]
    return {name: pairs[name] for name in states}


def _check_known(kind: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise UsageError for a name of a pair that is none of those `known`, with the nearest of them."""
    for name in names:
        if name not in known:
            there = listed(known, most=4) or "none"
            what = "input that is a state" if kind == "input" else kind
            raise UsageError(
                f"states: no {what} is called '{name}', there are {there}{near(name, known)}", field="states"
            )


def _take(
    left: dict[str, Sequence[Dimension] | None],
    pattern: re.Pattern[str],
    sizes: Sequence[Dimension] | None = None,
) -> str | None:
    """Name of the input of two axes, or of these very sizes, that a pattern tells; it is taken away."""

    def fits(dimensions: Sequence[Dimension]) -> bool:
        return len(dimensions) == 2 if sizes is None else tuple(dimensions) == tuple(sizes)

    found = next((n for n, d in left.items() if d is not None and pattern.search(n) and fits(d)), None)
    if found is not None:
        del left[found]
    return found


def _lasting(name: str) -> tuple[str, ...]:
    """Words of a name that a state has before and after a call."""
    words = [_SINGULAR.get(word, word) for word in re.findall(r"[a-z]+|\d+", name.lower())]
    both = next((place for place in range(len(words)) if words[place : place + 2] == _BOTH), None)
    if both is not None:
        del words[both : both + 2]
    return tuple(word for word in words if word not in _FLEETING)


def _past(inputs: Dimensions, states: Sequence[str]) -> str | None:
    """Name of the dimension along which states grow: the first one behind the batch."""
    for name in states:
        for axis, dimension in enumerate(inputs[name] or ()):
            if axis and isinstance(dimension, str):
                return dimension
    return None


def _alike(
    inputs: Dimensions, names: Iterable[str], dimension: Dimension, known: Collection[Dimension]
) -> dict[str, str]:
    """Other names, none of those known, that these inputs have for this dimension, first behind the batch."""
    found = (_past(inputs, [name]) for name in names)
    if not isinstance(dimension, str):
        return {}
    return {
        other: dimension for other in found if other is not None and other not in known and "+" not in other
    }


def ascending_bounds(largest: int, least: int) -> tuple[int, ...]:
    """Bounds of programs: each four times the one before, up to the largest."""
    steps = [largest]
    while steps[-1] // 4 >= least:
        steps.append(steps[-1] // 4)
    return tuple(reversed(steps))
