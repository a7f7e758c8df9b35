#!/usr/bin/env bash
# Runs the property tests and the problem suites on many new random examples.
#   bash scripts/fuzz.sh [SEED] [ARGUMENTS OF PYTEST]
#   bash scripts/fuzz.sh files [SEED] [ARGUMENTS OF tests.fuzz]
# The second runs the commands on 100,000 hostile files (models, profiles, recipes, baselines, data, images,
# artefacts) on all processors, and prints how each command answered; --cases says how many.
# Without a seed one is drawn and printed: the same command with it draws the same examples again.
# QGLOW_FUZZ_FACTOR says how many examples are drawn for each of a usual run (default 20).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare test,images
cd "$repository"

if [ "${1:-}" = files ]; then
    seed="${2:-$RANDOM$RANDOM}"
    echo "repeat with: bash scripts/fuzz.sh files $seed ${*:3}"
    exec "$environment/bin/python" -m tests.fuzz --cases 100000 --corpus --jobs "$(nproc)" --seed "$seed" "${@:3}"
fi

seed="${1:-$RANDOM$RANDOM}"
export QGLOW_FUZZ_SEED="$seed" QGLOW_FUZZ_FACTOR="${QGLOW_FUZZ_FACTOR:-20}"
echo "seed $seed, $QGLOW_FUZZ_FACTOR examples for each usual one; repeat with: bash scripts/fuzz.sh $seed ${*:2}"
pytest() {
    "$environment/bin/python" -m pytest -q --hypothesis-profile=long --hypothesis-seed="$seed" "$@"
}
echo "== properties"
pytest -m hypothesis tests/unit tests/end_to_end/test_damage.py "${@:2}"
echo "== problems on every runtime"
pytest tests/test_runtimes.py "${@:2}"
