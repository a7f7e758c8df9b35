"""Search for factors of channels that begins with what earlier searches found, under whatever recipe.

Recipes that differ in calibrations, or in rules for other nodes, look for factors of the same scopes again,
and the search reads all weights there many times. A digest of everything that it depends on tells whether
it was made before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from qglow.core.text import format_attributes
from qglow.core.types import Array
from qglow.graph.graph import Node
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.channel_factors import ALPHAS, Factors, FactorSearch
from qglow.quantization.known_factors import KnownFactors
from qglow.quantization.scopes import NoScope, Scope

SearchedFactors = dict[str, Factors | str]
"""Factors of a scope, or why it has none, by a digest of all that the search depends on."""


def remembered(known: KnownFactors | SearchedFactors, key: str, search: Callable[[], Factors]) -> Factors:
    """Factors that are known by a key, else those of the search, which are kept. Raises NoScope like it."""
    if key not in known:
        try:
            known[key] = search()
        except NoScope as refusal:
            known[key] = str(refusal)
    found = known[key]
    if isinstance(found, str):
        raise NoScope(found)
    return found


@dataclass(frozen=True)
class SharedSearch(FactorSearch):
    """The same search, but for scopes that were searched before with the same exponents.

    found: by earlier searches, in this graph or others; this one adds to it.
    """

    found: SearchedFactors = field(default_factory=dict)

    def best(self, scope: Scope, alphas: tuple[float, ...] = ALPHAS) -> Factors:
        search = super().best
        return remembered(self.found, self._key(scope, alphas), lambda: search(scope, alphas))

    def _key(self, scope: Scope, alphas: tuple[float, ...]) -> str:
        """Digest of the exponents and of what the search reads: names, layouts, statistics and weights."""
        digest = hashlib.sha256()
        batch = self.graph.inputs[0].type.shape[:1] if self.graph.inputs else ()
        digest.update(repr((alphas, self.samples, batch, scope.size, scope.summed)).encode())
        for part in self._parts(scope):
            digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B"))
        return digest.hexdigest()

    def _parts(self, scope: Scope) -> Iterator[bytes | Array]:
        for value, layout in scope.values.items():
            added = [str(user) for user in value.users() if user.operator.additive]
            facts = value.name, value.type.shape, self.schema_of(value), layout.axis, added
            yield repr(facts).encode()
            yield layout.channels
            yield from _statistics(self.statistics.get(value.name))
        yield repr([(value.name, bound) for value, bound in scope.clamps]).encode()
        for node in scope.consumers:
            yield from _weights(node)


def _statistics(profile: ValueProfile | None) -> Iterator[bytes | Array]:
    if profile is None:
        yield b"unknown"
        return
    counts = profile.derived("digest", lambda: hashlib.sha256(profile.counts.data).hexdigest())
    yield repr((profile.low, profile.high, counts, profile.channels is not None)).encode()
    channels = profile.channels
    if channels is not None:
        yield repr(channels.axis).encode()
        yield from (channels.low, channels.high, channels.whole, channels.fraction)


def _weights(node: Node) -> Iterator[bytes | Array]:
    value, weights = node.inputs[0], node.inputs[1]
    assert value is not None and weights is not None and weights.data is not None
    operator = node.operator
    yield repr((value.name, operator.name, format_attributes(operator), str(weights.type))).encode()
    yield weights.data
