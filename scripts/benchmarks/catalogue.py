"""The benchmarks by name. None is imported before it is chosen: some need tools that others do not."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from scripts.benchmarks.frame import Benchmark

PROGRAM = "python -m scripts.benchmarks"
ZOO = "QGLOW_ZOO"
IDLE = "an idle machine"
WILD = "QGLOW_WILD"
BENCH, IMAGES = "extra bench", "extra images"


@dataclass(frozen=True)
class Entry:
    """A benchmark: its name, and what it shows and needs, each as a part of one line.

    needs: without QGLOW_ZOO, the folder of models and labelled data, most run with `--models digits`.
    """

    name: str
    summary: str
    needs: tuple[str, ...] = ()

    def load(self) -> Benchmark:
        """Import its module, which is called as it is, with underscores."""
        module = importlib.import_module(f"scripts.benchmarks.measurements.{self.name.replace('-', '_')}")
        benchmark: Benchmark = module.BENCHMARK
        return benchmark


ENTRIES = (
    Entry("accuracy", "accuracy beside other quantization tools", (ZOO, "17 GB of memory", BENCH)),
    Entry("defaults", "default settings beside plain methods and other tools", (ZOO, BENCH)),
    Entry("repairs", "what repair costs: time of quantizing and of a call, int8 multiply-adds", (ZOO, WILD)),
    Entry("wild", "other people's models with default settings: loading, agreement, int8, time", (WILD,)),
    Entry("exports", "models as PyTorch exports them, with default settings"),
    Entry("tasks", "mAP, F1, PSNR and mIoU of models that top-1 does not measure", (ZOO, IMAGES)),
    Entry("agreement", "bits on all instruction sets, and agreement with onnxruntime", (ZOO,)),
    Entry("options", "what single options of quantization make of the accuracy", (ZOO,)),
    Entry("int16", "accuracy and time of int16 activations beside int8", (ZOO, IDLE)),
    Entry("gallery", "the plots and reports of the front page", (ZOO, WILD, IDLE, IMAGES)),
    Entry("speed", "latency beside onnxruntime and OpenVINO", (ZOO, IDLE, BENCH)),
    Entry("isas", "latency on every instruction set beside OpenVINO", (IDLE, BENCH)),
    Entry("targets", "bundles for other processors: bits, instructions and sizes", ("emulators",)),
    Entry("larger-targets", "the same of larger models, where they fit", (ZOO, "emulators")),
    Entry("scaling", "latency by threads and batch", (ZOO, IDLE)),
    Entry("lengths", "time of one program for all lengths beside one for each length", (IDLE,)),
    Entry("encoders", "latency of an encoder of texts beside onnxruntime and OpenVINO", (IDLE, BENCH)),
    Entry("batches", "time of one program for all batches beside one for each batch", (ZOO, IDLE)),
    Entry("kernels", "where the time of an int8 program goes", (IDLE,)),
    Entry("half", "time of matrix products by weights of 16 bits", (IDLE,)),
    Entry("weights", "a language model with weights of 8, 4 and 2 bits", (ZOO,)),
    Entry("roundings", "the same with weights rounded by gptq, awq and both", (ZOO,)),
    Entry("large", "memory and time of a language model of a billion parameters in 4 bits"),
    Entry("blocks", "time of matrix products by weights in blocks beside onnxruntime", (IDLE,)),
    Entry("experts", "time of a mixture of experts with weights in blocks beside onnxruntime", (IDLE,)),
    Entry("products", "the same products beside onnxruntime and OpenVINO, with all formats", (IDLE, BENCH)),
    Entry("attention", "attention as one instruction beside its products", (IDLE,)),
    Entry("limits", "matrix products beside the read bandwidth and the int8 peak", (IDLE,)),
    Entry("decoding", "tokens per second of a language model with its cache, beside onnxruntime", (IDLE,)),
    Entry("compile", "time of quantizing and loading, memory of a loaded program", (ZOO, IDLE)),
    Entry("growth", "cost of profiling, quantizing and compiling by the number of nodes"),
    Entry("profiling", "time of profiling beside plain inference", (ZOO, IDLE)),
    Entry("compare-revisions", "bits and speed of two checkouts of qglow", (ZOO, IDLE)),
    Entry("memory", "peak memory of profiling few and many samples", (ZOO, IMAGES)),
    Entry("operators", "the ONNX operators that can be imported"),
    Entry("tables", "where each measured table stands in the documentation"),
    Entry("networks", "write the networks with drawn weights into a folder"),
)
