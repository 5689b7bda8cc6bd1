import importlib.util
import os
import subprocess
import zipfile
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


def test_a_persons_settings_of_pip_do_not_say_where_packages_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing.py", "")
        archive.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        archive.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("thing-1.dist-info/RECORD", "")
    settings = tmp_path / "pip.conf"
    settings.write_text("[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    env = environment.create(tmp_path / "env")
    environment.pip_install(env, [str(wheel)], PipSource(), log=tmp_path / "log")
    assert (env.site_packages / "thing.py").exists()
    assert not (tmp_path / "elsewhere").exists()
