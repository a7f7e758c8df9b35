"""The options of functions as typed keywords. scripts/write_keywords.py writes this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from qglow.recipe.keywords import RecipeChoices


class IsaKeywords(TypedDict, total=False):
    """Target that code is made for."""

    isa: str | None
    """Target: generic, avx2, avxvnni, avx512vnni, avx512vbmi, amx, aarch64, aarch64-dotprod, aarch64-i8mm,
    reference; qglow targets lists all. Target of the compiled code. The default is QGLOW_ISA, else the best
    that the processor has. int8 results are the same bits on all of them."""


class DeviceKeywords(IsaKeywords, total=False):
    """Options of a bundle."""

    max_arena: str | None
    """Most memory that a bundle may write, such as 64K. Where the usual program needs more, slower forms with
    the same bits are tried, among them images in strips of rows; what still needs more is refused."""

    max_flash: str | None
    """Most bytes of code and weights of a bundle, such as 256K. Where the usual code needs more, smaller code
    is tried; what still needs more is refused."""

    threads: int
    """Threads of the calling program that a bundle has parts for. The bundle itself starts none: it tells the
    steps of a run and their parts, which threads of the program may take. Results are the same bytes.
    Default: 1."""


class RunKeywords(IsaKeywords, total=False):
    """Options of how programs run."""

    threads: int | None
    """Threads that share a call [default: the physical cores]. The default is QGLOW_THREADS, else the
    physical cores that the process may use. Results are the same for every number."""


class PieceKeywords(RunKeywords, total=False):
    """Options of how a text is read."""

    piece: int
    """Most given tokens that a call takes. Programs are compiled for one token, and for pieces of what is
    given. Results do not depend on it. Default: 64."""

    cache: str
    """Type of the cache of keys and values: float32, int8. int8 gives each head of a token a scale of its
    own; its bits do not depend on how a text is read. Default: 'float32'."""


class GenerationKeywords(PieceKeywords, total=False):
    """Options of a language model that goes on from tokens."""

    context: int
    """Most tokens, those that are given among them. Default: 512."""

    source: int
    """Most tokens of a text that an encoder reads. An encoder of other sources, which the file gives a fixed
    number of places, has that number. Default: 512."""


class DecodingKeywords(PieceKeywords, total=False):
    """Options of `bench_decoding`."""

    prefill: int
    """Tokens of a text that a language model reads before it adds others. Default: 128."""

    decode: int
    """Tokens that a language model adds one by one. Default: 64."""

    texts: int
    """Texts that each program reads and goes on from. Default: 5."""

    openvino: bool
    """Time OpenVINO too (pip install 'qglow[bench]'). Default: False."""

    gguf: str | Path | None
    """Time llama.cpp on this file of the model too (pip install llama-cpp-python)."""


class CustomOperatorKeywords(TypedDict, total=False):
    """Libraries of operators that onnxruntime does not have."""

    custom_ops: str | Path | Sequence[str | Path]
    """Library of custom operators to load. A shared library with the function RegisterCustomOps, as
    onnxruntime loads it. Nodes with its operators run in onnxruntime. Models and artefacts never bring one:
    whoever loads them names it. It stays loaded as long as the process runs. Default: ()."""


class TrustKeywords(RunKeywords, total=False):
    """Options of how a program that is read from a file runs."""

    trust: bool
    """Run the machine code in the file instead of compiling its text. Default: False."""


class GraphPassKeywords(TypedDict, total=False):
    """Passes that make the graph of a model."""

    passes: str | None
    """Graph passes to run instead of the usual ones; '' for none."""


class NativeKeywords(TypedDict, total=False):
    """Treatment of nodes that qglow does not know."""

    native: bool
    """Refuse a node that would have to run in onnxruntime. A node whose operator or type qglow does not know
    runs in onnxruntime, in float, while everything around it is quantized and compiled. With this option it
    is an error instead. Default: False."""


class CutKeywords(TypedDict, total=False):
    """Tensors between which a model is cut."""

    inputs: Sequence[str]
    """Tensor that becomes an input [default: the model's inputs]. Default: ()."""

    outputs: Sequence[str]
    """Tensor that becomes an output [default: the model's outputs]. Default: ()."""


class LoadKeywords(GraphPassKeywords, NativeKeywords, CustomOperatorKeywords, total=False):
    """Options of how a model is read."""


class ProgramFileKeywords(TrustKeywords, CustomOperatorKeywords, total=False):
    """Options of `load`."""


class ListingKeywords(TypedDict, total=False):
    """Options of what the text of a model has."""

    measure: bool
    """Times of the kernels on this machine, and the share of its peak. Default: False."""


class SelectionKeywords(TypedDict, total=False):
    """Choice of samples."""

    select: str | None
    """Samples to use, as a Python slice: 0:100 or ::10."""

    samples: int | None
    """Use only the first N of the selected samples."""


class LabelKeywords(TypedDict, total=False):
    """Labels of samples."""

    labels: str | Path | None
    """Labels: labels.csv, an .npy of classes, or what a metric reads."""


class LabelledKeywords(SelectionKeywords, LabelKeywords, total=False):
    """Choice of samples that have labels."""


class MetricKeywords(TypedDict, total=False):
    """Measure of accuracy."""

    metric: str | Callable[..., float] | None
    """Metric to measure too: map50, perplexity, ... or package.module:function."""


class SchedulerKeywords(TypedDict, total=False):
    """Place where independent parts of the work run."""

    scheduler: str | None
    """Dask scheduler whose workers do the work. An address such as tcp://10.0.0.1:8786 (the extra cluster).
    Parts of the work run there; results are the same bytes. Samples are sent to the workers, which need no
    files."""


class ProfilerKeywords(RunKeywords, SchedulerKeywords, total=False):
    """Options of how a model runs over calibration data, and what is kept of it."""

    batch_size: int | None
    """Samples per run; changes speed and memory, not the result."""

    engine: str
    """Engine that runs the model: compiled or interpreter (slow). Default: 'compiled'."""

    keep_samples: int
    """Samples to keep beside the profile, as data; 0 for private data. They are the inputs themselves, as the
    model takes them, in NAME.samples.npz beside NAME.yaml, 16 MB at most. qglow quantize measures its result
    on them. Whoever gets that file gets these samples. Default: 32."""


class EffortKeywords(SchedulerKeywords, total=False):
    """Effort that is spent on accuracy."""

    effort: str
    """Work spent on accuracy: fast, balanced, best. balanced and best measure for every value which
    calibration costs the outputs least, and round weights by gptq; best takes more samples and candidates.
    Both look at the calibration samples. Default: 'fast'."""


class RepairKeywords(EffortKeywords, total=False):
    """Repair, and the file that long work goes on from."""

    repair: bool
    """Choose calibrations by the outputs. Samples that the profile keeps tell. Each change of the recipe is
    printed with what it won, and the recipe that is saved has it. A calibration that is stated, and rules,
    stay. Default: True."""

    rounding_state: str | Path | None
    """File to keep finished layers in and resume from."""


class TurnKeywords(TypedDict, total=False):
    """Options of what is timed."""

    alternations: int
    """Turns of each program. Default: 50."""

    openvino: bool
    """Time OpenVINO too (pip install 'qglow[bench]'). Default: False."""


class ResamplingKeywords(TypedDict, total=False):
    """Options of the test whether there are enough samples."""

    tolerance: float
    """Largest relative change of a scale that counts as settled. Default: 0.1."""

    resamples: int
    """Number of bootstrap resamples for the intervals. Default: 50."""

    seed: int
    """Random seed of the resamples. Default: 0."""


class SearchKeywords(MetricKeywords, total=False):
    """Options of how a search measures, and how long it goes on."""

    time_limit: float | None
    """Seconds after which no model is started."""

    state: str | Path | None
    """File to keep results in and resume from [default: OUTPUT.state.json]."""


class EntryKeywords(TypedDict, total=False):
    """Options of which models of a baseline are checked, and whether its file is written."""

    entries: Sequence[str]
    """Check only this model. Default: ()."""

    update: bool
    """Write the figures into the file; nothing is a regression then. Default: False."""


class StageTextKeywords(ListingKeywords, IsaKeywords, total=False):
    """Options of `Model.text`."""


class SampledKeywords(RunKeywords, SelectionKeywords, total=False):
    """Options of `compare_layers`, `diagnose` and `profile_drift`."""


class ProfileKeywords(ProfilerKeywords, SelectionKeywords, total=False):
    """Options of `Model.profile`."""


class Int8Keywords(RunKeywords, RepairKeywords, total=False):
    """Options of `Model.quantize` beside the choices of a recipe."""


class CompareKeywords(RunKeywords, MetricKeywords, LabelledKeywords, total=False):
    """Options of `compare`."""


class LatencyKeywords(TurnKeywords, RunKeywords, total=False):
    """Options of `bench`."""


class SampleCountKeywords(RunKeywords, ResamplingKeywords, SelectionKeywords, total=False):
    """Options of `calibration_sufficiency`."""


class TuneKeywords(RunKeywords, SearchKeywords, LabelledKeywords, EffortKeywords, total=False):
    """Options of `tune`."""


class CheckKeywords(RunKeywords, EntryKeywords, total=False):
    """Options of `check_baseline`."""


class QuantizeKeywords(Int8Keywords, RecipeChoices, total=False):
    """Options and choices of `Model.quantize`."""
