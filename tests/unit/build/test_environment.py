import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from cairn.build import environment
from cairn.build.environment import PipSource
from cairn.errors import BuildError


def test_build_variables_of_the_image_do_not_leak() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "CC": "clang",
        "PYTHONPATH": "/p",
        "CUDA_HOME": "/c",
        "CMAKE_PREFIX_PATH": "/m",
        "USE_MPI": "1",
        "VIRTUAL_ENV": "/v",
        "https_proxy": "http://proxy",
    }
    assert environment.clean_variables(given) == {
        "PATH": "/bin",
        "HOME": "/h",
        "CC": "clang",
        "https_proxy": "http://proxy",
    }


def test_pip_options_of_a_source(tmp_path: Path) -> None:
    source = PipSource(index_url="http://i/", find_links=("a", "b"), cache_dir=tmp_path, pre=True)
    assert source.arguments() == (
        *("--index-url", "http://i/", "--find-links", "a", "--find-links", "b"),
        *("--cache-dir", str(tmp_path), "--pre"),
    )
    assert source.without_index().arguments() == (
        *("--find-links", "a", "--find-links", "b", "--cache-dir", str(tmp_path)),
    )


def test_an_environment_shares_another_without_copying(tmp_path: Path) -> None:
    sdk = environment.create(tmp_path / "sdk")
    (sdk.site_packages / "only_in_sdk.py").write_text("VALUE = 42\n")
    env = environment.create(tmp_path / "a b é")
    environment.share(env, sdk)
    code = "import only_in_sdk, sys; print(only_in_sdk.VALUE, sys.prefix)"
    out = subprocess.run([env.python, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split(maxsplit=1) == ["42", f"{env.path}\n"]
    assert importlib.util.find_spec("only_in_sdk") is None


def test_creating_again_removes_what_was_there(tmp_path: Path) -> None:
    env = environment.create(tmp_path / "env")
    (env.site_packages / "stale.py").touch()
    assert not (environment.create(tmp_path / "env").site_packages / "stale.py").exists()


def test_what_pip_refuses_is_one_error_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    env = environment.create(tmp_path / "env")
    log = tmp_path / "log"
    with pytest.raises(BuildError, match="no-such-thing") as caught:
        environment.pip_install(env, ["no-such-thing"], PipSource(), log=log)
    assert any("No matching distribution" in line for line in caught.value.tail)
    assert "No matching distribution" in log.read_text()
