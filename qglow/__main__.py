"""`python -m qglow` is the command line."""

from __future__ import annotations

import sys

from qglow.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
