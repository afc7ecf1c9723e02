#!/bin/sh
# Resolves pyproject.toml into requirements.lock, for every platform, with hashes and without hosts.
set -eu

uv=uv
if ! command -v uv >/dev/null 2>&1; then
    uv=.venv-lock/bin/uv
    [ -x "$uv" ] || { "${PYTHON:-python3}" -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv; }
fi

exec "$uv" pip compile pyproject.toml --output-file requirements.lock --quiet \
    --universal --python-version 3.11 --all-extras --generate-hashes --no-annotate \
    --no-emit-index-url --custom-compile-command "make lock" "$@"
