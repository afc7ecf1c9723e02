#!/bin/sh
# Makes a virtual environment from hashed requirements and installs the project into it, editable.
# usage: tools/setup.sh VENV REQUIREMENTS...     PYTHON=... names the interpreter
set -eu

venv=$1
shift
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

python=
for each in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}; do
    if "$each" -c "$new_enough" 2>/dev/null; then
        python=$each
        break
    fi
done
if [ -z "$python" ]; then
    found=$("${PYTHON:-python3}" --version 2>&1) || found="none"
    echo "chinwag needs Python 3.11 or newer (found: $found). Name one: make setup PYTHON=/path/to/python3" >&2
    exit 1
fi

if command -v uv >/dev/null 2>&1; then
    echo "Setting up $venv from $* with uv (again only when they or pyproject.toml change)"
    works=$new_enough
    create() { uv venv --quiet --clear --python "$python" "$venv"; }
    install() { uv pip install --quiet --python "$venv/bin/python" "$@"; }
else
    echo "Setting up $venv from $* with pip (again only when they or pyproject.toml change)"
    works="import pip; $new_enough"
    create() { "$python" -m venv --clear "$venv"; }
    # Compiled is what is imported, when it is: compiling all of it takes a quarter of the time.
    install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }
fi

"$venv/bin/python" -c "$works" 2>/dev/null || create
for requirements in "$@"; do
    case $requirements in
        *.lock) install --require-hashes -r "$requirements" ;;
        *) install -r "$requirements" ;;
    esac
done
install --no-deps --no-build-isolation -e .
