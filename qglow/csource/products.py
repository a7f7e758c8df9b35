"""C of convolutions and matrix products."""

from __future__ import annotations

from qglow.csource.writer import SourceSite, emits, number
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.ops.quantize import Requantize
from qglow.numerics.requantize import multiplier


@emits(Convolution)
def convolution(site: SourceSite) -> None:
    """Rule 3 and 5 for integers, rule 9 for floats: taps in the order (kh, kw, c)."""
    o, w = site.operation, site.writer
    _, height, width, channels = site.shape("src")
    filters, taps_y, taps_x, depth = site.shape("filter")
    per_group = filters // o.group
    with w.loops(site.shape("dest")) as (n, y, x, f):
        _begin(site, f)
        group = "" if o.group == 1 else f"{f} / {per_group} * {depth} + "
        with w.loops((taps_y, taps_x), "k") as (ky, kx):
            w.line(f"const int32_t row = {y} * {o.strides[0]} - {o.pads[0]} + {ky} * {o.dilations[0]};")
            w.line(f"const int32_t column = {x} * {o.strides[1]} - {o.pads[1]} + {kx} * {o.dilations[1]};")
            inside = f"row >= 0 && row < {height} && column >= 0 && column < {width}"
            with w.block(f"if ({inside})"), w.loops((depth,), "c") as (c,):
                _take(site, "src", (n, "row", "column", f"{group}{c}"), (f, ky, kx, c))
        _end(site, (n, y, x, f), f)


@emits(FullyConnected)
def fully_connected(site: SourceSite) -> None:
    """Rows times a matrix."""
    assert not site.has("row_scales")  # lowering keeps operators single for this target
    w, depth = site.writer, site.shape("filter")[0]
    with w.loops(site.shape("dest")) as (m, n):
        _begin(site, n)
        with w.loops((depth,), "k") as (k,):
            _take(site, "src", (m, k), (k, n))
        _end(site, (m, n), n)


@emits(MatMul)
def matmul(site: SourceSite) -> None:
    """Products of two stacks of matrices."""
    w, shape, depth = site.writer, site.shape("dest"), site.shape("lhs")[-1]
    is_float = site.kind("lhs").is_float
    with w.loops(shape) as indices:
        *leading, m, n = indices
        left = [*leading[len(leading) - len(site.shape("lhs")) + 2 :], m]
        right = leading[len(leading) - len(site.shape("rhs")) + 2 :]
        w.line("float sum = 0.0f;" if is_float else "int32_t sum = 0;")
        with w.loops((depth,), "k") as (k,):
            if is_float:
                pair = site.load("lhs", [*left, k]), site.load("rhs", [*right, k, n])
                w.line(f"sum = fused({pair[0]}, {pair[1]}, sum);")
            else:
                pair = site.steps("lhs", [*left, k]), site.steps("rhs", [*right, k, n])
                w.line(f"sum += {pair[0]} * {pair[1]};")
        if is_float:
            site.store("dest", indices, "sum")
        else:
            site.store("dest", indices, _scaled(site))


@emits(Requantize)
def requantize(site: SourceSite) -> None:
    """Sums of one or two parts, rescaled."""
    w = site.writer
    with w.loops(site.shape("dest")) as indices:
        total = f"(int64_t){site.load('low', indices)}"
        if site.has("high"):
            total = f"256 * (int64_t){site.load('high', indices)} + {total}"
        w.line(f"const int64_t sum = {total};")
        _finish(site, indices, indices[-1])


def _begin(site: SourceSite, channel: str) -> None:
    bias = site.load("bias", (channel,)) if site.has("bias") else "0"
    site.writer.line(f"{'float' if site.kind('src').is_float else 'int32_t'} sum = {bias};")


def _take(site: SourceSite, name: str, at: tuple[str, ...], filter_at: tuple[str, ...]) -> None:
    weight = site.load("filter", filter_at)
    if site.kind(name).is_float:
        site.writer.line(f"sum = fused({site.load(name, at)}, {weight}, sum);")
    else:
        site.writer.line(f"sum += {site.steps(name, at)} * {weight};")


def _end(site: SourceSite, indices: tuple[str, ...], channel: str) -> None:
    o = site.operation
    if site.kind("src").is_float:
        site.store("dest", indices, site.clipped("sum", o.lo, o.hi))
    elif not site.has("multiplier"):
        site.store("dest", indices, "sum")
    else:
        _finish(site, indices, channel)


def _finish(site: SourceSite, indices: tuple[str, ...] | list[str], channel: str) -> None:
    """Sums times the multiplier of their channel, as `BoundedOperation.finish` has it."""
    o = site.operation
    factor = site.load("multiplier", (channel,))
    if site.kind("dest").is_float:
        scaled = site.declared("float", "scaled", f"(float)sum * {factor}")
        site.store("dest", indices, site.clipped(scaled, o.lo, o.hi))
    else:
        site.store("dest", indices, site.rescaled("dest", "sum", factor, o.q_lo, o.q_hi))


def _scaled(site: SourceSite) -> str:
    """Sums of products of two activations as the result holds them."""
    left, right, to = (site.kind(name).quantization for name in ("lhs", "rhs", "dest"))
    assert left is not None and right is not None
    if to is None:
        factor = float(multiplier(left.scale, right.scale, 1.0))
        return site.declared("float", "scaled", f"(float)sum * {number(factor)}")
    factor = float(multiplier(left.scale, right.scale, to.scale))
    return site.rescaled("dest", "sum", number(factor))
