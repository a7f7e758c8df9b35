#!/usr/bin/env bash
# Makes a folder with Debian's Python for 64-bit Arm, qglow's dependencies as wheels for Arm and qglow's own
# wheel, and runs Python or short tests in it under qemu-aarch64. Needs apt-get, dpkg-deb and qemu-aarch64.
#
#   bash scripts/aarch64_root.sh DIR                        make it, and say which targets run there
#   bash scripts/aarch64_root.sh DIR -m pytest -q PATH ...  run Python in it, after making it once
#
# QEMU_CPU names the processor, "max" unless it is set: cortex-a72 has no dot products.
set -euo pipefail
root="$(mkdir -p "$1" && cd "$1" && pwd)"
shift
project="$(cd "$(dirname "$0")/.." && pwd)"
packages=(python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6
    zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libncursesw6 libtinfo6
    libreadline8 libcrypt1)
site="$root/site"

if [[ ! -e "$root/complete" ]]; then
    mkdir -p "$root"/{lists,cache,debs,wheels}
    apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
        -o Dir::State::Lists="$root/lists" -o Dir::Cache="$root/cache" -o Dir::State::status=/dev/null)
    "${apt[@]}" update
    (cd "$root/debs" && "${apt[@]}" download "${packages[@]}")
    for package in "$root"/debs/*.deb; do dpkg-deb -x "$package" "$root"; done
    python -m pip wheel -q --no-deps -w "$root/wheels" "$project"
    platforms=()
    for glibc in 2_28 2_27 2_17 2014; do
        name="manylinux_${glibc}_aarch64"
        platforms+=(--platform "${name/_2014/2014}")
    done
    python -m pip install -q --target "$site" --only-binary=:all: --python-version 3.11 --implementation cp \
        --abi cp311 --abi abi3 --abi none "${platforms[@]}" "$root"/wheels/qglow-*.whl pytest hypothesis pytest-timeout
    # onnxruntime's wheel ends Python under QEMU 7.2 when it is imported (segmentation fault, on every processor).
    rm -rf "$site"/onnxruntime*
    touch "$root/complete"
fi

# Python starts others of its kind by this script: the host has no other way to run a program for Arm.
cat > "$root/python" <<END
#!/usr/bin/env bash
exec qemu-aarch64 -cpu "\${QEMU_CPU:-max}" -L "$root" -E PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$site" \\
    -E PYTHONDONTWRITEBYTECODE=1 -E QGLOW_CACHE="$root/cache/qglow" "$root/usr/bin/python3.11" "\$@"
END
chmod +x "$root/python"
echo "import sys; sys.executable = '$root/python'" > "$site/sitecustomize.py"

if [[ $# -eq 0 ]]; then
    "$root/python" -c "from qglow.targets.registry import running_names; print(*running_names())"
else
    exec "$root/python" "$@"
fi
