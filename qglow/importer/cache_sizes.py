"""Sizes of a cache of keys and values that a file leaves open, where the attention that reads it tells them.

onnxruntime-genai's model builder names the last dimension of a cache (`kv_cache_dim`), so that one file
serves caches of floats and of packed integers. With floats it is the width of a head.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md GroupQueryAttention
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from qglow.importer.binding import real_inputs, tensor_shape

_PAST = slice(3, 5)
"""Places of past keys and values among the inputs of GroupQueryAttention."""
_CACHE_AXES = 4
"""Axes of a cache: [samples, heads, places, width]."""
_REALS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})


def settle_cache_widths(proto: ModelProto, nodes: Iterable[NodeProto]) -> None:
    """Give the width of a head to the open last dimensions of what GroupQueryAttention reads as its cache."""
    readers = [node for node in nodes if node.op_type == "GroupQueryAttention"]
    open_inputs = {value.name: value for value in real_inputs(proto.graph) if _is_open(value)}
    if not readers or not open_inputs:
        return
    widths = _Widths(proto)
    for node in readers:
        for name in node.input[_PAST]:
            width = widths.of_head(node) if name in open_inputs else None
            if width is not None:
                open_inputs[name].type.tensor_type.shape.dim[-1].dim_value = width


def window_places(nodes: Iterable[NodeProto]) -> dict[str, int]:
    """Places of the sliding window by name of a cache that onnxruntime wants to have as many at least."""
    return {
        name: settings["local_window_size"]
        for node in nodes
        if node.op_type == "GroupQueryAttention" and (settings := _settings(node)).get("sliding_window_cache")
        for name in node.input[_PAST]
    }


def _is_open(value: ValueInfoProto) -> bool:
    """Whether a value may be a cache of floats whose last dimension has no number."""
    dims = tensor_shape(value)
    is_cache = dims is not None and len(dims) == _CACHE_AXES and not isinstance(dims[-1], int)
    return is_cache and value.type.tensor_type.elem_type in _REALS


class _Widths:
    """Last dimensions of values, as far as the file or a product with constant weights tells them."""

    def __init__(self, proto: ModelProto) -> None:
        graph = proto.graph
        self._declared = dict(_declared((*graph.input, *graph.value_info)))
        self._constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output}

    def of_head(self, node: NodeProto) -> int | None:
        """Width of a head of an attention; None where nothing tells it, or heads do not divide it."""
        settings = _settings(node)
        heads, groups = (settings.get(name, 0) for name in ("num_heads", "kv_num_heads"))
        is_packed = not any(node.input[1:3])
        count = heads + 2 * groups if is_packed else heads
        width = self._of(node.input[0])
        return width // count if width and count > 0 and width % count == 0 else None

    def _of(self, name: str) -> int | None:
        """Last dimension of a value."""
        while (width := self._declared.get(name)) is None:
            node = self._producers.get(name)
            if node is None or not node.input:
                return None
            if node.op_type == "MatMulNBits":
                return _settings(node).get("N")
            if node.op_type == "MatMul":
                dims = self._constants.get(node.input[1], ())
                return dims[-1] if dims else None
            if node.op_type != "Add":
                return None
            name = next((each for each in node.input if each not in self._constants), "")
        return width


def _declared(values: Iterable[ValueInfoProto]) -> Iterator[tuple[str, int]]:
    for value in values:
        dims = tensor_shape(value)
        if dims and isinstance(dims[-1], int):
            yield value.name, dims[-1]


def _settings(node: NodeProto) -> Mapping[str, int]:
    """Attributes of a node that are integers."""
    return {a.name: int(helper.get_attribute_value(a)) for a in node.attribute if a.type == a.INT}
