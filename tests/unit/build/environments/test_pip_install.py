import os
from pathlib import Path

import pytest

from cairn import venv
from cairn.build.environments import pip_install
from cairn.errors import BuildError
from cairn.venv import PackageSource


def test_what_pip_refuses_is_one_error_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    env = venv.create(tmp_path / "env")
    log = tmp_path / "log"
    with pytest.raises(BuildError, match="no-such-thing") as caught:
        pip_install(env, ["no-such-thing"], PackageSource(), log=log)
    assert any("No matching distribution" in line for line in caught.value.tail)
    assert "No matching distribution" in log.read_text()
