"""Tokens per second of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from qglow.api.generation import LEAST_PIECE, load_generator
from qglow.api.keywords import DecodingKeywords
from qglow.api.model import Model
from qglow.api.options import DecodingOptions
from qglow.api.quantized import QuantizedModel
from qglow.api.sources import branch_of, reading_cache
from qglow.core.errors import UsageError
from qglow.core.keywords import taking
from qglow.core.model_place import ModelPlace, file_or_bytes
from qglow.core.progress import Progress, start
from qglow.core.types import Array
from qglow.generation import EncoderReader, Generator, Roles, find_roles, like_named
from qglow.report.decoding import Decoder, DecodingResult, OnnxruntimeDecoder, SingleDecoder, measure_decoding
from qglow.report.decoding_rivals import LlamaCppDecoder, OpenvinoDecoder, check_llama_cpp
from qglow.report.encoded_decoding import (
    EncodedDecoder,
    EncodedFiles,
    EncodedNames,
    OnnxruntimeEncodedDecoder,
)
from qglow.report.openvino_model import installed_openvino
from qglow.report.parts import float_model, source_place
from qglow.runtime.cores import choose_threads
from qglow.toolchain.samples import Data
from qglow.toolchain.undecided import open_model


@taking(DecodingOptions)
def bench_decoding(
    model: Model | QuantizedModel,
    states: Mapping[str, str] | None = None,
    *,
    encoder: Model | QuantizedModel | None = None,
    first: Model | QuantizedModel | None = None,
    data: Data | None = None,
    progress: Progress | None = None,
    **options: Unpack[DecodingKeywords],
) -> DecodingResult:
    """Measure tokens per second of a causal language model with a cache, in qglow and onnxruntime, in turns.

    Each program reads `prefill` tokens and then `decode` others one by one, `texts` times. A quantized model
    is measured beside its float one; onnxruntime runs the model's own file, and reads the first tokens in one
    call, or one by one where the file fixes that, with its cache in float. OpenVINO does the same with
    `openvino`, and llama.cpp with the file `gguf`, whose vocabulary must be the model's and whose weights are
    as that file has them; both keep their caches in float32. Where OpenVINO refuses the file, as it does one
    with MatMulNBits, the result says so and has the others. states, `cache`: as for `load_generator`. Raises
    what that does, UsageError for a model without a cache and where a program is asked for that is not
    installed, and ModelError or InputFileError where onnxruntime or llama.cpp refuses its file.

    encoder, first: of a decoder with an encoder, as for `load_generator`. The encoder reads the `prefill`
    tokens, which takes the time of the first token too; onnxruntime computes that by the form without a
    cache. An encoder that reads no text, but sound or images, reads the first sample of `data` in place of
    tokens: `prefill` is then the number of places that it makes of it, whatever was given. UsageError for
    such an encoder without data, for data without an encoder, and for other rivals beside one.
    """
    prefill, decode, texts = options["prefill"], options["decode"], options["texts"]
    for name, number in (("prefill", prefill), ("decode", decode), ("texts", texts)):
        if number < 1:
            raise UsageError(f"{name} is {number}, it must be at least 1", field=name)
    threads = choose_threads(options["threads"])
    model, chosen = reading_cache(model), branch_of(model)
    roles = find_roles(model.dimensions)
    _check_others(encoder is not None, data is not None, options["openvino"], options["gguf"])
    source = None
    if encoder is not None:
        source = _Source.of(encoder, first, data, options["isa"], threads)
        prefill = prefill if source.places is None else source.places
    if roles.source and source is None:
        raise UsageError(
            f"input '{roles.source[0]}' is of what an encoder gives: name that model as `encoder`",
            field="encoder",
        )
    if not roles.states or roles.is_fixed:
        raise UsageError("the model has no cache, inputs and outputs of keys and values, to decode with")
    # An answer begins with a token that is none of the others; programs hold at least so many before one.
    least = LEAST_PIECE if source is None and not roles.takes_one else LEAST_PIECE + 1
    context = max(prefill + decode if source is None else decode + 1, least)
    made: list[Generator] = []

    def feeds(
        tokens: Sequence[int], past: int, kinds: Mapping[str, np.dtype[np.generic]]
    ) -> dict[str, Array]:
        arrays = roles.arrays(tokens, past, kinds)
        return arrays if chosen is None else {**arrays, chosen: np.array([True])}

    def ready(decoder: Model | QuantizedModel, beside: _Source | None) -> Decoder:
        made.append(
            load_generator(
                decoder,
                states,
                encoder=None if beside is None else beside.encoder,
                first=None if beside is None else beside.first,
                source=max(prefill, LEAST_PIECE),
                context=context,
                piece=options["piece"],
                cache=options["cache"],
                isa=options["isa"],
                threads=threads,
            )
        )
        return made[-1] if beside is None else EncodedDecoder(made[-1], beside.inputs)

    def rival(decoder: Decoder) -> Decoder:
        return SingleDecoder(decoder) if roles.takes_one else decoder

    programs: dict[str, Callable[[], Decoder]] = {"qglow": lambda: ready(model, source)}
    place = _place(model)
    original = float_model(model._parts) if isinstance(model, QuantizedModel) else None
    if original is not None and not original.is_quantized:
        kind = "weights as given" if original.graph.has_blocks else "float32"
        programs = {
            "qglow quantized": programs["qglow"],
            f"qglow {kind}": lambda: ready(
                Model(open_model(place)), None if source is None else source.in_float()
            ),
        }
    if source is None:
        programs["onnxruntime"] = lambda: rival(
            OnnxruntimeDecoder(
                file_or_bytes(place), _of_file(made[0].states, roles), made[0].scores, feeds, threads
            )
        )
    else:
        programs["onnxruntime"] = partial(_onnxruntime_beside, source, place, roles, chosen, made, threads)
    if options["openvino"]:
        installed_openvino()
        programs["OpenVINO"] = lambda: rival(
            OpenvinoDecoder(
                file_or_bytes(place), _of_file(made[0].states, roles), made[0].scores, feeds, threads
            )
        )
    gguf = options["gguf"]
    if gguf is not None:
        check_llama_cpp(Path(gguf))
        programs["llama.cpp"] = lambda: LlamaCppDecoder(Path(gguf), context, made[0].vocabulary, threads)

    def drawn() -> list[int]:
        random = np.random.default_rng(0)
        return [int(token) for token in random.integers(0, made[0].vocabulary, prefill + decode)]

    return measure_decoding(
        programs,
        drawn,
        prefill,
        texts,
        threads=threads,
        optional=("OpenVINO",),
        advance=start(progress, texts),
    )


def _check_others(has_encoder: bool, has_data: bool, openvino: bool, gguf: object) -> None:
    """Raise UsageError for data that no encoder reads, and for rivals that take no encoder."""
    if has_data and not has_encoder:
        raise UsageError("data is what an encoder reads: name one as `encoder`", field="data")
    if has_encoder and (openvino or gguf is not None):
        raise UsageError("decoders with an encoder are timed beside onnxruntime alone")


@dataclass(frozen=True)
class _Source:
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
    ) -> _Source:
        """Raises UsageError for an encoder of no tokens without data, and DataError for what does not fit."""
        if data is not None:
            reader = EncoderReader(encoder.compile(isa=isa, threads=threads), None, {})
            sample = next(iter(reader.samples(data, samples=1)), None)
            if sample is None:
                raise UsageError("data has no sample that the encoder could read", field="data")
            return _Source(encoder, first, None, sample[1], reader.places(sample[1]))
        try:
            return _Source(encoder, first, find_roles(encoder.dimensions))
        except UsageError as error:
            raise UsageError(
                f"the encoder reads no text: name samples for it as `data` ({error})", field="data"
            ) from error

    def in_float(self) -> _Source:
        """The same as the files of the models have it."""
        encoder, first = (
            Model(open_model(_place(m))) if isinstance(m, QuantizedModel) else m
            for m in (self.encoder, self.first)
        )
        assert encoder is not None
        return replace(self, encoder=encoder, first=first)


def _onnxruntime_beside(
    source: _Source, place: ModelPlace, roles: Roles, chosen: str | None, made: list[Generator], threads: int
) -> EncodedDecoder:
    """A decoder with its encoder in onnxruntime. Raises UsageError without the form that has no cache."""
    if source.first is None and chosen is None:
        raise UsageError(
            "onnxruntime needs the decoder's form without a cache: name it as `first`", field="first"
        )
    files = EncodedFiles(
        file_or_bytes(_place(source.encoder)),
        file_or_bytes(place if source.first is None else _place(source.first)),
        file_or_bytes(place),
    )
    of_first = () if source.first is None else find_roles(source.first.dimensions).source
    inputs = tuple(dict.fromkeys((*roles.source, *of_first)))
    names = EncodedNames(_of_file(made[0].states, roles), inputs, made[0].scores, chosen, like_named)
    feeds = None if source.roles is None else source.roles.arrays
    decoder = OnnxruntimeEncodedDecoder(files, names, feeds, roles.arrays, threads)
    return EncodedDecoder(decoder, source.inputs)


def _place(model: Model | QuantizedModel) -> ModelPlace:
    """The file of a model, of a quantized one that it was made of."""
    return source_place(model._parts) if isinstance(model, QuantizedModel) else model._opened.place


def _of_file(states: Mapping[str, str], roles: Roles) -> dict[str, str]:
    """States that the model's file has: programs may have others beside them."""
    return {name: states[name] for name in roles.states}
