"""Roles of the inputs of language models, told by names and shapes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qglow.core.errors import UsageError
from qglow.core.types import ElementType, TensorType, float_type
from qglow.generation.roles import Roles, find_roles, scores_output

ROLES: Mapping[str, tuple[dict[str, list[int | str]], Roles]] = {
    "optimum": (
        {
            "input_ids": ["batch", "new"],
            "attention_mask": ["batch", "past + new"],
            "position_ids": ["batch", "new"],
            "past_key_values.0.key": ["batch", 4, "past", 16],
        },
        Roles("input_ids", "attention_mask", "position_ids", None, ("past_key_values.0.key",), "new", "past"),
    ),
    "own name of the total": (
        {
            "tokens": [1, "s"],
            "mask": [1, "total_len"],
            "token_type_ids": [1, "s"],
            "past_0": [2, 1, 4, "p", 16],
        },
        Roles("tokens", "mask", None, "token_type_ids", ("past_0",), "s", "p", "total_len"),
    ),
    "names of their own": (
        {
            "input_ids": ["s0", "s1"],
            "attention_mask": ["s2", "s3"],
            "position_ids": ["s4", "s5"],
            "past.0.key": ["s0", 2, "s6", 16],
            "past.0.value": ["s0", 2, "s7", 16],
        },
        Roles(
            "input_ids",
            "attention_mask",
            "position_ids",
            None,
            ("past.0.key", "past.0.value"),
            "s1",
            "s6",
            "s3",
            alike={"s7": "s6", "s5": "s1"},
        ),
    ),
    "a mask with a name of its own": (
        {"input_ids": ["s0", "s1"], "attention_mask": ["s2", "s3"]},
        Roles("input_ids", "attention_mask", new="s1", alike={"s3": "s1"}),
    ),
    "fixed": ({"tokens": ["N", 128]}, Roles("tokens", length=128)),
    "one token a call": (
        {"input_ids": ["n", 1], "attention_mask": ["n", "total"], "cache_position": [1], "past": [1, "p", 8]},
        Roles("input_ids", "attention_mask", None, None, ("past",), None, "p", "total", row="cache_position"),
    ),
    "positions of one axis": (
        {"input_ids": ["batch", "new"], "cache_position": ["new"], "past_positions": [1, 4, "past", 16]},
        Roles("input_ids", states=("past_positions",), new="new", past="past", row="cache_position"),
    ),
    "positions of both kinds": (
        {"input_ids": ["batch", "new"], "position_ids": ["batch", "new"], "cache_position": ["new"]},
        Roles("input_ids", positions="position_ids", new="new", row="cache_position"),
    ),
}


@pytest.mark.parametrize("kind", ROLES)
def test_roles_are_told_by_names(kind: str) -> None:
    inputs, wanted = ROLES[kind]
    assert find_roles(inputs) == wanted


def test_bounds_follow_from_roles() -> None:
    assert find_roles(ROLES["optimum"][0]).bounds(1024, 64) == {"new": (1, 16, 64), "past": (256, 1024)}
    assert find_roles(ROLES["optimum"][0]).bounds(1024, 31) == {"new": (1, 31), "past": (256, 1024)}
    assert find_roles(ROLES["own name of the total"][0]).bounds(128, 32) == {
        "s": (1, 16, 32),
        "p": (128,),
        "total_len": "p + s",
    }
    assert find_roles(ROLES["names of their own"][0]).bounds(128, 32) == {
        "s1": (1, 16, 32),
        "s6": (128,),
        "s7": "s6",
        "s5": "s1",
        "s3": "s6 + s1",
    }
    assert find_roles(ROLES["fixed"][0]).bounds(512, 64) == {}
    assert find_roles(ROLES["one token a call"][0]).bounds(257, 64) == {"p": (256,), "total": "p + 1"}


@pytest.mark.parametrize(("length", "message"), [(None, "has no name in the file"), (4, "has 4 tokens")])
def test_other_numbers_of_tokens_beside_a_cache_are_refused(length: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=f"'input_ids' {message}"):
        find_roles({"input_ids": [1, length], "past": [1, 4, "p", 8]})


def test_scores_are_told_from_other_outputs() -> None:
    counts = TensorType(ElementType.INT64, (1, 2, 3))
    rows = {"hidden_states": float_type(1, 4, 8), "counts": counts, "mean": float_type(1, 8)}
    assert scores_output({**rows, "y": float_type(1, 4, 50)}) == "y"
    assert scores_output({**rows, "y": float_type(1, 4, 9), "hidden_logits": float_type(1, 4, 50)}) == (
        "hidden_logits"
    )
    with pytest.raises(UsageError, match="'hidden_states' is what the layer that gives scores would read"):
        scores_output(rows)
    with pytest.raises(UsageError, match="no output is scores of tokens; the outputs are counts, mean"):
        scores_output({"counts": counts, "mean": rows["mean"]})


def test_a_model_without_its_table_is_refused_by_name() -> None:
    inputs = {"inputs_embeds": ("batch", "tokens", 64), "attention_mask": ("batch", "total")}
    with pytest.raises(UsageError, match="'inputs_embeds' takes what a table makes of them"):
        find_roles(inputs)
