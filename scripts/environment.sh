# Sourced by demo.sh and test.sh: a virtual environment in the checkout with qglow installed in it.
#
# PYTHON names the interpreter that makes the environment (default: python3). The environment is
# reused while pyproject.toml, the interpreter and the wanted extras stay the same.

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
environment="$repository/.venv"

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

make_environment() {
    local python="${PYTHON:-python3}"
    command -v "$python" >/dev/null || fail "$python is not installed; set PYTHON to Python 3.11 or newer"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" -V 2>&1); qglow needs Python 3.11 or newer (set PYTHON)"
    echo "Making a virtual environment in $environment"
    "$python" -m venv "$environment" ||
        fail "cannot make a virtual environment; on Debian and Ubuntu install python3-venv"
}

# prepare EXTRAS: installs qglow, editable, with these extras ("images", "test,images").
prepare() {
    local extras="$1" stamp wanted
    [[ -x "$environment/bin/python" ]] || make_environment
    stamp="$environment/.qglow-installed-${extras//,/-}"
    wanted="$("$environment/bin/python" -c 'import hashlib, pathlib, sys
print(hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest(), sys.version.split()[0])' \
        "$repository/pyproject.toml")"
    [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]] && return
    echo "Installing qglow[$extras] (once; later runs reuse it)"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
        --editable "$repository[$extras]" || fail "installation failed, see above"
    printf '%s' "$wanted" >"$stamp"
}
