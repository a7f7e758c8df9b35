#!/usr/bin/env bash
# Installs the browser that pages of reports are tested in, on Debian and Ubuntu.
set -euo pipefail
run=()
if [[ "$(id -u)" -ne 0 ]]; then run=(sudo); fi
timeout 120 "${run[@]}" apt-get update -q
timeout 300 "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    chromium chromium-driver
