"""Every error that qglow raises on purpose.

    QglowError                     exit code 70 unless a subclass says otherwise
    ├── ComparisonFailed           1   a comparison ran and its result is not acceptable
    ├── UsageError                 2   an option or an argument is wrong
    │   └── UndecidedError             values of inputs that decide shapes are not given
    ├── UnsupportedError           3   the model needs something that qglow does not do
    ├── InputFileError             4   a file is missing, corrupt or stale
    │   ├── ModelError                 the ONNX model
    │   ├── ProfileError               a profile
    │   ├── DataError                  calibration or evaluation data
    │   ├── RecipeError                a recipe
    │   └── ArtefactError              model.qglow
    ├── RegressionError            5   a figure is worse than the baseline allows, or data has drifted
    ├── MemoryLimitError           6   more memory is needed than is allowed or there
    ├── ClusterError               7   a cluster cannot be reached, or cannot do the work
    └── InternalError              70  a broken invariant: a defect of qglow itself
        ├── VerificationError          an IR that breaks its own rules
        └── CodegenError               LLVM refused generated code
    TextError (InputFileError)         IR text that does not parse

A message is one line: what is wrong, where, and what to do about it. What it lists follows as `details`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qglow.core.types import Dimension, ElementType, TensorType


class QglowError(Exception):
    """Base of all deliberate errors. `exit_code` is what the command line returns.

    field: the argument or the key of a recipe that the error is about, if there is one; the message may
    begin with it. Others that a message names are in backquotes: `name` or `name=value`. The command line
    prints all of them as its flags. details: further lines; a line break elsewhere is part of a name.
    """

    exit_code = 70

    def __init__(
        self, message: object = "", *, field: str | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.field = field
        self.details = tuple(details)

    def __str__(self) -> str:
        return "\n  ".join((super().__str__(), *self.details))


class ComparisonFailed(QglowError):
    """A comparison ran and its result is outside what the caller allowed."""

    exit_code = 1


class UsageError(QglowError):
    """An option, an argument or a call does not fit."""

    exit_code = 2


class UndecidedError(UsageError):
    """A model's shapes or parameters depend on values of inputs, which are not given.

    inputs: their names. types: of all inputs that have no value. digest: SHA-256 of the model's file.
    """

    def __init__(
        self, message: str, inputs: Sequence[str], types: Mapping[str, TensorType], digest: str
    ) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)
        self.types = dict(types)
        self.digest = digest


class UnboundError(UsageError):
    """Dimensions of a model's inputs are free, and what was asked for needs one shape.

    dimensions: those that the file declares, by name of the input; None for one without a shape. elements:
    types of their elements. digest: SHA-256 of the model's file.
    """

    def __init__(
        self,
        message: str,
        dimensions: Mapping[str, Sequence[Dimension] | None] | None = None,
        elements: Mapping[str, ElementType] | None = None,
        digest: str = "",
    ) -> None:
        super().__init__(message)
        self.dimensions = {name: None if d is None else tuple(d) for name, d in (dimensions or {}).items()}
        self.elements = dict(elements or {})
        self.digest = digest


class UnsupportedError(QglowError):
    """The model uses features that are not supported; the message lists all of them."""

    exit_code = 3


class InputFileError(QglowError):
    """An input file is missing, corrupt, stale or of the wrong kind."""

    exit_code = 4


class ModelError(InputFileError):
    """The ONNX model cannot be read or is not valid."""


class ProfileError(InputFileError):
    """A profile cannot be read, or it belongs to another model."""


class DataError(InputFileError):
    """Calibration or evaluation data cannot be read or does not fit the model."""


class RecipeError(InputFileError):
    """A recipe cannot be read or holds an unknown key."""


class ArtefactError(InputFileError):
    """A compiled artefact cannot be read or does not verify."""


class TextError(InputFileError):
    """IR text that does not parse. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class RegressionError(QglowError):
    """Accuracy, coverage or size of a model is worse than its baseline allows, or data has drifted."""

    exit_code = 5


class MemoryLimitError(QglowError):
    """More memory is needed than QGLOW_MAX_MEMORY or the machine allows."""

    exit_code = 6


class ClusterError(QglowError):
    """A cluster cannot be reached, its workers are lost, or they would give other results."""

    exit_code = 7


class InternalError(QglowError):
    """A broken invariant inside qglow."""

    exit_code = 70


class VerificationError(InternalError):
    """An IR breaks its own rules. The message names the pass, the node and the rule."""


class CodegenError(InternalError):
    """LLVM refused generated code."""
