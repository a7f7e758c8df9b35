"""One revision of qglow at work, for the benchmark compare-revisions; uses its public API only.

    python -m scripts.benchmarks.workers.revision CHECKOUT

imports the qglow of CHECKOUT, whatever this checkout has, and answers requests.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scripts.benchmarks.workers.serving import burst, serve

if TYPE_CHECKING:
    from qglow import Executable, Recipe


class Revision:
    """Builds one model after the other, and runs the last one."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._program: Executable | None = None
        self._call: Callable[[], None] | None = None

    def load(self, model: str) -> None:
        """Read a model, to find out whether that fails."""
        import qglow

        qglow.load_model(model)

    def build(
        self, name: str, model: str, data: str, folder: str, isa: str | None, threads: int
    ) -> dict[str, str]:
        """Quantize a model over an .npz file by the revision's own recipe for it, and compile it.

        Gives the SHA-256 of the exported QDQ model, by the name of its file.
        """
        import qglow

        loaded = qglow.load_model(model)
        quantized = loaded.quantize(loaded.profile(data), self._recipe(name), calibration_data=data)
        quantized.save(folder)
        self._program = quantized.compile(isa=isa, threads=threads)
        self._call = None
        file = "model.qdq.onnx"
        return {file: hashlib.sha256((Path(folder) / file).read_bytes()).hexdigest()}

    def _recipe(self, name: str) -> Recipe:
        """What recipes/ has for the model, without what prepares data: that has been done."""
        import qglow

        path = self._checkout / "recipes" / f"{name}.yaml"
        recipe = qglow.load_recipe(path) if path.exists() else qglow.Recipe()
        return replace(recipe, preprocessing=None, data=qglow.DataMapping())

    def outputs(self, data: str) -> dict[str, str]:
        """The SHA-256 of every output over all whole batches of an .npz file, by its name."""
        assert self._program is not None
        digests = {name: hashlib.sha256() for name in self._program.outputs}
        kinds = self._program.inputs
        with np.load(data) as arrays:
            samples = {name: arrays[name] for name in kinds}
        size = next(iter(kinds.values())).shape[0]
        count = len(next(iter(samples.values())))
        for start in range(0, count - size + 1, size):
            fed = {name: np.ascontiguousarray(array[start : start + size]) for name, array in samples.items()}
            for name, array in self._program(fed).items():
                digests[name].update(np.ascontiguousarray(array).tobytes())
        self._bind({name: np.ascontiguousarray(array[:size]) for name, array in samples.items()})
        return {name: digest.hexdigest() for name, digest in digests.items()}

    def _bind(self, inputs: dict[str, np.ndarray]) -> None:
        """Make the first batch what `turn` runs."""
        assert self._program is not None
        kinds = self._program.outputs
        outputs = {name: np.empty(kind.shape, kind.element.dtype) for name, kind in kinds.items()}
        self._call = self._program.bind(inputs, outputs)

    def turn(self, repeats: int) -> float:
        """Milliseconds of a call, of `repeats` in a row."""
        assert self._call is not None
        return burst(self._call, repeats)


def main(arguments: list[str]) -> int:
    """Serve; 2 where the checkout has no qglow."""
    checkout = Path(arguments[0]).resolve()
    sys.path.insert(0, str(checkout))
    import qglow

    if not Path(qglow.__file__).resolve().is_relative_to(checkout):
        print(f"{checkout} has no qglow of its own; {qglow.__file__} was found instead", file=sys.stderr)
        return 2
    revision = Revision(checkout)
    serve(
        {"load": revision.load, "build": revision.build, "outputs": revision.outputs, "turn": revision.turn}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
