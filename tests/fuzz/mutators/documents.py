"""Changes of YAML and JSON documents: other types, numbers, depth, anchors, keys and lengths."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.fuzz.mutators import raw
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE

VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.0, 1e-320, 1e300, float("nan"),
    float("inf"), float("-inf"), "", "nan", "inf", "1e400", "0x10", "1/0", "2/3", [], {}, [[]], [None],
    {"a": 1}, [1] * 50,
    b"bytes", "2026-01-01",
    {"x": {"y": [1, {"z": None}]}}, "../../x", "/dev/zero", "kl", "minmax", "re:(a+)+$", "re:[",
)  # fmt: skip
TEXTS = (
    "[" * 3000,
    "{a: " * 3000,
    "- " * 2000 + "x",
    "a: &x [1]\nb: *x\nc: *x\n",
    "a: &a [*a]\n",
    "&a {x: *a}\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c, *c, *c]\n",
    "? [1, 2]\n: 3\n",
    "? {a: b}\n: 3\n",
    "!!python/object/apply:os.system ['true']\n",
    "!!binary xx\n",
    "!!timestamp 99999-99-99\n",
    "a: 2026-99-99\n",
    "a: 1\na: 2\n",
    "--- 1\n--- 2\n",
    "%YAML 9.9\n---\na: 1\n",
    "\ufeffa: 1\n",
    "a:\n\t- b\n",
    "a: \x01\n",
    "0o777777777777777777777777\n",
    "a: 1:2:3:4:5\n",
    "x" * 100_000,
    "<<: 1\n",
    "a: !!float 1__\n",
    "a: !!int _\n",
    "",
    "null\n",
    "[]\n",
    "- a\n",
    "3\n",
)


def mutated_yaml(rng: Random, data: bytes) -> bytes:
    """A document with a change of its structure, its text or its bytes."""
    draw = rng.random()
    if draw < 0.2:
        return raw.mutated(rng, data)
    if draw < 0.35:
        text = TEXTS[int(rng.integers(len(TEXTS)))].encode("utf-8", "surrogatepass")
        return text if rng.random() < 0.5 else data + b"\n" + text
    document = changed(rng, yaml.safe_load(data))
    text = yaml.safe_dump(document, allow_unicode=bool(rng.random() < 0.5), sort_keys=False)
    return text.encode("utf-8", "surrogatepass")


def mutated_json(rng: Random, data: bytes) -> bytes:
    """The same for JSON, whose numbers may be NaN and without end too."""
    draw = rng.random()
    if draw < 0.2:
        return raw.mutated(rng, data)
    if draw < 0.25:
        return b"[" * 100_000 if rng.random() < 0.5 else b'{"a":' * 50_000
    if draw < 0.3:
        return b"9" * 5000
    return json.dumps(changed(rng, json.loads(data)), default=repr).encode()


def changed(rng: Random, document: Any) -> Any:
    """A document with one to three other values, keys or lengths."""
    for _ in range(int(rng.integers(1, 4))):
        document = _change(rng, document)
    return document


def _change(rng: Random, part: Any) -> Any:
    """Go down at random, and change what is there."""
    if isinstance(part, dict) and part and rng.random() < 0.85:
        keys = list(part)
        key = keys[int(rng.integers(len(keys)))]
        draw = rng.random()
        if draw < 0.7:
            return {**part, key: _change(rng, part[key])}
        if draw < 0.8:
            return {k: v for k, v in part.items() if k != key}
        if draw < 0.9:
            return {(_text(rng) if k == key else k): v for k, v in part.items()}
        return {**part, _text(rng): part[key]}
    if isinstance(part, list) and part and rng.random() < 0.85:
        index = int(rng.integers(len(part)))
        draw = rng.random()
        if draw < 0.7:
            return [*part[:index], _change(rng, part[index]), *part[index + 1 :]]
        return part[:index] + part[index + 1 :] if draw < 0.85 else part + [part[index]] * 3
    if isinstance(part, str) and part and rng.random() < 0.4:
        return raw.mutated(rng, part.encode()).decode("latin-1").replace("\x85", "")
    if isinstance(part, int | float) and rng.random() < 0.3:
        return -part if rng.random() < 0.5 else part * 1_000_003
    return VALUES[int(rng.integers(len(VALUES)))] if rng.random() < 0.85 else _text(rng)


def _text(rng: Random) -> str:
    return HOSTILE[int(rng.integers(len(HOSTILE)))]


def mutated_csv(rng: Random, data: bytes) -> bytes:
    """Labels: other columns, numbers beyond all bounds, quotes that do not end."""
    if rng.random() < 0.4:
        return raw.mutated(rng, data)
    lines = data.decode().splitlines()
    index = int(rng.integers(len(lines)))
    cells = lines[index].split(",")
    values = (
        "99999999999999999999999",
        "-1",
        "",
        "nan",
        "1.5",
        '"open',
        "\0",
        "x" * 200_000,
        "١",
        "1_0",
        " 3 ",
    )
    cells[int(rng.integers(len(cells)))] = values[int(rng.integers(len(values)))]
    lines[index] = ",".join(cells)
    return "\n".join(lines).encode()
