#!/usr/bin/env bash
# Judge wheels with Cairn, in an environment of its own. See action.yml for the variables.
set -euo pipefail
shopt -s nullglob

# Globs, and several of them.
# shellcheck disable=SC2206
files=($WHEELS)
if [ "${#files[@]}" = 0 ]; then
    echo "::error::no wheel is at $WHEELS" >&2
    exit 2
fi
tools=$(mktemp -d "${RUNNER_TEMP:-/tmp}/cairn-XXXXXX")
python3 -m venv "$tools"
# With the extra for Windows whatever the wheels are called: a wheel for any system may have programs for Windows inside.
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$CAIRN/constraints.txt" "${CAIRN}[windows]"
words=()
[ -z "${TARGETS:-}" ] || words+=(--targets "$TARGETS")
[ -z "${FIND_LINKS:-}" ] || words+=(--find-links "$FIND_LINKS")
"$tools/bin/cairn" wheel verify "${words[@]}" "${files[@]}"
