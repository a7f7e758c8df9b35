"""qglow import-gguf: the language model of a GGUF file as an ONNX model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from qglow.api.gguf import TOKENIZER
from qglow.api.options import MODEL, OUTPUT
from qglow.cli.output import say
from qglow.core.options import Writes, option

EXAMPLES = ("qglow import-gguf llama.Q4_0.gguf -o llama.onnx",)


@dataclass(frozen=True, kw_only=True)
class ImportFlags:
    """A file, and where its model goes."""

    model: Path = option(help="The GGUF file", argument=True, metavar="MODEL", group=MODEL)
    output: Path | None = option(
        None,
        "The ONNX file to write [default: MODEL's name with .onnx]",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def import_gguf(what: ImportFlags) -> None:
    """Write the language model of a GGUF file as an ONNX model, with its weights exactly as they are stored.

    The result has keys and values of past tokens as inputs and outputs: `qglow generate` runs it, and so does
    onnxruntime. The file's tokenizer is written beside it, as tokenizer.json.
    """
    from qglow.api import import_gguf as write

    output = what.output or Path(f"{what.model.stem}.onnx")
    forms = write(what.model, output)
    tokenizer = forms.pop(TOKENIZER)
    say(f"{output}: {len(forms)} tensors")
    for form, count in Counter(forms.values()).most_common():
        say(f"  {count:>4}  {form}")
    say(f"{TOKENIZER}: {tokenizer}")
