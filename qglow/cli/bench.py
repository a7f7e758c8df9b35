"""qglow bench: latency against onnxruntime on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import (
    CACHE,
    DECODE,
    GGUF,
    MEASURE,
    OUTPUT,
    PIECE,
    PREFILL,
    TEXTS,
    RunOptions,
    TurnOptions,
)
from qglow.cli.encoders import EncoderModelOptions, open_encoder, open_first
from qglow.cli.options import STATES, MeasuredOptions, parse_states
from qglow.cli.output import say, show, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import Writes, declare, option

if TYPE_CHECKING:
    from qglow.api import Model, QuantizedModel

EXAMPLES = (
    "qglow bench model.quantized --threads 1",
    "qglow bench llama.onnx --prefill 128 --decode 64",
    "qglow bench decoder_model_merged.onnx --encoder encoder_model.onnx --prefill 128",
)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(TurnOptions, EncoderModelOptions):
    """Options of what is timed, and where the times go."""

    prefill: int | None = declare(PREFILL, None)
    decode: int | None = declare(DECODE, None)
    texts: int | None = declare(TEXTS, None)
    gguf: Path | None = declare(GGUF, None)
    piece: int | None = declare(PIECE, None)
    cache: str | None = declare(CACHE, None)
    states: Sequence[str] = declare(STATES, ())
    data: str | None = option(
        None,
        "Samples: the first are the inputs [default: random ones], and what an encoder of no text reads",
        group=MEASURE,
        metavar="PATH",
        reads=True,
    )

    layers: bool = option(False, "Time every node too, in qglow and onnxruntime", group=MEASURE)
    output: Path | None = option(
        None,
        "Write the times, as JSON",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def bench(model: MeasuredOptions, running: RunOptions, measure: BenchOptions) -> None:
    """Measure a model's latency against onnxruntime.

    qglow and onnxruntime run in turns, in float32 and int8, with the same number of threads.

    A quantized directory, or an ONNX model with --profile, is timed in float32 and int8; an ONNX model
    alone in float32; one that is quantized already in int8, against onnxruntime on the same file.
    With --prefill or --decode: tokens per second of a language model with a cache, and memory;
    with --encoder, of what an encoder reads and its decoder adds.
    """
    from qglow.api import QuantizedModel, save_timings
    from qglow.api import bench as measure_latency
    from qglow.api.evaluation import bench_nodes
    from qglow.report.bench import bench_section
    from qglow.report.node_times import node_section

    decodes = measure.prefill is not None or measure.decode is not None
    _refuse_others(measure, decodes)
    loaded = open_graph_target(
        model.target, model.shapes, model.profile, model.recipe, model.model, values=model.values
    )
    if decodes:
        _decode(loaded, model.target, running, measure)
        return
    if measure.layers and not isinstance(loaded, QuantizedModel):
        raise UsageError(
            "--layers compares nodes of an int8 model, a quantized directory or MODEL with --profile; "
            "for a float one: qglow inspect --stage kernels --measure"
        )
    with showing_progress("measuring", "turns") as progress:
        result = measure_latency(
            loaded,
            measure.data,
            isa=running.isa,
            alternations=measure.alternations,
            openvino=measure.openvino,
            threads=running.threads,
            progress=progress,
        )
    show(bench_section(result))
    if measure.layers and isinstance(loaded, QuantizedModel):
        show(node_section(bench_nodes(loaded, measure.data, isa=running.isa)))
    if measure.output is not None:
        save_timings(result, measure.output)
        say(f"{measure.output}: timings")


def _refuse_others(measure: BenchOptions, decodes: bool) -> None:
    """Refuse options of latencies beside those of decoding, and the other way round."""
    latency = {"--layers": measure.layers}
    decoding = {
        "--gguf": measure.gguf is not None,
        "--texts": measure.texts is not None,
        "--piece": measure.piece is not None,
        "--cache": measure.cache is not None,
        "--state": bool(measure.states),
        "--encoder": measure.encoder is not None,
        "--first": measure.first is not None,
    }
    for flag, given in (latency if decodes else decoding).items():
        if given:
            raise UsageError(f"{flag} {'does not go' if decodes else 'goes'} with --prefill and --decode")


def _decode(loaded: Model | QuantizedModel, target: Path, running: RunOptions, measure: BenchOptions) -> None:
    """Measure tokens per second."""
    if measure.data is not None and measure.prefill is not None:
        raise UsageError("--prefill counts tokens, and an encoder reads --data: give --decode alone")
    from qglow.api import bench_decoding, save_timings
    from qglow.report.decoding import decoding_section

    names = ("prefill", "decode", "texts", "piece", "cache", "gguf")
    given = {name: getattr(measure, name) for name in names if getattr(measure, name) is not None}
    with showing_progress("measuring", "texts") as progress:
        result = bench_decoding(
            loaded,
            parse_states(measure.states) or None,
            encoder=open_encoder(measure),
            first=open_first(measure, target),
            data=measure.data,
            isa=running.isa,
            threads=running.threads,
            openvino=measure.openvino,
            progress=progress,
            **given,
        )
    show(decoding_section(result))
    if measure.output is not None:
        save_timings(result, measure.output)
        say(f"{measure.output}: timings")
