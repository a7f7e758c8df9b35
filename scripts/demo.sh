#!/usr/bin/env bash
# Sets up what is needed and takes the example model (handwritten digits) through qglow's main job:
# profile over calibration data, quantize to int8, compare with onnxruntime on data not seen before, time both.
# The results are in demo-output/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare images
cd "$repository"

run() {
    printf '\n$ %s\n' "$*"
    "$environment/bin/$1" "${@:2}"
}

run qglow profile calib_data/digits.onnx --data calib_data/calib.npz -o demo-output/profile.yaml
run qglow quantize --profile demo-output/profile.yaml --data calib_data/test.npz -o demo-output/quantized
run qglow bench demo-output/quantized

printf '\nThe report lies in %s\n' "$repository/demo-output/quantized (report.html, report.md, report.json)"
