"""Lists the ONNX operators that can be imported.

python scripts/list_operators.py [--update-readme]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from readme_tables import update_readme

from qglow.importer.rules import OLDEST_OPSET, contributed_operators, supported_operators


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list, and put it into README.md where that is asked for."""
    parser = argparse.ArgumentParser(description="Lists the ONNX operators that can be imported.")
    parser.add_argument("--update-readme", action="store_true", help="put the list into README.md")
    options = parser.parse_args(arguments)
    names = supported_operators()
    text = f"{len(names)} operators of opset {OLDEST_OPSET} and later: {', '.join(names)}."
    others = contributed_operators()
    text += f" {len(others)} of com.microsoft, onnxruntime's own: {', '.join(others)}."
    print(text)
    if options.update_readme:
        update_readme("operators", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
