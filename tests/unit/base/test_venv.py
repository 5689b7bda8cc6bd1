import importlib.util
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from cairn import venv
from cairn.venv import Isolation, PackageSource


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
    assert venv.variables(Isolation.BUILD, given) == {
        "PATH": "/bin",
        "HOME": "/h",
        "CC": "clang",
        "https_proxy": "http://proxy",
    }


def test_a_tested_wheel_sees_only_what_is_harmless() -> None:
    harmless = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HTTPS_PROXY": "p",
        "PIP_CERT": "c",
        "HIP_VISIBLE_DEVICES": "0",
    }
    harmful = {
        "LD_LIBRARY_PATH": "/x",
        "PYTHONPATH": "/p",
        "ROCM_PATH": "/r",
        "PIP_INDEX_URL": "u",
        "PATHX": "",
    }
    assert venv.variables(Isolation.TEST, harmless | harmful) == {
        **harmless,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONUTF8": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


@pytest.mark.parametrize("isolation", [Isolation.OWN_PIP, Isolation.TEST, Isolation.INSTALLER])
def test_a_user_who_wants_no_proxy_at_all_gets_none(isolation: Isolation) -> None:
    given = {"https_proxy": "http://p", "ALL_PROXY": "http://p"}
    for star in ({"no_proxy": "*"}, {"NO_PROXY": " * "}):
        kept = {"PATH": "/bin", "PIP_PROXY": "http://pips-own"}
        assert venv.variables(isolation, kept | given | star) == venv.variables(isolation, kept)
    passed = venv.variables(isolation, {**given, "no_proxy": "a.example", "NO_PROXY": "*"})
    assert passed["no_proxy"] == passed["NO_PROXY"] == "a.example,127.0.0.1,localhost"


def test_an_installer_sees_nothing_that_steers_it() -> None:
    steering = {
        "PIP_INDEX_URL": "u",
        "UV_INDEX": "u",
        "PYTHONPATH": "p",
        "VIRTUAL_ENV": "v",
        "CONDA_PREFIX": "c",
    }
    given = {"PATH": "/bin", "ROCM_SDK_TARGET_FAMILY": "gfx94X-dcgpu", **steering}
    assert venv.variables(Isolation.INSTALLER, given) == {
        "PATH": "/bin",
        "ROCM_SDK_TARGET_FAMILY": "gfx94X-dcgpu",
        "PIP_CONFIG_FILE": os.devnull,
    }


def test_our_own_pip_obeys_the_user_but_for_where_packages_go() -> None:
    obeyed = {"PIP_INDEX_URL": "u", "PIP_CERT": "c", "PIP_CONFIG_FILE": "f", "PIP_ROOT_USER_ACTION": "ignore"}
    elsewhere = dict.fromkeys(("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"), "x")
    assert venv.variables(Isolation.OWN_PIP, obeyed | elsewhere) == obeyed


@pytest.mark.parametrize("kind", [Isolation.OWN_PIP, Isolation.TEST, Isolation.INSTALLER])
def test_a_proxy_is_not_asked_for_what_this_machine_serves(kind: Isolation) -> None:
    proxied = venv.variables(kind, {"https_proxy": "http://proxy:3128", "NO_PROXY": ".corp"})
    for name in ("NO_PROXY", "no_proxy"):
        assert proxied[name].split(",") == [".corp", "127.0.0.1", "localhost"]
    assert "no_proxy" not in venv.variables(kind, {"PATH": "/bin"})


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
