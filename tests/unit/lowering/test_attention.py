"""Attention in single operators becomes one instruction where nobody reads what is between its products."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.functions import Tanh
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.quantize import Quantize
from qglow.graph.ops.selection import Where
from qglow.graph.ops.softmax import Softmax
from qglow.instructions.ops.attention import Attention
from qglow.instructions.passes import optimize
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.lowering import lower
from tests.fuzzing import seed_of
from tests.runtimes import HOST_ISAS, compare, run_compiled
from tests.suite.attention import FORMS, attention

WHOLE = [f"{form.leading}-{form.rows}x{form.keys}-{form.zeros}-{'-'.join(form.steps)}" for form in FORMS]


def opcodes(program: Program) -> list[str]:
    """Operations that compute."""
    return [i.operation.opcode for i in program.code if i.operation.touches_memory]


def optimized(graph: Graph, whole: bool = True, live: dict[str, object] | None = None) -> Program:
    """The program after the passes."""
    program = lower(graph, live=live or {}, whole=whole)
    optimize(program)
    return program


@pytest.mark.parametrize("form", FORMS, ids=WHOLE)
def test_one_instruction_has_the_bits_of_the_single_ones(form: object) -> None:
    problem = attention(form)(np.random.default_rng(seed_of(repr(form))))  # type: ignore[arg-type]
    one, single = (optimized(problem.graph, whole) for whole in (True, False))
    assert opcodes(one).count("attention") == 1
    assert not {"softmax", "matmul"} & set(opcodes(one))
    assert "attention" not in opcodes(single)
    for isa in HOST_ISAS:
        expected, actual = (run_compiled(p, isa, problem.inputs) for p in (single, one))
        for name, wanted in expected.items():
            compare(actual[name], wanted, f"{form} on {isa}")


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vectors_of_all_widths_give_the_same_bits(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the host's vectors are: the compiler splits those that are wider."""
    for form in FORMS:
        problem = attention(form)(np.random.default_rng(seed_of(repr(form))))
        isa = HOST_ISAS[-1]
        expected = run_compiled(optimized(problem.graph), isa, problem.inputs)
        with monkeypatch.context() as patched:
            patched.setattr(VectorTarget, "float_lanes", property(lambda target: lanes))
            actual = run_compiled(optimized(problem.graph), isa, problem.inputs)
        for name, wanted in expected.items():
            compare(actual[name], wanted, f"{form} with {lanes} lanes")


class Drawn:
    """Attention over 5 queries and 12 keys, step by step."""

    def __init__(self) -> None:
        self.b = GraphBuilder("attention")
        sizes = {"q": (2, 5, 8), "k": (2, 8, 12), "v": (2, 12, 16)}
        self.q, self.k, self.v = (self.input(name, *shape) for name, shape in sizes.items())

    def input(self, name: str, *shape: int) -> Value:
        """A float input."""
        return self.b.input(name, TensorType(ElementType.FLOAT, shape))

    def bools(self, name: str, *shape: int) -> Value:
        """An input of booleans."""
        return self.b.input(name, TensorType(ElementType.BOOL, shape))

    def scores(self, integers: bool) -> Value:
        """Products of queries and keys, which are quantized first, or not."""
        zeros = zip((self.q, self.k), (3, -7), strict=True)
        kinds = [value.type.quantized(Quantization.per_tensor(0.02, zero)) for value, zero in zeros]
        if integers:
            pairs = zip((self.q, self.k), kinds, strict=True)
            self.q, self.k = (self.b.node(Quantize(), x, output_types=[kind]) for x, kind in pairs)
        (kind,) = MatMul().infer([self.q.type, self.k.type])
        kind = TensorType(ElementType.FLOAT, kind.shape)
        return self.b.node(MatMul(), self.q, self.k, output_types=[kind])

    def finish(self, scores: Value, *others: Value) -> Graph:
        """Softmax and the mean of values; `others` are outputs, too."""
        shares = self.b.node(Softmax(axis=-1), scores)
        return self.b.finish(self.b.node(MatMul(), shares, self.v), *others)


def test_scores_that_somebody_reads_stay_single() -> None:
    drawn = Drawn()
    scores = drawn.b.node(MatMul(), drawn.q, drawn.k)
    assert opcodes(optimized(drawn.finish(scores, scores))) == ["matmul", "softmax", "matmul"]


def test_a_step_that_the_instruction_lacks_stays_single() -> None:
    drawn = Drawn()
    scores = drawn.b.node(Tanh(), drawn.b.node(MatMul(), drawn.q, drawn.k))
    assert "attention" not in opcodes(optimized(drawn.finish(scores)))


def test_factors_for_each_head_stay_single() -> None:
    drawn = Drawn()
    factors = drawn.b.constant("factors", np.array([[[1.0]], [[2.0]]], np.float32))
    scores = drawn.b.node(Mul(), drawn.b.node(MatMul(), drawn.q, drawn.k), factors)
    assert "attention" not in opcodes(optimized(drawn.finish(scores)))


def test_an_addend_may_be_a_product_itself() -> None:
    """Relative positions: either of the products may be that of queries and keys, the other is added."""
    drawn = Drawn()
    other = drawn.b.node(MatMul(), drawn.q, drawn.input("r", 2, 8, 12))
    graph = drawn.finish(drawn.b.node(Add(), drawn.b.node(MatMul(), drawn.q, drawn.k), other))
    program = optimized(graph)
    assert opcodes(program).count("matmul") == opcodes(program).count("attention") == 1
    (operation,) = (i.operation for i in program.code if i.operation.opcode == "attention")
    assert operation == Attention()


def test_origin_names_every_node() -> None:
    drawn = Drawn()
    graph = drawn.finish(drawn.b.node(MatMul(), drawn.q, drawn.k))
    (instruction,) = (i for i in optimized(graph).code if i.operation.opcode == "attention")
    assert instruction.origin == tuple(node.name for node in graph.nodes)


LIVE = {"live": "count", "live_rows": "count"}


def bounded(keys: int, integers: bool = False) -> Graph:
    """Attention of which the first places of `keys` count, as graphs of run-time sizes have it."""
    drawn = Drawn()
    drawn.k, drawn.v = drawn.input("keys", 2, 8, keys), drawn.input("values", 2, keys, 16)
    b, one = drawn.b, (1, 1, 1)
    scores = drawn.scores(integers)
    least = b.constant("least", np.full(one, -np.inf, np.float32))
    zero = b.constant("zero", np.zeros(one, np.float32))
    scores = b.node(Where(), drawn.bools("live", keys), scores, least)
    drawn.v = b.node(Where(), drawn.bools("live_rows", keys, 1), drawn.v, zero)
    return drawn.finish(scores)


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_only_live_places_are_read(count: int, integers: bool) -> None:
    """What lies behind them may be anything, and the result is that of a graph of their number."""
    random = np.random.default_rng(count)
    q, k, v = (random.normal(size=s).astype(np.float32) for s in [(2, 5, 8), (2, 8, 40), (2, 40, 16)])
    live = np.arange(40) < count
    kept: dict[str, Array] = {"q": q, "keys": k.copy(), "values": v.copy()}
    kept["keys"][..., count:] = np.nan
    kept["values"][:, count:] = np.nan
    program = optimized(bounded(40, integers), live=LIVE)
    assert "select" not in opcodes(program) and "attention" in opcodes(program)
    drawn = Drawn()
    drawn.k, drawn.v = drawn.input("keys", 2, 8, count), drawn.input("values", 2, count, 16)
    small = optimized(drawn.finish(drawn.scores(integers)))
    for isa in HOST_ISAS:
        given = {**kept, "live": live, "live_rows": live[:, None]}
        (actual,) = run_compiled(program, isa, given).values()
        fewer = {"q": q, "keys": k[..., :count].copy(), "values": v[:, :count].copy()}
        (expected,) = run_compiled(small, isa, fewer).values()
        compare(actual, expected, f"{count} places on {isa}")


def test_a_choice_by_other_inputs_is_a_condition() -> None:
    program = optimized(bounded(40))
    (instruction,) = (i for i in program.code if i.operation.opcode == "attention")
    assert instruction.optional("live") is None and instruction.optional("condition") is not None
    assert "select" in opcodes(program)
