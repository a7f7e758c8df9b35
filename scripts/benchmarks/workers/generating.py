"""Loads a compiled language model and adds tokens with it: the worker of the benchmark `large`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import qglow


def main(words: Sequence[str]) -> int:
    """Print seconds of loading and tokens a second, as JSON. words: the file, and how many tokens."""
    path, count = Path(words[0]), int(words[1])
    load, load_generator = qglow.load, qglow.load_generator  # asking for them imports what they need
    begun = time.perf_counter()
    generator = load_generator(load(path, trust=True, threads=1))
    loaded = time.perf_counter()
    generator.read([1, 2, 3])
    first = time.perf_counter()
    added = len(list(generator.generate([1, 2, 3], count)))
    seconds = time.perf_counter() - first
    print(json.dumps({"load": loaded - begun, "first": first - loaded, "rate": added / seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
