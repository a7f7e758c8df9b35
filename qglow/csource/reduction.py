"""C of pools, reductions and softmax."""

from __future__ import annotations

from qglow.csource.writer import SourceSite, c_type, emits, number
from qglow.instructions.ops.normalization import LocalResponse
from qglow.instructions.ops.reduce import Reduce, RunningSum
from qglow.numerics.normalization import response_factor
from qglow.numerics.reductions import PARTIAL_SUMS
from qglow.numerics.scalar.clamps import larger, smaller
from qglow.numerics.scalar.elementary import PowerOf
from qglow.numerics.scalar.polynomials import exp_of_negative, log

_INFINITY = float("inf")


@emits("maxpool")
def max_pool(site: SourceSite) -> None:
    """The largest element of each window; NaN wins."""
    w, is_float = site.writer, site.kind("src").is_float
    kind = "float" if is_float else "int32_t"
    lowest = site.lowest("src")
    with w.loops(site.shape("dest")) as indices:
        w.line(f"{kind} best = {lowest};")
        with _window(site, indices) as place:
            w.line(f"const {kind} x = {site.load('src', place)};")
            w.line("best = x > best || x != x ? x : best;" if is_float else "best = x > best ? x : best;")
        site.store("dest", indices, "best")


@emits("averagepool")
def average_pool(site: SourceSite) -> None:
    """Means of windows: exact sums of integers, 16 partial sums of floats."""
    w, o = site.writer, site.operation
    source, to = site.kind("src").quantization, site.kind("dest").quantization
    with w.loops(site.shape("dest")) as indices:
        w.line(f"float lanes[{PARTIAL_SUMS}] = {{0}};" if source is None else "int32_t sum = 0;")
        w.line("int32_t count = 0;")
        with _window(site, indices) as place:
            if source is None:
                lane = f"lanes[(ky * {o.kernel[1]} + kx) % {PARTIAL_SUMS}]"
                w.line(f"{lane} = {lane} + {site.load('src', place)};")
            else:
                w.line(f"sum += {site.steps('src', place)};")
            w.line("count++;")
        if o.count_include_pad:
            w.line(f"count = {_padded_count(site, indices, 0)} * {_padded_count(site, indices, 1)};")
        if source is None or to is None:
            site.store("dest", indices, "tree(lanes) / (float)count")
            return
        divisor = site.declared("float", "divisor", f"{number(to.scale)} * (float)count")
        factor = site.declared("float", "factor", f"{number(source.scale)} / {divisor}")
        site.store("dest", indices, site.rescaled("dest", "sum", factor))


def _padded_count(site: SourceSite, indices: list[str], axis: int) -> str:
    """Positions of a window along an axis that lie in the image or its padding."""
    o, extent = site.operation, site.shape("src")[1 + axis]
    start = f"({indices[1 + axis]} * {o.strides[axis]} - {o.pads[axis]})"
    room = extent + o.pads[2 + axis]
    fit = f"(({room} - {start} + {o.dilations[axis] - 1}) / {o.dilations[axis]})"
    return f"({fit} < {o.kernel[axis]} ? {fit} : {o.kernel[axis]})"


class _window:
    """Loops over the positions of a window that lie in the image; gives the place of the element."""

    def __init__(self, site: SourceSite, indices: list[str]) -> None:
        self._site, self._indices = site, indices

    def __enter__(self) -> list[str]:
        site, o, w = self._site, self._site.operation, self._site.writer
        n, y, x, c = self._indices
        _, height, width, _ = site.shape("src")
        self._blocks = [
            w.block(f"for (int32_t ky = 0; ky < {o.kernel[0]}; ky++)"),
            w.block(f"for (int32_t kx = 0; kx < {o.kernel[1]}; kx++)"),
        ]
        for block in self._blocks:
            block.__enter__()
        w.line(f"const int32_t row = {y} * {o.strides[0]} - {o.pads[0]} + ky * {o.dilations[0]};")
        w.line(f"const int32_t column = {x} * {o.strides[1]} - {o.pads[1]} + kx * {o.dilations[1]};")
        inside = w.block(f"if (row >= 0 && row < {height} && column >= 0 && column < {width})")
        inside.__enter__()
        self._blocks.append(inside)
        return [n, "row", "column", c]

    def __exit__(self, *error: object) -> None:
        for block in reversed(self._blocks):
            block.__exit__(None, None, None)


@emits(Reduce)
def reduce(site: SourceSite) -> None:
    """One element of each row along the middle axis."""
    w, kind, element = site.writer, site.operation.kind, site.kind("src")
    outer, extent, inner = site.shape("src")
    with w.loops((outer, 1, inner)) as (a, _, b):
        if element.is_float and kind in ("sum", "mean", "prod"):
            start, sign = ("1.0f", "*") if kind == "prod" else ("0.0f", "+")
            w.line(f"float lanes[{PARTIAL_SUMS}];")
            w.line(f"for (int32_t i = 0; i < {PARTIAL_SUMS}; i++) lanes[i] = {start};")
            with w.block(f"for (int32_t k = 0; k < {extent}; k++)"):
                lane = f"lanes[k % {PARTIAL_SUMS}]"
                w.line(f"{lane} = {lane} {sign} {site.load('src', (a, 'k', b))};")
            total = "product_tree(lanes)" if kind == "prod" else "tree(lanes)"
            value = f"{total} / {number(float(extent))}" if kind == "mean" else total
            site.store("dest", (a, "0", b), value)
            return
        _reduce_whole(site, (a, b), extent, kind)


def _reduce_whole(site: SourceSite, at: tuple[str, str], extent: int, kind: str) -> None:
    """Reductions whose order does not matter: those of integers, and the largest and smallest of floats."""
    w, element = site.writer, site.kind("src")
    ctype = c_type(element.element)
    starts = {"sum": "0", "prod": "1", "max": site.lowest("src"), "min": site.highest("src")}
    w.line(f"{ctype} best = {starts[kind]};")
    with w.block(f"for (int32_t k = 0; k < {extent}; k++)"):
        w.line(f"const {ctype} x = {site.load('src', (at[0], 'k', at[1]))};")
        if element.is_float:
            name = site.functions.of(larger if kind == "max" else smaller, 2)
            w.line(f"best = {name}(x, best);")
        elif kind in ("max", "min"):
            w.line(f"best = x {'>' if kind == 'max' else '<'} best ? x : best;")
        else:
            sign = "+" if kind == "sum" else "*"
            w.line(f"best = ({ctype})((uint64_t)best {sign} (uint64_t)x);")
    site.store("dest", (at[0], "0", at[1]), "best")


@emits(RunningSum)
def running_sum(site: SourceSite) -> None:
    """Sums up to each place, one by one."""
    w, o, element = site.writer, site.operation, site.kind("src")
    outer, extent, inner = site.shape("src")
    with w.loops((outer, 1, inner)) as (a, _, b):
        w.line("float sum = 0.0f;" if element.is_float else "uint64_t sum = 0;")
        w.line("int32_t begun = 0;")
        with w.block(f"for (int32_t step = 0; step < {extent}; step++)"):
            w.line(f"const int32_t k = {f'{extent - 1} - step' if o.reverse else 'step'};")
            x = site.load("src", (a, "k", b))
            if o.exclusive:
                w.line(f"const {'float' if element.is_float else 'int64_t'} x = {x};")
                site.store("dest", (a, "k", b), "sum")
                x = "x"
            given = x if element.is_float else f"(uint64_t){x}"
            w.line(f"sum = begun ? sum + {given} : {'sum + ' if o.exclusive else ''}{given};")
            w.line("begun = 1;")
            if not o.exclusive:
                site.store("dest", (a, "k", b), "sum")


@emits(LocalResponse)
def local_response(site: SourceSite) -> None:
    """Elements over a power of the squares around them, which are summed as 16 partial sums."""
    w, o = site.writer, site.operation
    extent, power = site.shape("dest")[-1], PowerOf(o.beta).real
    with w.loops(site.shape("dest")) as indices:
        w.line(f"float lanes[{PARTIAL_SUMS}] = {{0}};")
        with w.block(f"for (int32_t k = 0; k < {o.size}; k++)"):
            w.line(f"const int32_t c = {indices[-1]} + k - {(o.size - 1) // 2};")
            with w.block(f"if (c >= 0 && c < {extent})"):
                x = site.declared("float", "near", site.load("src", (*indices[:-1], "c")))
                square = site.declared("float", "square", f"{x} * {x}")
                lane = f"lanes[k % {PARTIAL_SUMS}]"
                w.line(f"{lane} = {lane} + {square};")
        factor = number(float(response_factor(o.alpha, o.size)))
        scaled = site.declared("float", "scaled", f"tree(lanes) * {factor}")
        base = site.declared("float", "base", f"{scaled} + {number(o.bias)}")
        divisor = f"{site.functions.of(power)}({base})"
        site.store("dest", indices, f"{site.load('src', indices)} / {divisor}")


@emits("softmax")
def softmax(site: SourceSite) -> None:
    """Shares of exponentials, or their logarithms, along one axis."""
    w, o = site.writer, site.operation
    shape = list(site.shape("src"))
    axis = o.axis % len(shape)
    extent, shape[axis] = shape[axis], 1
    exp_name = site.functions.of(exp_of_negative)
    with w.loops(shape) as indices:
        at = [*indices[:axis], "k", *indices[axis + 1 :]]
        loop = f"for (int32_t k = 0; k < {extent}; k++)"
        w.line(f"float most = {number(-_INFINITY)};")
        w.line(f"float lanes[{PARTIAL_SUMS}] = {{0}};")
        with w.block(loop):
            w.line(f"most = {site.functions.of(larger, 2)}({site.load('src', at)}, most);")
        with w.block(loop):
            shifted = site.declared("float", "shifted", f"{site.load('src', at)} - most")
            power = site.declared("float", "power", f"{exp_name}({shifted})")
            lane = f"lanes[k % {PARTIAL_SUMS}]"
            w.line(f"{lane} = {lane} + {power};")
            site.store("dest", at, shifted if o.logarithm else power)
        w.line("const float total = tree(lanes);")
        if o.logarithm:
            w.line(f"const float whole = {site.functions.of(log)}(total);")
        with w.block(loop):
            value = f"{site.load('dest', at)} - whole" if o.logarithm else f"{site.load('dest', at)} / total"
            if o.masked_to_zero:
                value = f"total != total ? 0.0f : {value}"
            site.store("dest", at, value)
