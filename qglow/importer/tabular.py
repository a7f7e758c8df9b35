"""Import of operators that converters of other learning libraries write around a network of columns.

https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md ArrayFeatureExtractor, Binarizer,
FeatureVectorizer, Imputer, LabelEncoder, LinearClassifier, LinearRegressor, Normalizer, OneHotEncoder, Scaler
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Div, Mul, Sub
from qglow.graph.ops.functions import Abs, Sigmoid, Sqrt
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.ranking import ArgMax
from qglow.graph.ops.reduce import ReduceMax, ReduceSum
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.softmax import probabilities

MOST_KEYS = 1 << 12
"""Keys of a table that are compared one by one; with more, onnxruntime's search is faster."""


def import_scaler(node: ImportNode) -> None:
    """Import Scaler: (x - offset) * scale by one number for each element of the last axis, or for all."""
    x, features = node.value(0), node.kind().shape[-1:]
    node.require(x.type.is_float, f"its input is {x.type}; supported are floats")
    parts = {}
    for name in ("offset", "scale"):
        numbers = np.array(node.numbers(name), np.float32)
        node.require(numbers.shape in (features, (1,)), f"{name} has {numbers.size} numbers for x {x.type}")
        parts[name] = node.part_constant(name, numbers)
    node.emit(Mul(), node.emit(Sub(), x, parts["offset"], part="moved"), parts["scale"])


def import_imputer(node: ImportNode) -> None:
    """Import Imputer: another number for each that is missing, one for all columns or one a column.

    A missing one has a value of its own, which may be NaN.
    """
    x, features = node.value(0), node.kind().shape[-1:]
    if x.type.is_float:
        new = np.array(node.numbers("imputed_value_floats"), np.float32)
        old: Array = np.array(node.number("replaced_value_float", 0.0), np.float32)
        node.ignore("imputed_value_int64s", "replaced_value_int64")
    else:
        node.require(
            x.type.element is ElementType.INT64, f"its input is {x.type}; supported are float and int64"
        )
        new = np.array(node.integers("imputed_value_int64s", ()), np.int64)
        old = np.array(node.integer("replaced_value_int64", 0), np.int64)
        node.ignore("imputed_value_floats", "replaced_value_float")
    node.require(new.shape in (features, (1,)), f"it has {new.size} values for x {x.type}")
    if np.isnan(old):
        missing = node.emit(Compare(relation="not-equal"), x, x, part="missing")
    else:
        missing = node.emit(Compare(relation="equal"), x, node.part_constant("replaced", old), part="missing")
    node.emit(Where(), missing, node.part_constant("imputed", new), x)


def import_normalizer(node: ImportNode) -> None:
    """Import Normalizer: each row by its largest number, or by the sum or length of it; zeros stay."""
    x, norm = _real(node), node.string("norm", "MAX")
    node.require(len(x.type.shape) in (1, 2), f"its input is {x.type}; supported are one and two dimensions")
    last = (len(x.type.shape) - 1,)
    if norm == "MAX":
        size = node.emit(ReduceMax(last, keepdims=True), x, part="size")
    elif norm == "L1":
        size = node.emit(ReduceSum(last, keepdims=True), node.emit(Abs(), x, part="sizes"), part="size")
    else:
        node.require(norm == "L2", f"norm {norm}; supported are MAX, L1 and L2")
        squares = node.emit(Mul(), x, x, part="squares")
        size = node.emit(
            Sqrt(), node.emit(ReduceSum(last, keepdims=True), squares, part="power"), part="size"
        )
    zero, one = (node.part_constant(f"{n}", np.array(n, np.float32)) for n in (0, 1))
    empty = node.emit(Compare(relation="equal"), size, zero, part="empty")
    node.emit(Div(), x, node.emit(Where(), empty, one, size, part="divisor"))


def import_array_feature_extractor(node: ImportNode) -> None:
    """Import ArrayFeatureExtractor: columns of x, in a row of their own where x is only one."""
    x, places = node.value(0), node.value(1)
    rank = len(x.type.shape)
    flat = node.emit(Reshape(shape=(math.prod(places.type.shape),)), places, part="places")
    if rank > 1:
        node.emit(Gather(axis=rank - 1), x, flat)
        return
    found = node.emit(Gather(axis=0), x, flat, part="found")
    node.emit(Reshape(shape=(1, *found.type.shape)), found)


def import_one_hot_encoder(node: ImportNode) -> None:
    """Import OneHotEncoder of whole numbers: 1 at the category along a new last axis, else 0.

    An unknown category has no 1, also where `zeros` would have it refused.
    """
    node.ignore("zeros")
    node.require(not node.strings("cats_strings", ()), "categories are strings; supported are whole numbers")
    categories = node.integers("cats_int64s", ())
    node.require(0 < len(categories) <= MOST_KEYS, f"{len(categories)} categories")
    x = node.emit(Cast(to=ElementType.INT64), node.value(0), part="whole")
    is_one = _equal(node, x, np.array(categories, np.int64))
    zero, one = (node.part_constant(f"{n}", np.array(n, np.float32)) for n in (0, 1))
    node.emit(Where(), is_one, one, zero)


def import_label_encoder(node: ImportNode) -> None:
    """Import LabelEncoder from numbers to numbers: the value of an equal key, else the default."""
    keys = _listed(node, "keys")
    values = _listed(node, "values")
    default = _default(node, values)
    node.require(values.shape == keys.shape, f"{keys.size} keys and {values.size} values")
    node.require(0 < keys.size <= MOST_KEYS, f"{keys.size} keys; supported are up to {MOST_KEYS}")
    unique = len(np.unique(keys)) == keys.size and not np.isnan(keys).any()
    node.require(unique, "keys that are equal, or NaN")
    x = node.value(0)
    node.require(x.type.element.dtype == keys.dtype, f"its input is {x.type}, and keys are {keys.dtype}")
    # Keys differ, so that at most one number is not 0: the sum is the place in the table.
    numbers = node.part_constant("numbers", np.arange(1, keys.size + 1, dtype=np.int64))
    zero = node.part_constant("0", np.array(0, np.int64))
    found = node.emit(Where(), _equal(node, x, keys), numbers, zero, part="numbered")
    place = node.emit(ReduceSum((len(found.type.shape) - 1,), keepdims=False), found, part="place")
    table = np.concatenate([np.array([default], values.dtype), values])
    node.emit(Gather(axis=0), node.part_constant("table", table), place)


def import_binarizer(node: ImportNode) -> None:
    """Import Binarizer: 1 above the threshold, else 0."""
    limit = node.part_constant("threshold", np.array(node.number("threshold", 0.0), np.float32))
    x = node.value(0)
    node.require(x.type.is_float, f"its input is {x.type}; supported are floats")
    above = node.emit(Compare(relation="greater"), x, limit, part="above")
    node.emit(Cast(to=ElementType.FLOAT), above)


def import_feature_vectorizer(node: ImportNode) -> None:
    """Import FeatureVectorizer: columns of all inputs as floats, one input after the other."""
    count = len(node.inputs)
    shapes = [node.kind(index).shape for index in range(count)]
    node.require(all(len(shape) == 2 for shape in shapes), "an input does not have two dimensions")
    sizes = tuple(shape[1] for shape in shapes)
    stated = node.integers("inputdimensions", sizes)
    node.require(stated == sizes, f"inputdimensions {list(stated)} for inputs of {list(sizes)} columns")
    to_float = Cast(to=ElementType.FLOAT)
    floats = [node.emit(to_float, node.value(index), part=f"real{index}") for index in range(count)]
    node.emit(Identity(), joined(node, floats, "columns", axis=1))


def import_linear_regressor(node: ImportNode) -> None:
    """Import LinearRegressor: a Gemm with one result a target."""
    transform = node.string("post_transform", "NONE")
    node.require(transform == "NONE", f"post_transform {transform}")
    node.emit(Gemm(), *_linear_operands(node, node.integer("targets", 1)))


def import_linear_classifier(node: ImportNode) -> None:
    """Import LinearClassifier with a row of weights for each label, which are whole numbers."""
    node.ignore("multi_class")
    labels = node.integers("classlabels_ints", ())
    node.require(len(labels) > 1, "it has no two labels that are whole numbers")
    transform = node.string("post_transform", "NONE")
    node.require(transform in ("NONE", "LOGISTIC", "SOFTMAX"), f"post_transform {transform}")
    operands = _linear_operands(node, len(labels))
    if transform == "NONE":
        scores = node.emit(Gemm(), *operands, output=1)
    else:
        scores = node.emit(Gemm(), *operands, part="sums")
    if transform == "LOGISTIC":
        node.emit(Sigmoid(), scores, output=1)
    elif transform == "SOFTMAX":
        node.emit(Identity(), probabilities(node, scores, "shares"), output=1)
    place = node.emit(ArgMax(1, False, False), scores, part="place")
    node.emit(Gather(axis=0), node.part_constant("labels", np.array(labels, np.int64)), place)


def _linear_operands(node: ImportNode, rows: int) -> tuple[Value, Value, Value]:
    """Input, weights and sums of a linear model with as many rows of weights."""
    x = _real(node)
    node.require(len(x.type.shape) == 2, f"its input is {x.type}; supported are two dimensions")
    weights, bias = (np.array(node.numbers(name), np.float32) for name in ("coefficients", "intercepts"))
    columns = x.type.shape[1]
    node.require(weights.size == rows * columns, f"{weights.size} weights for {rows} rows of {columns}")
    bias = bias if bias.size else np.zeros(rows, np.float32)
    node.require(bias.size == rows, f"{bias.size} intercepts for {rows} rows")
    turned = weights.reshape(rows, columns).T
    return x, node.part_constant("weights", turned), node.part_constant("bias", bias)


def _real(node: ImportNode) -> Value:
    """The input as float32."""
    return node.emit(Cast(to=ElementType.FLOAT), node.value(0), part="real")


def _equal(node: ImportNode, x: Value, keys: Array) -> Value:
    """Equality of each element and each key, the keys along a new last axis."""
    apart = node.emit(Reshape(shape=(*x.type.shape, 1)), x, part="apart")
    return node.emit(Compare(relation="equal"), apart, node.part_constant("keys", keys), part="equal")


def _listed(node: ImportNode, name: str) -> Array:
    """Keys or values of a table."""
    if node.has(f"{name}_tensor"):
        array = node.tensor(f"{name}_tensor").reshape(-1)
        node.require(array.dtype in (np.float32, np.int64), f"{name} are {array.dtype}")
        return array
    node.require(not node.strings(f"{name}_strings", ()), f"{name} are strings; supported are numbers")
    floats = node.numbers(f"{name}_floats")
    return np.array(floats, np.float32) if floats else np.array(node.integers(f"{name}_int64s", ()), np.int64)


def _default(node: ImportNode, values: Array) -> float:
    """The value of what is no key."""
    node.ignore("default_string")
    if node.has("default_tensor"):
        return float(node.tensor("default_tensor").reshape(()))
    real, whole = node.number("default_float", -0.0), node.integer("default_int64", -1)
    return real if values.dtype == np.float32 else whole


LEARNED: dict[str, ImportRule] = {
    "ArrayFeatureExtractor": ImportRule(import_array_feature_extractor, newest=1),
    "Binarizer": ImportRule(import_binarizer, newest=1),
    "FeatureVectorizer": ImportRule(import_feature_vectorizer, newest=1),
    "Imputer": ImportRule(import_imputer, newest=1),
    "LabelEncoder": ImportRule(import_label_encoder, newest=4),
    "LinearClassifier": ImportRule(import_linear_classifier, newest=1),
    "LinearRegressor": ImportRule(import_linear_regressor, newest=1),
    "Normalizer": ImportRule(import_normalizer, newest=1),
    "OneHotEncoder": ImportRule(import_one_hot_encoder, newest=1),
    "Scaler": ImportRule(import_scaler, newest=1),
}
"""Operators of the domain ai.onnx.ml."""
