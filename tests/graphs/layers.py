"""Operators with weights, windows over space, and normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graphs.builder import Builder, Unfit, makes


def windows(b: Builder, spatial: int, dilated: bool = True) -> dict[str, Any]:
    """Attributes of a window."""
    kernel = [b.number(1, 3) for _ in range(spatial)]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if b.chance():
        found["strides"] = [b.number(1, 2) for _ in range(spatial)]
    if b.chance(3):
        found["auto_pad"] = b.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif b.chance():
        found["pads"] = [b.number(0, size - 1) for size in kernel * 2]
    if dilated and "auto_pad" not in found and b.chance(4):
        found["dilations"] = [b.number(1, 2) for _ in range(spatial)]
    return found


@makes("Conv", "ConvTranspose")
def convolution(b: Builder, op: str) -> None:
    value = b.pick(b.choice((4, 4, 3)), least=1)
    channels = value.array.shape[1]
    attributes = windows(b, value.rank - 2)
    group = channels if b.chance(4) else 1
    made = b.number(1, 4)
    ends = [made * group, channels // group] if op == "Conv" else [channels, made]
    weight = b.constant(b.floats([*ends, *attributes["kernel_shape"]]))
    bias = [b.constant(b.floats([made * group]))] if b.chance() else []
    b.add(op, [value.name, weight, *bias], group=group, **attributes)


@makes("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder, op: str) -> None:
    value = b.pick(b.choice((4, 4, 3)), least=1)
    attributes = windows(b, value.rank - 2, dilated=b.has_attribute(op, "dilations"))
    if b.has_attribute(op, "ceil_mode") and b.chance(4):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and b.chance(3):
        attributes["count_include_pad"] = 1
    # Of a window that does not fit ONNX says nothing; onnxruntime's division rounds its count up to 1.
    pads, kernel = attributes.get("pads", [0] * 2 * (value.rank - 2)), attributes["kernel_shape"]
    spread = attributes.get("dilations", [1] * len(kernel))
    padded = str(attributes.get("auto_pad")).startswith("SAME")
    for axis, size in enumerate(() if padded else value.array.shape[2:]):
        if spread[axis] * (kernel[axis] - 1) + 1 > size + pads[axis] + pads[axis + len(kernel)]:
            raise Unfit
    b.add(op, [value.name], exact=op == "MaxPool", **attributes)


@makes("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder, op: str) -> None:
    b.add(op, [b.pick((3, 4), least=1).name], exact=op == "GlobalMaxPool")


@makes("Gemm")
def gemm(b: Builder, op: str) -> None:
    value = b.pick(2)
    made, turned = b.number(1, 6), b.number(0, 1)
    shape = [value.array.shape[1], made]
    weight = b.constant(b.floats(shape[::-1] if turned else shape))
    bias = [b.constant(b.floats(b.choice(([made], [1], [1, made]))))] if b.opset < 11 or b.chance() else []
    scales = {"alpha": 0.5, "beta": 2.0} if b.chance(4) else {}
    b.add(op, [value.name, weight, *bias], transB=turned, **scales)


@makes("MatMul")
def matmul(b: Builder, op: str) -> None:
    value = b.pick((1, 4))
    deep = value.array.shape[-1]
    fitting = [
        v for v in b.values if v.rank >= 2 and v.array.shape[-2] == deep and v.array.dtype == np.float32
    ]
    if fitting and b.chance():
        b.add(op, [value.name, b.choice(fitting).name])
    else:
        b.add(op, [value.name, b.constant(b.floats([deep, b.number(1, 6)]))])


@makes("BatchNormalization", "InstanceNormalization")
def normalized(b: Builder, op: str) -> None:
    value = b.pick((3, 4), least=1)
    channels = value.array.shape[1]
    names = [b.constant(b.floats([channels])) for _ in range(2)]
    if op == "BatchNormalization":
        names += [
            b.constant(b.floats([channels])),
            b.constant(np.abs(b.floats([channels])) + np.float32(0.1)),
        ]
    b.add(op, [value.name, *names], epsilon=1e-3)


@makes("LayerNormalization", "RMSNormalization")
def row_normalized(b: Builder, op: str) -> None:
    value = b.pick((2, 4), least=1)
    axis = b.number(1, value.rank - 1)
    sizes = value.array.shape[axis:]
    bias = [b.constant(b.floats(sizes))] if op == "LayerNormalization" and b.chance() else []
    b.add(op, [value.name, b.constant(b.floats(sizes)), *bias], axis=axis, epsilon=1e-3)


@makes("GroupNormalization")
def group_normalized(b: Builder, op: str) -> None:
    value = b.pick((3, 4), least=1)
    channels = value.array.shape[1]
    groups = channels if b.chance() else 1
    size = channels if b.opset >= 21 else groups
    scale, bias = (b.constant(b.floats([size])) for _ in range(2))
    b.add(op, [value.name, scale, bias], num_groups=groups, epsilon=1e-3)


@makes("LRN")
def local(b: Builder, op: str) -> None:
    # onnxruntime carries a NaN from one channel to all that follow: exact values have none.
    b.add(op, [b.pick(4, exact=True, least=1).name], size=b.choice((1, 3, 5)))


@makes("LpNormalization")
def lp_normalized(b: Builder, op: str) -> None:
    value = b.pick((2, 4), least=1)
    b.add(op, [value.name], axis=b.number(1, value.rank - 1), p=b.number(1, 2))


@makes("MeanVarianceNormalization")
def centred(b: Builder, op: str) -> None:
    b.add(op, [b.pick(4, least=2).name])


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@makes(*GATES)
def recurrent(b: Builder, op: str) -> None:
    value = b.pick(3, least=1)
    hidden, wide, gates = b.number(1, 4), value.array.shape[2], GATES[op]
    direction = b.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    names = [
        b.constant(b.floats([ways, gates * hidden, wide], 0.5)),
        b.constant(b.floats([ways, gates * hidden, hidden], 0.5)),
    ]
    if b.chance():
        names.append(b.constant(b.floats([ways, 2 * gates * hidden], 0.5)))
    outputs = b.number(1, 3 if op == "LSTM" else 2)
    attributes = {"linear_before_reset": b.number(0, 1)} if op == "GRU" else {}
    b.add(op, [value.name, *names], outputs=outputs, hidden_size=hidden, direction=direction, **attributes)


@makes("Einsum")
def einsum(b: Builder, op: str) -> None:
    value = b.pick(3, least=1)
    weight = b.constant(b.floats([value.array.shape[2], b.number(1, 4)]))
    b.add(op, [value.name, weight], equation=b.choice(("abc,cd->abd", "abc,cd->adb", "abc,cd->ad")))


@makes("Resize")
def resize(b: Builder, op: str) -> None:
    value = b.pick(4, least=1)
    factors = [1.0, 1.0, float(b.number(1, 3)), float(b.number(1, 2))]
    scales = b.constant(factors, np.float32)
    if b.opset < 11:
        b.add(op, [value.name, scales], mode=b.choice(("nearest", "linear")))
        return
    place = b.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    mode = b.choice(("nearest", "linear", "cubic"))
    nearest = {"nearest_mode": "floor"} if mode == "nearest" else {}
    names = [value.name, "" if b.opset >= 13 else b.constant(np.zeros(0), np.float32)]
    b.add(op, [*names, scales], mode=mode, coordinate_transformation_mode=place, **nearest)
