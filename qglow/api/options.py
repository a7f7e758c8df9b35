"""Options of the Python functions, each declared once; the commands of the same name take the same ones.

The typed keywords (`qglow.api.keywords`), the signatures (`taking`) and the parameters of the command line
derive from these declarations. A name that a class has beside its own options comes from the classes under
it, in their order from right to left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow.core.options import Bounds, Option, Writes, declare, option
from qglow.recipe.data import KEPT, MOST_KEPT
from qglow.recipe.schema import ACCURACY, ROUNDING
from qglow.targets.rooms import callable_names

MODEL = "Model"
CALIBRATION = "Calibration samples"
DATA = "Data"
LIMITS = "Limits"
MEASURE = "Measuring"
RUN = "Running"
OUTPUT = "Output"

PIECE = Option(
    "Most given tokens that a call takes",
    more="Programs are compiled for one token, and for pieces of what is given. Results do not depend on it.",
    group=MODEL,
    metavar="N",
)
CACHE = Option(
    "Type of the cache of keys and values",
    more="int8 gives each head of a token a scale of its own; its bits do not depend on how a text is read.",
    choices=("float32", "int8"),
    group=MODEL,
    metavar="TYPE",
)
PREFILL = Option(
    "Tokens of a text that a language model reads before it adds others", group=MEASURE, metavar="N"
)
DECODE = Option("Tokens that a language model adds one by one", group=MEASURE, metavar="N")
TEXTS = Option("Texts that each program reads and goes on from", group=MEASURE, metavar="N")
OPENVINO = Option("Time OpenVINO too (pip install 'qglow[bench]')", group=MEASURE)
GGUF = Option(
    "Time llama.cpp on this file of the model too (pip install llama-cpp-python)",
    group=MEASURE,
    metavar="FILE",
)


@dataclass(frozen=True, kw_only=True)
class IsaOptions:
    """Target that code is made for."""

    isa: str | None = option(
        None,
        f"Target: {', '.join(callable_names())}; qglow targets lists all",
        more="Target of the compiled code. The default is QGLOW_ISA, else the best "
        "that the processor has. int8 results are the same bits on all of them.",
        group=RUN,
        metavar="NAME",
        flags=("--isa", "--target"),
    )


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(IsaOptions):
    """Options of a bundle."""

    max_arena: str | None = option(
        None,
        "Most memory that a bundle may write, such as 64K",
        more="Where the usual program needs more, slower forms with the same bits are tried, among them "
        "images in strips of rows; what still needs more is refused.",
        group=LIMITS,
        metavar="SIZE",
    )
    max_flash: str | None = option(
        None,
        "Most bytes of code and weights of a bundle, such as 256K",
        more="Where the usual code needs more, smaller code is tried; what still needs more is refused.",
        group=LIMITS,
        metavar="SIZE",
    )
    threads: int = option(
        1,
        "Threads of the calling program that a bundle has parts for",
        more="The bundle itself starts none: it tells the steps of a run and their parts, which threads of "
        "the program may take. Results are the same bytes.",
        group=RUN,
        metavar="N",
        bounds=Bounds(1, 256),
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(IsaOptions):
    """Options of how programs run."""

    threads: int | None = option(
        None,
        "Threads that share a call [default: the physical cores]",
        more="The default is QGLOW_THREADS, else the physical cores that the process may use. Results are "
        "the same for every number.",
        group=RUN,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class PieceOptions(RunOptions):
    """Options of how a text is read."""

    piece: int = declare(PIECE, 64)
    cache: str = declare(CACHE, "float32")


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(PieceOptions):
    """Options of a language model that goes on from tokens."""

    context: int = option(512, "Most tokens, those that are given among them", group=MODEL, metavar="N")
    source: int = option(
        512,
        "Most tokens of a text that an encoder reads",
        more="An encoder of other sources, which the file gives a fixed number of places, has that number.",
        group=MODEL,
        metavar="N",
        bounds=Bounds(1),
    )


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(PieceOptions):
    """Options of `bench_decoding`."""

    prefill: int = declare(PREFILL, 128)
    decode: int = declare(DECODE, 64)
    texts: int = declare(TEXTS, 5)
    openvino: bool = declare(OPENVINO, False)
    gguf: Path | None = declare(GGUF, None)


@dataclass(frozen=True, kw_only=True)
class CustomOperatorOptions:
    """Libraries of operators that onnxruntime does not have."""

    custom_ops: Sequence[Path] = option(
        (),
        "Library of custom operators to load",
        more="A shared library with the function RegisterCustomOps, as onnxruntime loads it. Nodes with its "
        "operators run in onnxruntime. Models and artefacts never bring one: whoever loads them names it. It "
        "stays loaded as long as the process runs.",
        group=MODEL,
        metavar="LIB",
        typed=list[Path],
        keyword="str | Path | Sequence[str | Path]",
    )


@dataclass(frozen=True, kw_only=True)
class TrustOptions(RunOptions):
    """Options of how a program that is read from a file runs."""

    trust: bool = option(False, "Run the machine code in the file instead of compiling its text", group=RUN)


@dataclass(frozen=True, kw_only=True)
class GraphPassOptions:
    """Passes that make the graph of a model."""

    passes: str | None = option(
        None, "Graph passes to run instead of the usual ones; '' for none", group=OUTPUT, metavar="PASSES"
    )


@dataclass(frozen=True, kw_only=True)
class NativeOptions:
    """Treatment of nodes that qglow does not know."""

    native: bool = option(
        False,
        "Refuse a node that would have to run in onnxruntime",
        more="A node whose operator or type qglow does not know runs in onnxruntime, in float, while "
        "everything around it is quantized and compiled. With this option it is an error instead.",
        group=MODEL,
    )


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """Tensors between which a model is cut."""

    inputs: Sequence[str] = option(
        (),
        "Tensor that becomes an input [default: the model's inputs]",
        group=MODEL,
        metavar="NAME",
        typed=list[str],
    )
    outputs: Sequence[str] = option(
        (),
        "Tensor that becomes an output [default: the model's outputs]",
        group=MODEL,
        metavar="NAME",
        typed=list[str],
    )


@dataclass(frozen=True, kw_only=True)
class LoadOptions(GraphPassOptions, NativeOptions, CustomOperatorOptions):
    """Options of how a model is read."""


@dataclass(frozen=True, kw_only=True)
class ProgramFileOptions(TrustOptions, CustomOperatorOptions):
    """Options of `load`."""


@dataclass(frozen=True, kw_only=True)
class ListingOptions:
    """Options of what the text of a model has."""

    measure: bool = option(
        False, "Times of the kernels on this machine, and the share of its peak", group=OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Choice of samples."""

    select: str | None = option(
        None, "Samples to use, as a Python slice: 0:100 or ::10", group=DATA, metavar="SLICE"
    )
    samples: int | None = option(
        None, "Use only the first N of the selected samples", group=DATA, metavar="N"
    )


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Labels of samples."""

    labels: Path | None = option(
        None, "Labels: labels.csv, an .npy of classes, or what a metric reads", group=DATA, metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(SelectionOptions, LabelOptions):
    """Choice of samples that have labels."""


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Measure of accuracy."""

    metric: str | None = option(
        None,
        "Metric to measure too: map50, perplexity, ... or package.module:function",
        group=MEASURE,
        metavar="NAME",
        keyword="str | Callable[..., float]",
    )


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """Place where independent parts of the work run."""

    scheduler: str | None = option(
        None,
        "Dask scheduler whose workers do the work",
        more="An address such as tcp://10.0.0.1:8786 (the extra cluster). Parts of the work run there; "
        "results are the same bytes. Samples are sent to the workers, which need no files.",
        group=RUN,
        metavar="ADDRESS",
    )


@dataclass(frozen=True, kw_only=True)
class ProfilerOptions(RunOptions, SchedulerOptions):
    """Options of how a model runs over calibration data, and what is kept of it."""

    batch_size: int | None = option(
        None, "Samples per run; changes speed and memory, not the result", group=RUN, metavar="N"
    )
    engine: str = option(
        "compiled", "Engine that runs the model: compiled or interpreter (slow)", group=RUN, metavar="NAME"
    )
    keep_samples: int = option(
        KEPT,
        "Samples to keep beside the profile, as data; 0 for private data",
        more="They are the inputs themselves, as the model takes them, in NAME.samples.npz beside "
        "NAME.yaml, 16 MB at most. qglow quantize measures its result on them. Whoever gets that file gets "
        "these samples.",
        group=OUTPUT,
        metavar="N",
        bounds=Bounds(0, MOST_KEPT),
        expected=f"a number from 0 to {MOST_KEPT}",
    )


@dataclass(frozen=True, kw_only=True)
class EffortOptions(SchedulerOptions):
    """Effort that is spent on accuracy."""

    effort: str = option(
        "fast",
        "Work spent on accuracy",
        more="balanced and best measure for every value which calibration costs the outputs least, and round "
        "weights by gptq; best takes more samples and candidates. Both look at the calibration samples.",
        group=ACCURACY,
        metavar="NAME",
        choices=("fast", "balanced", "best"),
    )


@dataclass(frozen=True, kw_only=True)
class RepairOptions(EffortOptions):
    """Repair, and the file that long work goes on from."""

    repair: bool = option(
        True,
        "Choose calibrations by the outputs",
        group=ACCURACY,
        negative="--no-repair",
        more=(
            "Samples that the profile keeps tell. Each change of the recipe is printed with what it won, and "
            "the recipe that is saved has it. A calibration that is stated, and rules, stay."
        ),
    )
    rounding_state: Path | None = option(
        None,
        "File to keep finished layers in and resume from",
        group=ROUNDING,
        metavar="FILE",
        writes=Writes.STATE,
    )


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """Options of what is timed."""

    alternations: int = option(50, "Turns of each program", group=MEASURE, metavar="N")
    openvino: bool = declare(OPENVINO, False)


@dataclass(frozen=True, kw_only=True)
class ResamplingOptions:
    """Options of the test whether there are enough samples."""

    tolerance: float = option(
        0.1, "Largest relative change of a scale that counts as settled", group=MEASURE, metavar="SHARE"
    )
    resamples: int = option(50, "Number of bootstrap resamples for the intervals", group=MEASURE, metavar="N")
    seed: int = option(0, "Random seed of the resamples", group=MEASURE, metavar="N")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(MetricOptions):
    """Options of how a search measures, and how long it goes on."""

    time_limit: float | None = option(
        None, "Seconds after which no model is started", group=MEASURE, metavar="SECONDS"
    )
    state: Path | None = option(
        None,
        "File to keep results in and resume from [default: OUTPUT.state.json]",
        group=OUTPUT,
        metavar="FILE",
        writes=Writes.STATE,
    )


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """Options of which models of a baseline are checked, and whether its file is written."""

    entries: Sequence[str] = option(
        (), "Check only this model", group=MODEL, metavar="NAME", flags=("--entry",), typed=list[str]
    )
    update: bool = option(False, "Write the figures into the file; nothing is a regression then", group=MODEL)


@dataclass(frozen=True, kw_only=True)
class StageTextOptions(ListingOptions, IsaOptions):
    """Options of `Model.text`."""


@dataclass(frozen=True, kw_only=True)
class SampledOptions(RunOptions, SelectionOptions):
    """Options of `compare_layers`, `diagnose` and `profile_drift`."""


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ProfilerOptions, SelectionOptions):
    """Options of `Model.profile`."""


@dataclass(frozen=True, kw_only=True)
class Int8Options(RunOptions, RepairOptions):
    """Options of `Model.quantize` beside the choices of a recipe."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions, MetricOptions, LabelledOptions):
    """Options of `compare`."""


@dataclass(frozen=True, kw_only=True)
class LatencyOptions(TurnOptions, RunOptions):
    """Options of `bench`."""


@dataclass(frozen=True, kw_only=True)
class SampleCountOptions(RunOptions, ResamplingOptions, SelectionOptions):
    """Options of `calibration_sufficiency`."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions(RunOptions, SearchOptions, LabelledOptions, EffortOptions):
    """Options of `tune`."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(RunOptions, EntryOptions):
    """Options of `check_baseline`."""
