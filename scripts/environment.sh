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
    local extras="$1"
    local stamp="$environment/.qglow-installed-${extras//,/-}"
    is_environment || make_environment
    local wanted
    wanted="$(fingerprint)"
    if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then return; fi
    echo "Installing qglow[$extras] (once; later runs reuse it)"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
        --editable "$repository[$extras]" || fail "installation failed, see above"
    printf '%s' "$wanted" >"$stamp"
}

# Whether .venv is a virtual environment with pip: one whose making was interrupted has none, and a
# bare link to an interpreter must never be installed into.
is_environment() {
    [[ -x "$environment/bin/python" ]] && "$environment/bin/python" -c 'import sys, importlib.util as u
sys.exit(sys.prefix == sys.base_prefix or u.find_spec("pip") is None)'
}

# What an installation depends on: the metadata, the interpreter and where the checkout lies.
fingerprint() {
    "$environment/bin/python" -c 'import hashlib, pathlib, sys
metadata = pathlib.Path(sys.argv[1], "pyproject.toml").read_bytes()
print(hashlib.sha256(metadata).hexdigest(), sys.version.split()[0], sys.argv[1])' "$repository"
}
