"""Sources of a decoder besides its tokens: a text, sound or image that an encoder has read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import UnboundError, UsageError
from qglow.core.types import Array, Dimension, ElementType, TensorType
from qglow.generation.roles import find_roles, like_named
from qglow.runtime.executable import Executable
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.samples import Data, FreeInputs, open_specified

HIDDEN_AXES = 3
"""Axes of what an encoder gives: [batch, places, width]."""
MASK_AXES = 2
"""Axes of a mask of the encoder's places: [batch, places]."""


@dataclass(frozen=True)
class EncoderReader:
    """Programs that compute what a decoder keeps of a source.

    encoder: reads the source. first: gives keys and values of what the encoder gives, as the model of a first
    token does, where the decoder reads such and the encoder does not give them. wanted: types of the
    decoder's inputs that a source decides. refusal: why the encoder is compiled for each length of a text
    when it comes, or "" where it is not.
    """

    encoder: Executable
    first: BoundedExecutable | None
    wanted: Mapping[str, TensorType]
    refusal: str = ""

    def tokens(self, tokens: Sequence[int]) -> dict[str, Array]:
        """Inputs of the encoder for the tokens of a text. Raises UsageError for an encoder of no text."""
        dimensions, elements = self._inputs()
        dtypes = {name: np.dtype(element.dtype) for name, element in elements.items()}
        return find_roles(dimensions).arrays(tokens, 0, dtypes)

    def samples(
        self, data: Data, select: str | None = None, samples: int | None = None
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        """Names and inputs of the encoder for each sample of data. Raises DataError for what does not fit."""
        free = FreeInputs.of(*self._inputs())
        for sample in open_specified(data, free.specs, select=select, samples=samples):
            yield sample.key, {n: a[None] if n in free.batched else a for n, a in sample.inputs.items()}

    def _inputs(self) -> tuple[dict[str, Sequence[Dimension] | None], dict[str, ElementType]]:
        """Dimensions and element types of the encoder's inputs."""
        try:
            kinds = self.encoder.inputs
        except UnboundError as unbound:  # each length is compiled when it comes
            return dict(unbound.dimensions), dict(unbound.elements)
        dimensions: dict[str, Sequence[Dimension] | None] = {name: kind.shape for name, kind in kinds.items()}
        if isinstance(self.encoder, BoundedExecutable):
            dimensions |= self.encoder.dimensions.declared
        else:
            dimensions |= self.encoder.free_dimensions or {}
        return dimensions, {name: kind.element for name, kind in kinds.items()}

    def places(self, inputs: Mapping[str, Array]) -> int:
        """Places that the encoder makes of its inputs. Raises what `read` does."""
        hidden = _hidden(self.encoder({name: np.asarray(array) for name, array in inputs.items()}))
        return int(hidden.shape[1])

    def read(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The wanted arrays for inputs of the encoder, by name.

        Raises DataError for inputs that do not fit, UsageError where nothing gives an array that is wanted.
        """
        given = {name: np.asarray(array) for name, array in inputs.items()}
        encoded = self.encoder(given)
        hidden = _hidden(encoded)
        masks = [a for name, a in given.items() if "mask" in name.lower() and a.ndim == MASK_AXES]
        places = hidden.shape[1]
        mask = masks[0] if masks and masks[0].shape[1] == places else np.ones((1, places))
        of_places = {HIDDEN_AXES: hidden, MASK_AXES: mask}
        outputs = dict(encoded)
        if self.first is not None:
            outputs |= _keys_and_values(self.first, of_places, places)
        found = {}
        for name, kind in self.wanted.items():
            output = like_named(name, list(outputs))
            array = outputs.get(output or "", of_places.get(len(kind.shape)))
            if array is None:
                raise UsageError(
                    f"neither the encoder nor the model of the first token gives the decoder's input '{name}'"
                )
            found[name] = array.astype(kind.element.dtype)
        return found


def _hidden(encoded: Mapping[str, Array]) -> Array:
    """Return what an encoder gives for each place."""
    hidden = [a for a in encoded.values() if a.ndim == HIDDEN_AXES and a.dtype.kind == "f"]
    if not hidden:
        raise UsageError(f"the encoder gives no [batch, places, width], only {', '.join(encoded)}")
    return hidden[0]


def _keys_and_values(
    first: BoundedExecutable, of_places: Mapping[int, Array], places: int
) -> dict[str, Array]:
    """Return what the model of a first token makes of an encoder's results; its tokens do not matter."""
    roles = find_roles(first.dimensions.declared)
    sizes = {name: places if name == roles.places else 1 for name in first.dimensions.bounds}
    arrays = {}
    for name, shape in first.dimensions.shapes(sizes).items():
        known = of_places.get(len(shape)) if name in roles.source else None
        array = np.zeros(shape) if known is None else known
        arrays[name] = array.astype(first.inputs[name].element.dtype)
    return first(arrays)
