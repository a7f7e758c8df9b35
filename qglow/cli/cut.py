"""qglow cut: a part of an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.api.options import MODEL, OUTPUT, CutOptions
from qglow.cli.output import say
from qglow.core.options import Writes, option

EXAMPLES = ("qglow cut detector.onnx --outputs boxes --outputs scores -o detector.part.onnx",)


@dataclass(frozen=True, kw_only=True)
class CutFlags(CutOptions):
    """A model, where it is cut, and where the part goes."""

    model: Path = option(help="The ONNX model", argument=True, metavar="MODEL", group=MODEL)
    output: Path | None = option(
        None,
        "The ONNX file to write [default: MODEL's name with .part.onnx]",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def cut(what: CutFlags) -> None:
    """Write a part of an ONNX model as a model of its own, from some of its tensors to others.

    A detector may end before its NMS, whose number of results data decides.
    """
    from qglow.api import cut_model

    output = what.output or Path(f"{what.model.stem}.part.onnx")
    cut_model(what.model, output, inputs=what.inputs, outputs=what.outputs)
    say(f"{output}")
