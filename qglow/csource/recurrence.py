"""C of recurrent layers: steps of their cells, whose meaning numerics.scalar.cells has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qglow.csource.writer import SourceSite, emits
from qglow.instructions.ops.recurrence import RecurrentLayer
from qglow.numerics.scalar.algebra import Real


@emits(RecurrentLayer)
def recurrent(site: SourceSite) -> None:
    """The result has a row for each state; `carried` holds what cells carry, from the first step on."""
    w, o = site.writer, site.operation
    steps, batch, _ = site.shape("src")
    width = site.shape("hidden")[1]
    with w.loops((batch, width)) as (n, j):
        site.store("dest", (str(steps if o.reverse else 0), n, j), site.load("hidden", (n, j)))
        site.store("carried", (n, j), site.load("initial", (n, j)))
    with w.block(f"for (int32_t step = 0; step < {steps}; step++)"):
        w.line(f"const int32_t time = {f'{steps - 1} - step' if o.reverse else 'step'};")
        w.line(f"const int32_t from = time{' + 1' if o.reverse else ''};")
        w.line(f"const int32_t to = time{'' if o.reverse else ' + 1'};")
        with w.loops((batch,), "n") as (n,):
            if site.has("lengths"):
                _keep_beyond_the_end(site, n, width)
            if o.resets_state:
                _reset(site, n, width)
            with w.loops((width,), "j") as (j,):
                _step(site, n, j, width)


def _keep_beyond_the_end(site: SourceSite, n: str, width: int) -> None:
    """A sequence that has ended keeps its state."""
    w = site.writer
    with w.block(f"if (time >= {site.load('lengths', (n,))})"):
        with w.loops((width,), "j") as (j,):
            site.store("dest", ("to", n, j), site.load("dest", ("from", n, j)))
        w.line("continue;")


def _reset(site: SourceSite, n: str, width: int) -> None:
    """The state after its reset, in a row of its own."""
    w, o = site.writer, site.operation
    kind = "float" if site.kind("dest").is_float else "int32_t"
    w.line(f"{kind} reset[{width}];")
    name = site.functions.of(o.reset, 3)
    with w.loops((width,), "j") as (j,):
        own = _product(site, "own", n, f"{width} + {j}")
        given = site.declared("float", "given", site.load("src", ("time", n, f"{width} + {j}")))
        value = f"{name}({given}, {own}, {site.load('carried', (n, j))})"
        real = site.declared("float", "real", value)
        w.line(f"reset[{j}] = {site.quantized('dest', real)};")


def _step(site: SourceSite, n: str, j: str, width: int) -> None:
    """The new state of one element."""
    w, o = site.writer, site.operation
    columns = [j if gate == 0 else f"{gate * width} + {j}" for gate in range(o.gates)]
    operands = [
        site.declared("float", f"given{gate}", site.load("src", ("time", n, column)))
        for gate, column in enumerate(columns)
    ]
    for gate, column in enumerate(columns):
        is_reset = o.resets_state and gate == o.gates - 1
        operands.append(_product(site, f"own{gate}", n, column, is_reset))
    operands.append(site.load("carried", (n, j)))
    if site.has("peepholes"):
        operands += [site.load("peepholes", (f"{number * width} + {j}",)) for number in range(3)]
    if site.has("bias"):
        operands.append(site.load("bias", (j,)))
    name = site.functions.of_several(_meaning(site), len(operands), 2)
    w.line("float results[2];")
    w.line(f"{name}({', '.join(operands)}, results);")
    site.store("dest", ("to", n, j), site.quantized("dest", "results[0]"))
    site.store("carried", (n, j), "results[1]")


def _product(site: SourceSite, name: str, n: str, column: str, is_reset: bool = False) -> str:
    """The product of the state, or of that after its reset, with a column of weights: a declared float."""
    w, (width, _) = site.writer, site.shape("filter")
    weight = site.load("filter", ("k", column))
    if site.kind("dest").is_float:
        w.line(f"float {name} = 0.0f;")
        state = "reset[k]" if is_reset else site.load("dest", ("from", n, "k"))
        w.line(f"for (int32_t k = 0; k < {width}; k++) {name} = fused({state}, {weight}, {name});")
        return name
    parameters = site.kind("dest").quantization
    assert parameters is not None
    state = f"(reset[k] - ({parameters.zero_point}))" if is_reset else site.steps("dest", ("from", n, "k"))
    w.line(f"int32_t {name}_sum = 0;")
    w.line(f"for (int32_t k = 0; k < {width}; k++) {name}_sum += {state} * {weight};")
    return site.declared("float", name, f"(float){name}_sum * {site.load('multiplier', (column,))}")


def _meaning(site: SourceSite) -> Callable[..., Sequence[Real]]:
    """The cell's step as a function of its operands one after the other."""
    cell, gates = site.operation, site.operation.gates
    count, peepholes, has_bias = 2 * gates + 1, 3 if site.has("peepholes") else 0, site.has("bias")

    def meaning(*x: Real) -> Sequence[Real]:
        seen, last = x[count : count + peepholes], x[count + peepholes] if has_bias else None
        results: Sequence[Real] = cell.step(x[:gates], x[gates : count - 1], x[count - 1], seen, last)
        return results

    return meaning
