#!/usr/bin/env bash
# Sets up what is needed and runs every check: style, types, tests, accuracy of the example.
# Arguments go to pytest, for example: bash scripts/test.sh -m "not slow" -n 2
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare test,images,docs,emulation
cd "$repository"

echo "== ruff: style"
"$environment/bin/ruff" check .
echo "== mypy: types; mkdocs: documentation"
site="$(mktemp -d)"
trap 'rm -rf "$site"' EXIT
NO_MKDOCS_2_WARNING=1 "$environment/bin/mkdocs" build --strict --quiet --site-dir "$site" &
"$environment/bin/mypy"
wait $!
echo "== pytest: tests"
"$environment/bin/python" -m pytest "$@"
echo "== qglow check: accuracy of the example"
"$environment/bin/qglow" check --baseline calib_data/accuracy.yaml
echo "All checks passed."
