"""An opened model, with a graph or without the shapes and values that decide it: run, compiled, resized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qglow.core.types import Array, Dimension
from qglow.graph.interpreter import interpret
from qglow.runtime.executable import Executable
from qglow.toolchain.bounded import Narrowed, ResizableModel
from qglow.toolchain.bounded_inputs import BoundedInputs, Bounds, ProgramSizes, dimensions_of
from qglow.toolchain.compilation import compile_whole
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.shape_choices import ShapeChoices, chosen_shapes
from qglow.toolchain.specialised import fits, specialised_executable
from qglow.toolchain.undecided import UndecidedModel

OpenedModel = LoadedModel | UndecidedModel


def in_any_shape(opened: OpenedModel) -> UndecidedModel:
    """The model in any shapes that its file leaves open."""
    return opened if isinstance(opened, UndecidedModel) else UndecidedModel.of(opened)


def declared_dimensions(opened: OpenedModel) -> dict[str, tuple[Dimension, ...] | None]:
    """Dimensions of the inputs as the file declares them; None for an input without a shape."""
    return {name: None if sizes is None else tuple(sizes) for name, sizes in opened.dimensions.items()}


def interpret_opened(opened: OpenedModel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run in numpy, in the shapes of the inputs. Raises UsageError and DataError for others than it takes."""
    if isinstance(opened, LoadedModel) and (not opened.is_free or fits(inputs, opened.inputs)):
        return interpret(opened.graph, inputs)
    decided = in_any_shape(opened).decided(inputs)
    return interpret(decided.model.graph, decided.inputs)


def compile_opened(opened: OpenedModel, options: CompileOptions) -> Executable:
    """Compile; where shapes are free, those of a call when it has them."""
    if isinstance(opened, UndecidedModel):
        return specialised_executable(opened, options)
    reference = compile_whole(opened.graph, options)
    if not opened.is_free:
        return reference
    return specialised_executable(in_any_shape(opened), options, reference)


def resizable_to(opened: OpenedModel, bounds: Bounds, narrowed: Narrowed | None = None) -> ResizableModel:
    """The model for all sizes up to bounds of its open dimensions. Raises UsageError as `dimensions_of`."""
    own = opened.shapes if isinstance(opened, LoadedModel) else opened.given_shapes
    return _resizable(opened, dimensions_of(declared_dimensions(opened), own, bounds), narrowed)


def resizable_in(opened: OpenedModel, shapes: ShapeChoices) -> tuple[ResizableModel, Sequence[ProgramSizes]]:
    """The model, and the sizes of its programs, for shapes that a caller names. Raises UsageError."""
    given = opened.given if isinstance(opened, LoadedModel) else opened.given_shapes
    chosen = chosen_shapes(declared_dimensions(opened), given, shapes)
    return _resizable(opened, chosen.dimensions), chosen.wanted


def _resizable(
    opened: OpenedModel, dimensions: BoundedInputs, narrowed: Narrowed | None = None
) -> ResizableModel:
    model = in_any_shape(opened)
    return ResizableModel(
        model.place,
        dimensions,
        lambda shapes, kept: model.at(shapes, kept).graph,
        narrowed,
        values=model.source.values,
    )
