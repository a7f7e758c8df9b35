"""Attention of decoders with its cache, held against onnxruntime's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from tests.unit.importer.test_transformers import Fused, reals
from tests.unit.importer.tiny import save, session

HEADS, GROUPS, DEPTH = 4, 2, 16
ANGLES = np.random.default_rng(5).uniform(-3, 3, (40, DEPTH // 2)).astype(np.float32)
TURNS = {"cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}


@dataclass(frozen=True)
class Call:
    """A call with `new` tokens for samples that have `ends` tokens after it; past: places in the cache.

    total: the most tokens of a sample, where it is not the largest of `ends`.
    """

    ends: tuple[int, ...]
    new: int
    past: int | None = None
    rotary: bool = False
    packed: bool = False
    more: Mapping[str, Array | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def node(self) -> Fused:
        samples = len(self.ends)
        inputs: dict[str, Array | None] = {
            name: reals(samples, self.new, count * DEPTH)
            for name, count in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        }
        if self.packed:
            inputs = {"q": reals(samples, self.new, (HEADS + 2 * GROUPS) * DEPTH), "k": None, "v": None}
        for name in ("past_k", "past_v"):
            inputs[name] = None if self.past is None else reals(samples, GROUPS, self.past, DEPTH)
        inputs["last"] = np.array(self.ends, np.int32) - 1
        inputs["total"] = np.array(max(self.ends), np.int32)
        inputs |= TURNS if self.rotary else {"cos": None, "sin": None}
        inputs |= self.more
        attributes = {
            "num_heads": HEADS,
            "kv_num_heads": GROUPS,
            "do_rotary": int(self.rotary),
            **self.attributes,
        }
        outputs = ("y", "keys", "values")
        return Fused("GroupQueryAttention", inputs, attributes, ("total", "cos", "sin"), outputs)

    def known(self, output: str, found: Array) -> list[Array]:
        """What the operator tells of a result: tokens of each sample, not what is behind them."""
        begins = max(self.ends) == self.new
        if output == "y":
            return [found[i, :end] if begins else found[i] for i, end in enumerate(self.ends)]
        return [found[i, :, :end] for i, end in enumerate(self.ends)]


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


CASES: Mapping[str, Call] = {
    "prompt": Call((5,), 5),
    "prompt-turned": Call((5,), 5, 0, rotary=True),
    "prompts-padded": Call((5, 3), 5, 0, rotary=True),
    "prompt-placed": Call((5,), 5, 0, True, more={"at": whole(7, 8, 9, 10, 11)[None]}),
    "prompt-both-ways": Call((5, 3), 5, 0, attributes={"causal": 0}),
    "one-more": Call((5,), 1, 4, rotary=True),
    "more": Call((9,), 3, 6, rotary=True),
    "more-placed": Call((9,), 3, 6, True, more={"at": whole(2, 3, 4)[None]}),
    "more-near": Call((9,), 3, 6, rotary=True, attributes={"rotary_interleaved": 1}),
    "more-both-ways": Call((9,), 3, 6, attributes={"causal": 0}),
    "packed": Call((9,), 3, 6, rotary=True, packed=True),
    "samples": Call((5, 5), 1, 4, rotary=True),
    "samples-apart": Call((5, 3), 1, 4, rotary=True),
    "samples-both-ways": Call((5, 3), 1, 4, attributes={"causal": 0}),
    "window": Call((9,), 3, 6, attributes={"local_window_size": 4}),
    "window-one": Call((9,), 1, 8, rotary=True, attributes={"local_window_size": 3}),
    "window-samples": Call((9, 4), 1, 8, rotary=True, attributes={"local_window_size": 3}),
    "buffer": Call((7,), 3, 16, rotary=True),
    "buffer-prompt": Call((5, 4), 5, 16, rotary=True),
    "buffer-samples": Call((7, 4), 1, 16, rotary=True, attributes={"local_window_size": 5}),
    "window-kept": Call((7,), 3, 9, attributes={"local_window_size": 4, "sliding_window_cache": 1}),
    "capped": Call((9,), 3, 6, attributes={"softcap": 1.5, "scale": 0.4}),
    "biased": Call((9,), 3, 6, more={"at": None, "bias": reals(1, HEADS, 3, 9)}),
    "smooth": Call((9,), 3, 6, attributes={"smooth_softmax": 1}),
    "sinks": Call((9, 9), 1, 8, more={"at": None, "bias": None, "sinks": reals(HEADS)}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_gives_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    call = CASES[name]
    case = call.node()
    path = save(case.model(), tmp_path)
    model = qglow.load_model(path, native=True)
    given = {n: a for n, a in case.inputs.items() if a is not None and n not in case.constants}
    expected = dict(zip(case.outputs, session(path).run(list(case.outputs), given), strict=True))
    for found in (model.interpret(given), model.compile()(given)):
        for output in case.outputs:
            assert found[output].shape == expected[output].shape
            pairs = zip(call.known(output, found[output]), call.known(output, expected[output]), strict=True)
            for one, other in pairs:
                np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_a_buffer_keeps_what_is_behind_its_tokens(tmp_path: Path) -> None:
    case = Call((7,), 3, 16).node()
    given = {n: a for n, a in case.inputs.items() if a is not None and n not in case.constants}
    found = qglow.load_model(save(case.model(), tmp_path)).compile()(given)
    np.testing.assert_array_equal(found["keys"][:, :, 7:], given["past_k"][:, :, 7:])
    np.testing.assert_array_equal(found["keys"][:, :, :4], given["past_k"][:, :, :4])


def test_a_cache_of_a_window_grows_while_it_holds_all_tokens(tmp_path: Path) -> None:
    attributes = {"local_window_size": 4, "sliding_window_cache": 1}
    case = Call((9,), 3, 6, rotary=True, attributes=attributes).node()
    given = {n: a for n, a in case.inputs.items() if a is not None and n not in case.constants}
    path = save(case.model(), tmp_path)
    found = qglow.load_model(path, native=True).compile()(given)
    y, keys = session(path).run(["y", "keys"], given)
    np.testing.assert_allclose(found["y"], y, rtol=2e-4, atol=2e-5)
    assert found["keys"].shape[2] == 9
    np.testing.assert_array_equal(found["keys"][:, :, :6], given["past_k"])
    kept = 9 - 3 * -(-(9 - 6) // 3)  # of 9 tokens in 6 places, by the operator's own rule
    np.testing.assert_allclose(found["keys"][:, :, -kept:], keys[:, :, :kept], rtol=2e-4, atol=2e-5)


REFUSED: Mapping[str, tuple[Call, str]] = {
    "integers": (
        Call((9,), 3, 6, attributes={"k_quant_type": "PER_TENSOR"}),
        "k_quant_type is not NONE",
    ),
    "forgotten": (
        Call((9,), 3, 5, attributes={"sliding_window_cache": 1, "local_window_size": 4}),
        "9 tokens, 3 of them new, with 5 places in the cache",
    ),
    "forgetting": (
        Call((9,), 9, 6, attributes={"sliding_window_cache": 1, "local_window_size": 4}),
        "9 tokens, 9 of them new, with 6 places in the cache",
    ),
    "norms": (
        Call(
            (9,),
            3,
            6,
            more=dict.fromkeys(("at", "bias", "sinks", "k_scale", "v_scale")) | {"norm": reals(DEPTH)},
        ),
        "a norm of queries",
    ),
    "short": (Call((9,), 3, 5), "9 tokens, 3 of them new, with 5 places in the cache"),
    "pieces": (Call((9, 9), 3, 6), "3 new tokens of 2 samples that have others before"),
    "heads": (Call((5,), 5, attributes={"kv_num_heads": 3}), "4 heads of queries for 3 of keys"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    call, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        qglow.load_model(save(call.node().model(), tmp_path), native=True)


def test_a_call_may_give_the_number_of_tokens(tmp_path: Path) -> None:
    case = Call((9,), 3, 6, rotary=True).node()
    case.constants = ("cos", "sin")
    path = save(case.model(), tmp_path)
    given = {n: a for n, a in case.inputs.items() if a is not None and n not in case.constants}
    found = qglow.load_model(path).compile()(given)
    (expected,) = session(path).run(["y"], given)
    np.testing.assert_allclose(found["y"], expected, rtol=2e-4, atol=2e-5)
