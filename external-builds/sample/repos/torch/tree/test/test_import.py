"""Contract: what importing torch does with a generated `_rocm_init`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch


@pytest.fixture
def copy_of_torch(tmp_path):
    package = tmp_path / "torch"
    shutil.copytree(Path(torch.__file__).parent, package)
    return package


def import_torch(package):
    code = "import torch; print(torch.__file__)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=False)


def test_initialize_is_called(copy_of_torch):
    (copy_of_torch / "_rocm_init.py").write_text("def initialize():\n    print('called')\n")
    done = import_torch(copy_of_torch)
    assert done.stdout.split() == ["called", str(copy_of_torch / "__init__.py")], done.stderr


def test_a_missing_sdk_is_seen(copy_of_torch):
    (copy_of_torch / "_rocm_init.py").write_text("import rocm_sdk_that_is_not_there\n")
    done = import_torch(copy_of_torch)
    assert done.returncode == 1
    assert "No module named 'rocm_sdk_that_is_not_there'" in done.stderr
