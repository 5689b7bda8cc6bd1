import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from cairn import venv
from cairn.venv import PackageSource
from helpers.packing import write_wheel


def test_pip_options_of_a_source(tmp_path: Path) -> None:
    source = PackageSource(index_url="http://i/", find_links=("a", "b"), cache_dir=tmp_path, pre=True)
    assert source.arguments() == (
        *("--index-url", "http://i/", "--find-links", "a", "--find-links", "b"),
        *("--cache-dir", str(tmp_path), "--pre"),
    )
    assert source.without_index().arguments() == (
        *("--find-links", "a", "--find-links", "b", "--cache-dir", str(tmp_path)),
    )


def test_an_environment_shares_another_without_copying(tmp_path: Path) -> None:
    sdk = venv.create(tmp_path / "sdk")
    (sdk.site_packages / "only_in_sdk.py").write_text("VALUE = 42\n")
    env = venv.create(tmp_path / "a b é")
    venv.share(env, sdk)
    code = "import only_in_sdk, sys; print(only_in_sdk.VALUE, sys.prefix)"
    out = subprocess.run([env.python, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split(maxsplit=1) == ["42", f"{env.path}\n"]
    assert importlib.util.find_spec("only_in_sdk") is None


def test_creating_again_removes_what_was_there(tmp_path: Path) -> None:
    env = venv.create(tmp_path / "env")
    (env.site_packages / "stale.py").touch()
    assert not (venv.create(tmp_path / "env").site_packages / "stale.py").exists()


def test_a_users_settings_of_pip_do_not_say_where_packages_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path, "thing", "1", {"thing.py": ""})
    settings = tmp_path / "pip.conf"
    settings.write_text("[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    env = venv.create(tmp_path / "env")
    venv.install(env, [str(wheel)], PackageSource(), log=tmp_path / "log")
    assert (env.site_packages / "thing.py").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_which_requirement_pip_found_nowhere() -> None:
    output = "ERROR: Could not find a version\nERROR: No matching distribution found for rocm[devel]==7.1\n"
    assert venv.missing_from(output) == "rocm[devel]==7.1"
    assert venv.missing_from("ERROR: disk full") is None


@pytest.mark.skipif(os.name == "nt", reason="there the folder has no version in its name")
def test_where_packages_are_is_found_when_the_environment_has_been_made(tmp_path: Path) -> None:
    planned = venv.describe(tmp_path)
    packages = tmp_path / "lib" / "python3.99" / "site-packages"
    packages.mkdir(parents=True)
    assert planned.site_packages == packages
