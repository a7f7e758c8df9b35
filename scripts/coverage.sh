#!/usr/bin/env bash
# Measures which lines of qglow the tests execute, and shows the files with lines that none does.
# Takes up to twice the time of the tests alone. Arguments go to pytest, for example --cov-units, which traces
# the fast unit tests alone: bash scripts/coverage.sh --cov-units tests/unit -m "not slow"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare test,images,docs
cd "$repository"
exec "$environment/bin/python" -m pytest -q -n 2 --dist worksteal --cov --cov-report=term "$@"
