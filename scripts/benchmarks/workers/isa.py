"""A quantized model on one instruction set, in qglow or in OpenVINO, for the benchmark isas.

    python -m scripts.benchmarks.workers.isa PROGRAM ISA FOLDER

PROGRAM is qglow or openvino; ONEDNN_MAX_CPU_ISA, which is read when OpenVINO is loaded, holds the latter to
the instruction set. FOLDER has the quantized model.
"""

from __future__ import annotations

import sys

from qglow import load_quantized
from qglow.report.bench import Contender
from qglow.report.contenders import of_executable, of_openvino, random_inputs
from scripts.benchmarks.workers.serving import burst, serve


class Program:
    """A program that is made when it is asked for, so that what fails then is an answer."""

    def __init__(self, program: str, isa: str, folder: str) -> None:
        self._program, self._isa, self._folder = program, isa, folder
        self._call: Contender | None = None

    def build(self) -> None:
        """Load and compile the model."""
        model = load_quantized(self._folder)
        inputs = random_inputs(model.inputs)
        if self._program == "openvino":
            self._call = of_openvino(model.qdq_bytes(bound_shapes=True), inputs)
        else:
            self._call = of_executable(model.compile(isa=self._isa, threads=1), inputs)

    def turn(self, repeats: int) -> float:
        """Milliseconds of a call, of `repeats` in a row."""
        assert self._call is not None
        return burst(self._call, repeats)


if __name__ == "__main__":
    served = Program(*sys.argv[1:])
    serve({"build": served.build, "turn": served.turn})
