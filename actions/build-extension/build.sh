#!/usr/bin/env bash
# Build a project against the torch of an index, verify its wheel, and test it. See action.yml for the variables.
set -euo pipefail

checkout=${CAIRN:?}

temporary=$(mktemp -d "${RUNNER_TEMP:-/tmp}/extension-XXXXXX")
python3 -m venv "$temporary/build"
python=$temporary/build/bin/python
pip=("$python" -m pip install --quiet --disable-pip-version-check)

# The index alone: with another beside it, its torch could be taken. Build tools come from your own.
fetched=$temporary/fetched
"$python" -m pip download --quiet --disable-pip-version-check --isolated --index-url "$INDEX_URL" \
    --dest "$fetched" "$TORCH"
local=(--isolated --no-index --find-links "$fetched")
"${pip[@]}" "${local[@]}" "$TORCH"
"${pip[@]}" --upgrade build setuptools wheel ninja

if [ -n "${TARGETS:-}" ]; then
    # The SDK that this torch was built with: it requires `rocm[libraries]==VERSION`.
    rocm=$("$python" - <<'EOF'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
found = [r for r in map(Requirement, requires("torch") or ()) if r.name == "rocm"]
print(f"rocm[libraries,devel]{found[0].specifier}" if found else "")
EOF
    )
    if [ -z "$rocm" ]; then
        echo "::error::the torch of $INDEX_URL is for the CPU: name an index for your targets" >&2
        exit 2
    fi
    "${pip[@]}" --isolated --index-url "${SDK_INDEX_URL:-$INDEX_URL}" "$rocm"
    sdk=$temporary/build/bin/rocm-sdk
    ROCM_HOME=$("$sdk" path --root)
    CMAKE_PREFIX_PATH=$("$sdk" path --cmake)
    PATH=$("$sdk" path --bin):$temporary/build/bin:$PATH
    export ROCM_HOME CMAKE_PREFIX_PATH PATH ROCM_PATH=$ROCM_HOME PYTORCH_ROCM_ARCH=${TARGETS//,/;} FORCE_CUDA=1
fi

mkdir -p "$OUTPUT_DIR"
"$python" -m build --wheel --no-isolation --outdir "$temporary/built" "$PROJECT"

# The lowest platform tag that its symbols justify. What torch and the SDK bring stays theirs.
python3 -m venv "$temporary/tools"
"$temporary/tools/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$checkout/constraints.txt" "${checkout}[build]"
program=$temporary/tools/bin/cairn
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$program" wheel repair --exclude 'libtorch*' --exclude 'libc10*' ${TARGETS:+--sdk "$site"} \
    --output-dir "$temporary/wheels" "$temporary"/built/*.whl
"$program" wheel verify ${TARGETS:+--targets "$TARGETS"} --find-links "$fetched" "$temporary"/wheels/*.whl

if [ -n "${TEST:-}" ]; then
    python3 -m venv "$temporary/test"
    "$temporary/test/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${local[@]}" "$temporary"/wheels/*.whl "$TORCH"
    (cd "$temporary" && PATH=$temporary/test/bin:$PATH bash -euo pipefail -c "$TEST")
fi
cp "$temporary"/wheels/*.whl "$OUTPUT_DIR"
