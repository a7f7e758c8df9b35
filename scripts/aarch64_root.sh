#!/usr/bin/env bash
# Makes a folder with Debian's Python for 64-bit Arm, qglow's dependencies as wheels for Arm and qglow's own
# wheel, and runs Python or tests in it under qemu-aarch64. Needs Debian's apt-get and dpkg-deb. The wheel is made
# anew where the package has changed; one run at a time, since a run decides which project's tests lie there.
#
#   bash scripts/aarch64_root.sh DIR                     make it, and say which targets run there
#   bash scripts/aarch64_root.sh DIR -m qglow ...        run Python in it, after making it once
#   bash scripts/aarch64_root.sh DIR --tests [PATH ...]  run the short tests of these paths there, one path after
#                                                        the other, against the installed wheel; all unit tests
#                                                        without paths, which takes many hours
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
apt=(apt-get -q -o APT::Sandbox::User=root -o Dir::State::Lists="$root/lists" -o Dir::Cache="$root/cache")

# The import of onnxruntime ends in a segmentation fault under QEMU 7.2, and works under 10.0.
emulator() {
    local version
    version="$(qemu-aarch64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')"
    if [[ "${version:-0}" -ge 10 ]]; then
        ln -sf "$(command -v qemu-aarch64)" "$root/qemu-aarch64"
        return
    fi
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] http://deb.debian.org/debian bookworm-backports main" > "$root/backports.list"
    local backports=("${apt[@]}" -o Dir::Etc::SourceList="$root/backports.list" -o Dir::Etc::SourceParts=/dev/null)
    mkdir -p "$root"/{lists,cache,qemu}
    "${backports[@]}" update
    (cd "$root/qemu" && "${backports[@]}" download qemu-user && dpkg-deb -x qemu-user_*.deb .)
    mv "$root/qemu/usr/bin/qemu-aarch64" "$root/qemu-aarch64"
    rm -r "$root/qemu" "$root/lists"
}

if [[ ! -e "$root/complete" ]]; then
    emulator
    mkdir -p "$root"/{lists,cache,debs,wheels}
    arm=("${apt[@]}" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::status=/dev/null)
    "${arm[@]}" update
    (cd "$root/debs" && "${arm[@]}" download "${packages[@]}")
    for package in "$root"/debs/*.deb; do dpkg-deb -x "$package" "$root"; done
    touch "$root/complete"
fi

# qglow's wheel and, the first time, what it needs; anew where the project has changed.
install() {
    local platforms=() glibc name
    for glibc in 2_28 2_27 2_17 2014; do
        name="manylinux_${glibc}_aarch64"
        platforms+=(--platform "${name/_2014/2014}")
    done
    rm -f "$root"/wheels/qglow-*.whl
    python -m pip wheel -q --no-deps -w "$root/wheels" "$project"
    python -m pip install -q --target "$site" --upgrade --only-binary=:all: --python-version 3.11 \
        --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" "$@" "$root"/wheels/qglow-*.whl
}
packaged="$(cd "$project" && find qglow pyproject.toml -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum)"
if [[ ! -e "$root/installed" ]]; then
    install pytest hypothesis pytest-timeout Pillow tokenizers matplotlib
elif [[ "$(<"$root/installed")" != "$packaged" ]]; then
    install --no-deps
fi
printf '%s' "$packaged" >"$root/installed"

# Python starts others of its kind by this script: the host has no other way to run a program for Arm.
cat > "$root/python" <<END
#!/usr/bin/env bash
exec "$root/qemu-aarch64" -cpu "\${QEMU_CPU:-max}" -L "$root" -E PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$site" \\
    -E PYTHONDONTWRITEBYTECODE=1 -E QGLOW_CACHE="$root/cache/qglow" "$root/usr/bin/python3.11" "\$@"
END
chmod +x "$root/python"
echo "import sys; sys.executable = '$root/python'" > "$site/sitecustomize.py"

if [[ $# -eq 0 ]]; then
    exec "$root/python" -c "from qglow.targets.registry import running_names; print(*running_names())"
fi
if [[ "$1" != --tests ]]; then
    # A checkout in the working directory does not stand in for the wheel.
    PYTHONSAFEPATH=1 exec "$root/python" "$@"
fi
shift

# Everything of the project but the package: tests import the wheel.
mkdir -p "$root/project"
for entry in "$project"/* "$project"/.[a-z]*; do
    name="$(basename "$entry")"
    case "$name" in qglow | build | *.egg-info | .git | .venv) ;; *) ln -sfn "$entry" "$root/project/$name" ;; esac
done
cd "$root/project"
unset PYTHONPATH
if [[ $# -eq 0 ]]; then set -- tests/unit/*/; fi
result=0
for path in "$@"; do
    log="$(mktemp)"
    "$root/python" -m pytest -q -m "not slow and not sweep" -p no:cacheprovider "$path" > "$log" 2>&1 || result=1
    grep -E "^(FAILED|ERROR)" "$log" || true
    echo "$path: $(tail -n 1 "$log")"
    rm "$log"
done
exit "$result"
