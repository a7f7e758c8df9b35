"""Tokens per second of language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from qglow.api.decoder_programs import DecoderPrograms, EncoderSource
from qglow.api.generation import LEAST_PIECE
from qglow.api.keywords import DecodingKeywords
from qglow.api.model import Model
from qglow.api.options import DecodingOptions
from qglow.api.quantized import QuantizedModel
from qglow.api.sources import branch_of, reading_cache
from qglow.core.errors import UsageError
from qglow.core.keywords import taking
from qglow.core.progress import Progress, start
from qglow.generation import Roles, find_roles
from qglow.report.decoding import DecodingResult, measure_decoding
from qglow.runtime.cores import choose_threads
from qglow.toolchain.samples import Data


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
        source = EncoderSource.of(encoder, first, data, options["isa"], threads)
        prefill = prefill if source.places is None else source.places
    _check_decodes(roles, source is not None)
    # An answer begins with a token that is none of the others; programs hold at least so many before one.
    least = LEAST_PIECE if source is None and not roles.takes_one else LEAST_PIECE + 1
    programs = DecoderPrograms(
        model,
        roles,
        chosen,
        source,
        states,
        prefill=prefill,
        decode=decode,
        context=max(prefill + decode if source is None else decode + 1, least),
        piece=options["piece"],
        cache=options["cache"],
        isa=options["isa"],
        threads=threads,
    )
    gguf = options["gguf"]
    result = measure_decoding(
        programs.makers(options["openvino"], None if gguf is None else Path(gguf)),
        programs.drawn,
        prefill,
        texts,
        threads=threads,
        optional=("OpenVINO",),
        advance=start(progress, texts),
    )
    return replace(result, rounded=programs.rounded)


def _check_decodes(roles: Roles, has_encoder: bool) -> None:
    """Raise UsageError for a model that is no decoder with a cache, or one that lacks its encoder."""
    if roles.source and not has_encoder:
        raise UsageError(
            f"input '{roles.source[0]}' is of what an encoder gives: name that model as `encoder`",
            field="encoder",
        )
    if not roles.states or roles.is_fixed:
        raise UsageError("the model has no cache, inputs and outputs of keys and values, to decode with")


def _check_others(has_encoder: bool, has_data: bool, openvino: bool, gguf: object) -> None:
    """Raise UsageError for data that no encoder reads, and for rivals that take no encoder."""
    if has_data and not has_encoder:
        raise UsageError("data is what an encoder reads: name one as `encoder`", field="data")
    if has_encoder and (openvino or gguf is not None):
        raise UsageError("decoders with an encoder are timed beside onnxruntime alone")
