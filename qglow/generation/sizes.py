"""Sizes for a model of text whose file and caller leave them open: those of samples, or of a short text."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qglow.core.errors import QglowError, UnboundError, UndecidedError, UsageError
from qglow.core.types import Dimension, Shape
from qglow.counts import parse_count
from qglow.generation.roles import Dimensions, Roles, find_roles
from qglow.profiling.profile import Profile
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.samples import Data
from qglow.toolchain.undecided import UndecidedModel

TOKENS = 16
"""Tokens of the text; what is done with weights is the same for every number."""


def with_sizes(
    model: UndecidedModel,
    samples: Data | CalibrationSamples | None,
    recipe: Recipe,
    profile: Profile | None = None,
) -> LoadedModel:
    """The model for the sizes and values of a profile; without one for the sizes that most samples have.

    Without samples too, for those of `with_text_sizes`. Raises DataError for samples that do not fit.
    """
    if profile is not None:
        return model.in_profile(profile)
    if samples is None or not isinstance(model.reason, UnboundError):
        return with_text_sizes(model)
    declared = CalibrationSamples.of(samples, model.reason.dimensions)
    return model.at({**declared.common_shapes(model.reason.elements, recipe), **model.given_shapes})


def with_text_sizes(model: UndecidedModel) -> LoadedModel:
    """The model for a text of `TOKENS` tokens, half of them or all others in the cache if it has one.

    Raises the model's own refusal where it reads no tokens or takes no such text, UndecidedError where values
    decide too.
    """
    roles = _roles(model.reason)
    if roles is None:
        raise model.refusal
    for new in _numbers(roles):
        try:
            return model.at(text_shapes(roles, model.dimensions, model.given_shapes, new))
        except UndecidedError:
            raise
        except QglowError:
            continue  # sizes that do not go together: others may
    raise model.refusal


def text_shapes(roles: Roles, declared: Dimensions, given: Mapping[str, Shape], new: int) -> dict[str, Shape]:
    """Shapes of all inputs for `TOKENS` tokens, of which a call brings `new`.

    declared: dimensions by input. given: shapes of those that are bound. A first dimension is a batch of 1.
    """
    sizes = _sizes(roles, new)
    for name, shape in given.items():
        named = zip(declared[name] or (), shape, strict=False)
        sizes |= {dimension: size for dimension, size in named if isinstance(dimension, str)}
    if roles.total is not None and roles.past is not None:
        sizes.setdefault(roles.total, sizes[roles.past] + (sizes[roles.new] if roles.new else 1))
    firsts = {dimensions[0] for dimensions in declared.values() if dimensions}
    return {
        name: given[name]
        if name in given
        else tuple(_size(dimension, axis, sizes, firsts) for axis, dimension in enumerate(dimensions))
        for name, dimensions in declared.items()
        if dimensions is not None
    }


def _roles(reason: Exception | None) -> Roles | None:
    """Roles of the inputs of a model whose sizes are free, if it reads tokens."""
    if not isinstance(reason, UnboundError):
        return None
    try:
        roles = find_roles(reason.dimensions)
    except UsageError:
        return None
    return roles if reason.elements[roles.tokens].dtype.kind in "iu" else None


def _numbers(roles: Roles) -> tuple[int, ...]:
    """Numbers of new tokens to try: half of all, and one, beside which masks count all others."""
    if roles.past is None:
        return (TOKENS,)
    return (1,) if roles.takes_one else (TOKENS // 2, 1)


def _sizes(roles: Roles, new: int) -> dict[str, int]:
    """Sizes of dimensions that have a role."""
    found = {roles.new: new, roles.past: TOKENS - new, roles.places: TOKENS}
    known = {name: size for name, size in found.items() if name is not None}
    return known | {name: known[other] for name, other in roles.alike.items()}


def _size(dimension: Dimension, axis: int, sizes: Mapping[str, int], firsts: Collection[Dimension]) -> int:
    if isinstance(dimension, int):
        return dimension
    if dimension is not None:
        count = parse_count(dimension, sizes)
        if count is not None:
            return count.at(sizes)
    return 1 if not axis or (dimension is not None and dimension in firsts) else TOKENS
