"""Programs of one decoder, in qglow and in other runtimes, that are timed beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from qglow.api.generation import LEAST_PIECE, load_generator
from qglow.api.model import Model
from qglow.api.quantized import QuantizedModel
from qglow.core.errors import UsageError
from qglow.core.model_place import ModelPlace, file_or_bytes
from qglow.core.types import Array, Dimension
from qglow.generation import EncoderReader, Generator, Roles, find_roles, like_named
from qglow.report.decoding import Decoder, OnnxruntimeDecoder, SingleDecoder
from qglow.report.decoding_rivals import LlamaCppDecoder, OpenvinoDecoder, check_llama_cpp
from qglow.report.encoded_decoding import (
    EncodedDecoder,
    EncodedFiles,
    EncodedNames,
    OnnxruntimeEncodedDecoder,
)
from qglow.report.openvino_model import installed_openvino
from qglow.report.parts import float_model, source_place
from qglow.toolchain.samples import Data
from qglow.toolchain.undecided import open_model

Makers = dict[str, Callable[[], Decoder]]
"""What makes each program, by its title."""
_PLACES = 2
"""Axis of a cache along which its tokens lie."""


@dataclass(frozen=True)
class EncoderSource:
    """The encoder of a decoder, and the decoder's form that reads no cache, where it is given.

    roles: of the inputs of an encoder of texts. inputs, places: a sample that another encoder reads, and how
    many places it makes of it.
    """

    encoder: Model | QuantizedModel
    first: Model | QuantizedModel | None
    roles: Roles | None
    inputs: Mapping[str, Array] | None = None
    places: int | None = None

    @staticmethod
    def of(
        encoder: Model | QuantizedModel,
        first: Model | QuantizedModel | None,
        data: Data | None,
        isa: str | None,
        threads: int,
    ) -> EncoderSource:
        """Raises UsageError for an encoder of no tokens without data, and DataError for what does not fit."""
        if data is not None:
            reader = EncoderReader(encoder.compile(isa=isa, threads=threads), None, {})
            sample = next(iter(reader.samples(data, samples=1)), None)
            if sample is None:
                raise UsageError("data has no sample that the encoder could read", field="data")
            return EncoderSource(encoder, first, None, sample[1], reader.places(sample[1]))
        try:
            return EncoderSource(encoder, first, find_roles(encoder.dimensions))
        except UsageError as error:
            raise UsageError(
                f"the encoder reads no text: name samples for it as `data` ({error})", field="data"
            ) from error

    def in_float(self) -> EncoderSource:
        """The same as the files of the models have it."""
        encoder, first = (
            Model(open_model(file_place(m))) if isinstance(m, QuantizedModel) else m
            for m in (self.encoder, self.first)
        )
        assert encoder is not None
        return replace(self, encoder=encoder, first=first)


@dataclass
class DecoderPrograms:
    """A decoder and what its programs have in common.

    roles: of its inputs. chosen: the input that chooses the branch with a cache, if it has two. source: its
    encoder, if it has one. context: places of a cache. made: qglow's programs so far; the first tells the
    others what the model is like.
    """

    model: Model | QuantizedModel
    roles: Roles
    chosen: str | None
    source: EncoderSource | None
    states: Mapping[str, str] | None
    _: KW_ONLY
    prefill: int
    decode: int
    context: int
    piece: int
    cache: str
    isa: str | None
    threads: int
    made: list[Generator] = field(default_factory=list)

    def makers(self, openvino: bool, gguf: Path | None) -> Makers:
        """Makers of qglow's programs, of onnxruntime's, and of those that are asked for.

        Raises UsageError for one that is not installed.
        """
        programs = {**self._own(), "onnxruntime": self._onnxruntime}
        if openvino:
            installed_openvino()
            programs["OpenVINO"] = partial(self._rival, OpenvinoDecoder)
        if gguf is not None:
            check_llama_cpp(gguf)
            programs["llama.cpp"] = partial(self._llama_cpp, gguf)
        return programs

    def drawn(self) -> list[int]:
        """Draw the tokens that are read, and those that are decoded."""
        random = np.random.default_rng(0)
        return [int(t) for t in random.integers(0, self.made[0].vocabulary, self.prefill + self.decode)]

    def _own(self) -> Makers:
        """Makers of the model's program, and for a quantized model of its float one."""
        own = partial(self._generator, self.model, self.source)
        original = float_model(self.model._parts) if isinstance(self.model, QuantizedModel) else None
        if original is None or original.is_quantized:
            return {"qglow": own}
        kind = "weights as given" if original.graph.has_blocks else "float32"
        return {"qglow quantized": own, f"qglow {kind}": self._in_float}

    def _in_float(self) -> Decoder:
        source = None if self.source is None else self.source.in_float()
        return self._generator(Model(open_model(file_place(self.model))), source)

    def _generator(self, decoder: Model | QuantizedModel, source: EncoderSource | None) -> Decoder:
        made = load_generator(
            decoder,
            self.states,
            encoder=None if source is None else source.encoder,
            first=None if source is None else source.first,
            source=max(self.prefill, LEAST_PIECE),
            context=self.context,
            piece=self.piece,
            cache=self.cache,
            isa=self.isa,
            threads=self.threads,
        )
        self.made.append(made)
        return made if source is None else EncodedDecoder(made, source.inputs)

    def _onnxruntime(self) -> Decoder:
        if self.source is None:
            return self._rival(partial(OnnxruntimeDecoder, dimensions=self._dimensions))
        return self._onnxruntime_beside(self.source)

    def _rival(self, kind: Callable[..., Decoder]) -> Decoder:
        """The model's own file in another runtime."""
        file = file_or_bytes(file_place(self.model))
        decoder = kind(file, self._states, self.made[0].scores, self._feeds, self.threads)
        return SingleDecoder(decoder) if self.roles.takes_one else decoder

    def _onnxruntime_beside(self, source: EncoderSource) -> Decoder:
        """A decoder with its encoder in onnxruntime. Raises UsageError without the form that has no cache."""
        if source.first is None and self.chosen is None:
            raise UsageError(
                "onnxruntime needs the decoder's form without a cache: name it as `first`", field="first"
            )
        place = file_place(self.model)
        files = EncodedFiles(
            file_or_bytes(file_place(source.encoder)),
            file_or_bytes(place if source.first is None else file_place(source.first)),
            file_or_bytes(place),
        )
        of_first = () if source.first is None else find_roles(source.first.dimensions).source
        inputs = tuple(dict.fromkeys((*self.roles.source, *of_first)))
        names = EncodedNames(self._states, inputs, self.made[0].scores, self.chosen, like_named)
        feeds = None if source.roles is None else source.roles.arrays
        decoder = OnnxruntimeEncodedDecoder(files, names, feeds, self.roles.arrays, self.threads)
        return EncodedDecoder(decoder, source.inputs)

    def _llama_cpp(self, gguf: Path) -> Decoder:
        return LlamaCppDecoder(gguf, self.context, self.made[0].vocabulary, self.threads)

    @property
    def rounded(self) -> int:
        """Number of products whose rows onnxruntime rounds to int8, and no program of qglow does."""
        # Imported here, so that names of qglow alone load no library that reads files.
        from qglow.importer.other_runtimes import rounded_products

        return 0 if isinstance(self.model, QuantizedModel) else rounded_products(file_place(self.model))

    @property
    def _dimensions(self) -> dict[str, Sequence[Dimension] | None]:
        """Dimensions of the inputs, with as many places as a cache of a sliding window has to have."""
        from qglow.importer.other_runtimes import places_of_windows

        windows = places_of_windows(file_place(self.model))
        return {
            name: (*dims[:_PLACES], windows[name], *dims[_PLACES + 1 :]) if dims and name in windows else dims
            for name, dims in self.model.dimensions.items()
        }

    @property
    def _states(self) -> dict[str, str]:
        """States that the model's file has: programs may have others beside them."""
        return {name: self.made[0].states[name] for name in self.roles.states}

    def _feeds(
        self, tokens: Sequence[int], past: int, kinds: Mapping[str, np.dtype[np.generic]]
    ) -> dict[str, Array]:
        arrays = self.roles.arrays(tokens, past, kinds)
        return arrays if self.chosen is None else {**arrays, self.chosen: np.array([True])}


def file_place(model: Model | QuantizedModel) -> ModelPlace:
    """The file of a model, of a quantized one that it was made of."""
    return source_place(model._parts) if isinstance(model, QuantizedModel) else model._opened.place
