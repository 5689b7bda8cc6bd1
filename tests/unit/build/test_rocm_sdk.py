from pathlib import Path

import pytest

from cairn.build import rocm_sdk
from cairn.errors import ProcessError
from cairn.stack import Sdk, Stack

HALF = """
import pathlib, sys
prefix = pathlib.Path(sys.argv[1])
if prefix.exists():
    sys.exit(7)
prefix.mkdir()
sys.exit(3)
"""


def test_half_a_prefix_is_not_built_upon(tmp_path: Path) -> None:
    packages = tmp_path / "stack" / "packages.toml"
    packages.parent.mkdir()
    packages.touch()
    made = Sdk(version="7.0", build=("{python}", "-c", HALF, "{prefix}"), packages=str(packages))
    stack = Stack(name="s", line="l", targets=("gfx942",), projects=(), sdk=made)
    for _ in range(2):
        with pytest.raises(ProcessError) as caught:
            rocm_sdk.make(stack, ("gfx942",), tmp_path / "work", log=tmp_path / "log", say=lambda _line: None)
        assert caught.value.returncode == 3
