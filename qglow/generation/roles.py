"""Roles of the inputs and outputs of a language model, told by their names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array, Dimension, TensorType

Dimensions = Mapping[str, Sequence[Dimension] | None]

_TOKENS = re.compile(r"ids|tokens?|^x$|^idx$", re.IGNORECASE)
_MASK = re.compile(r"mask", re.IGNORECASE)
_POSITIONS = re.compile(r"position|^pos", re.IGNORECASE)
_KINDS = re.compile(r"type|segment", re.IGNORECASE)
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


@dataclass(frozen=True)
class Roles:
    """Names of a language model's inputs. tokens, mask, positions and kinds: [batch, tokens].

    mask: 1 for every token, those in the cache too. kinds: zeros. states: inputs that keep an output for the
    next call. new, past: dimensions of the tokens of a call, and of those in the cache; None where the file
    fixes them, or has no cache. total: dimension of the mask, where it is one of its own. length: tokens of a
    call, where the file fixes them.
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

    def bounds(self, context: int, piece: int) -> dict[str, int | tuple[int, ...] | str]:
        """Bounds for `context` tokens, of which a call takes at most `piece`, or all without a cache."""
        if self.new is None:
            return {}
        if self.past is None:
            return {self.new: _steps(context, 32)}
        result: dict[str, int | tuple[int, ...] | str] = {
            self.new: (1, FEW, piece) if self.scored(piece) < piece else (1, piece),
            self.past: _steps(context, 256),
        }
        if self.total is not None:
            result[self.total] = f"{self.past} + {self.new}"
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
        if self.kinds is not None:
            made[self.kinds] = np.zeros((1, len(tokens)))
        return {name: array.astype(kinds[name]) for name, array in made.items()}


def find_roles(inputs: Dimensions) -> Roles:
    """Roles of the inputs of these dimensions; those that no other role fits are states.

    Raises UsageError where there are no tokens, or no names for sizes that a cache needs.
    """
    left = dict(inputs)
    mask, positions, kinds = (_take(left, pattern) for pattern in (_MASK, _POSITIONS, _KINDS))
    tokens = _take(left, _TOKENS)
    if tokens is None:
        raise UsageError(f"no input is called as tokens are; the inputs are {', '.join(inputs)}")
    length = (inputs[tokens] or (None, None))[-1]
    past = _past(inputs, list(left))
    if past is not None and not isinstance(length, str):
        raise UsageError(f"the number of tokens of input '{tokens}' has no name in the file, beside a cache")
    sums = [d for d in (inputs[mask] or ())[1:] if isinstance(d, str)] if mask is not None else []
    total = next((d for d in sums if d not in (length, past) and "+" not in d), None)
    return Roles(
        tokens,
        mask,
        positions,
        kinds,
        tuple(left),
        length if isinstance(length, str) else None,
        past,
        total,
        length if isinstance(length, int) else None,
    )


def scores_output(outputs: Mapping[str, TensorType]) -> str:
    """Name of the output that is the scores of tokens, [batch, tokens, vocabulary], among those of no states.

    Raises UsageError where there is none.
    """
    scores = [
        name for name, kind in outputs.items() if (kind.is_float or kind.is_half) and len(kind.shape) == 3
    ]
    named = [name for name in scores if "logits" in name.lower()]
    if not scores:
        raise UsageError(f"no output is scores of tokens; the outputs are {', '.join(outputs)}")
    return (named or scores)[0]


def pair_states(
    states: Sequence[str], outputs: Sequence[str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Each state with the output of a like name, or the one that `given` names.

    Raises UsageError for a state without one.
    """
    named = {_lasting(name): name for name in outputs}
    pairs = dict(given or {})
    for name in states:
        if name not in pairs and _lasting(name) not in named:
            raise UsageError(f"input '{name}' has no output of a like name; name it: `state={name}=OUTPUT`")
        pairs.setdefault(name, named.get(_lasting(name), ""))
    return pairs


def _take(left: dict[str, Sequence[Dimension] | None], pattern: re.Pattern[str]) -> str | None:
    """Name of the input of two axes that a pattern tells, which is taken away."""
    found = next((n for n, d in left.items() if d is not None and len(d) == 2 and pattern.search(n)), None)
    if found is not None:
        del left[found]
    return found


def _lasting(name: str) -> tuple[str, ...]:
    """Words of a name that a state has before and after a call."""
    words = re.findall(r"[a-z]+|\d+", name.lower())
    if "past" in words:
        words = [word for word in words if word not in ("key", "values")] if "values" in words else words
        kind = name.lower().rsplit(".", 1)[-1]
        words += [kind] if kind in ("key", "value") and kind not in words else []
    return tuple(word for word in words if word not in _FLEETING)


def _past(inputs: Dimensions, states: Sequence[str]) -> str | None:
    """Name of the dimension along which states grow: the first one behind the batch."""
    for name in states:
        for axis, dimension in enumerate(inputs[name] or ()):
            if axis and isinstance(dimension, str):
                return dimension
    return None


def _steps(largest: int, least: int) -> tuple[int, ...]:
    """Bounds of programs: each four times the one before, up to the largest."""
    steps = [largest]
    while steps[-1] // 4 >= least:
        steps.append(steps[-1] // 4)
    return tuple(reversed(steps))
