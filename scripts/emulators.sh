#!/usr/bin/env bash
# Installs the emulators that bundles of other processors run in, on Debian and Ubuntu: QEMU for Linux programs and
# for Arm boards. The C compiler for them comes with `pip install 'qglow[emulation]'`.
set -euo pipefail
wanted=(qemu-user qemu-system-arm)
missing=()
for package in "${wanted[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
    echo "All emulators are installed."
    exit 0
fi
run=()
if [[ "$(id -u)" -ne 0 ]]; then run=(sudo); fi
"${run[@]}" apt-get update -q
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
