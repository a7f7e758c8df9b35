"""Tokens per second of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from qglow.core.model_place import file_or_bytes
from qglow.core.progress import Progress, start
from qglow.core.types import Array
from qglow.generation import Generator, Roles, find_roles
from qglow.report.decoding import Decoder, DecodingResult, OnnxruntimeDecoder, measure_decoding
from qglow.report.decoding_rivals import LlamaCppDecoder, OpenvinoDecoder, check_llama_cpp
from qglow.report.openvino_model import installed_openvino
from qglow.report.parts import float_model, source_place
from qglow.runtime.cores import choose_threads
from qglow.toolchain.undecided import open_model


@taking(DecodingOptions)
def bench_decoding(
    model: Model | QuantizedModel,
    states: Mapping[str, str] | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[DecodingKeywords],
) -> DecodingResult:
    """Measure tokens per second of a causal language model with a cache, in qglow and onnxruntime, in turns.

    Each program reads `prefill` tokens and then `decode` others one by one, `texts` times. A quantized model
    is measured beside its float one; onnxruntime runs the model's own file, and reads the first tokens in one
    call, with its cache in float. OpenVINO does the same with `openvino`, and llama.cpp with the file `gguf`,
    whose vocabulary must be the model's and whose weights are as that file has them; both keep their caches
    in float32. Where OpenVINO refuses the file, as it does one with MatMulNBits, the result says so and has
    the others. states, `cache`: as for `load_generator`. Raises what that does, UsageError for a model
    without a cache and where a program is asked for that is not installed, and ModelError or InputFileError
    where onnxruntime or llama.cpp refuses its file.
    """
    prefill, decode, texts = options["prefill"], options["decode"], options["texts"]
    for name, number in (("prefill", prefill), ("decode", decode), ("texts", texts)):
        if number < 1:
            raise UsageError(f"{name} is {number}, it must be at least 1", field=name)
    threads = choose_threads(options["threads"])
    model, chosen = reading_cache(model), branch_of(model)
    roles = find_roles(model.dimensions)
    if roles.source:
        raise UsageError(
            f"input '{roles.source[0]}' is of what an encoder gives: decoders without one are measured alone"
        )
    if not roles.states or roles.new is None:
        raise UsageError("the model has no cache, inputs and outputs of keys and values, to decode with")
    context = max(prefill + decode, LEAST_PIECE)
    made: list[Generator] = []

    def feeds(
        tokens: Sequence[int], past: int, kinds: Mapping[str, np.dtype[np.generic]]
    ) -> dict[str, Array]:
        arrays = roles.arrays(tokens, past, kinds)
        return arrays if chosen is None else {**arrays, chosen: np.array([True])}

    def ready(source: Model | QuantizedModel) -> Generator:
        made.append(
            load_generator(
                source,
                states,
                context=context,
                piece=options["piece"],
                cache=options["cache"],
                isa=options["isa"],
                threads=threads,
            )
        )
        return made[-1]

    programs: dict[str, Callable[[], Decoder]] = {"qglow": lambda: ready(model)}
    place = source_place(model._parts) if isinstance(model, QuantizedModel) else model._opened.place
    original = float_model(model._parts) if isinstance(model, QuantizedModel) else None
    if original is not None and not original.is_quantized:
        kind = "weights as given" if original.graph.has_blocks else "float32"
        programs = {
            "qglow quantized": programs["qglow"],
            f"qglow {kind}": lambda: ready(Model(open_model(place))),
        }
    programs["onnxruntime"] = lambda: OnnxruntimeDecoder(
        file_or_bytes(place), _of_file(made[0].states, roles), made[0].scores, feeds, threads
    )

    if options["openvino"]:
        installed_openvino()
        programs["OpenVINO"] = lambda: OpenvinoDecoder(
            file_or_bytes(place), _of_file(made[0].states, roles), made[0].scores, feeds, threads
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


def _of_file(states: Mapping[str, str], roles: Roles) -> dict[str, str]:
    """States that the model's file has: programs may have others beside them."""
    return {name: states[name] for name in roles.states}
