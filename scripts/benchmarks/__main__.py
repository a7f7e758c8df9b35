"""The command line: `python -m scripts.benchmarks NAME [options]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scripts.benchmarks.catalogue import ENTRIES, PROGRAM
from scripts.benchmarks.frame import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that is named, with the options behind its name; list all without one.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} NAME [options]",
        description=f"Measures qglow beside other tools. {PROGRAM} NAME --help shows the options of one.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [entry.name for entry in ENTRIES]
    parser.add_argument("name", nargs="?", choices=known, metavar="NAME", help="see below")
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.name is None:
        parser.print_help()
        return 0
    [entry] = [entry for entry in ENTRIES if entry.name == chosen.name]
    return run(entry.load(), chosen.options, entry.name)


def _listing() -> str:
    """One line for each benchmark, and what it needs."""
    width = max(len(entry.name) for entry in ENTRIES)
    lines = []
    for entry in ENTRIES:
        needs = f" (needs {', '.join(entry.needs)})" if entry.needs else ""
        lines.append(f"  {entry.name:{width}}  {entry.summary}{needs}")
    note = "QGLOW_ZOO is the folder of models and labelled data; most run without it on --models digits."
    return "\n".join(["benchmarks:", *lines, "", note])


if __name__ == "__main__":
    sys.exit(main())
