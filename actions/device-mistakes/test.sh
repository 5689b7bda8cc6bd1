#!/usr/bin/env bash
# Run a project's tests under TorchDevice's second mode. See action.yml for the variables.
set -euo pipefail

# From its sources, so that the project's environment stays as it is.
export PYTHONPATH=${CAIRN:?}/external-builds/torchdevice/tree/src${PYTHONPATH:+:$PYTHONPATH}
# Words of their own.
# shellcheck disable=SC2086
"$PYTHON" -m pytest -p torchdevice.pytest_plugin --torchdevice-strict \
    ${BASELINE:+--torchdevice-baseline="$BASELINE"} $TESTS
