"""What a build does to its tree: metadata that it rewrites is restored, and a module is lent."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from cairn.build.inputs import source_tree
from helpers.build import repository

TRACKED = (
    "setup.py",
    "x.egg-info/PKG-INFO",
    "x.egg-info/SOURCES.txt",
    "x.egg-info/gone",
    "src/y.egg-info/PKG-INFO",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in TRACKED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as committed\n")
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=tmp_path, check=True)
    return tmp_path


def build(checkout: Path) -> None:
    for name in ("x.egg-info/PKG-INFO", "src/y.egg-info/PKG-INFO", "x.egg-info/new"):
        (checkout / name).write_text("as setuptools writes it\n")
    (checkout / "x.egg-info" / "gone").unlink()


def test_what_a_build_rewrites_is_no_edit(checkout: Path) -> None:
    before = source_tree.edits(checkout)
    with source_tree.restore_egg_info(checkout):
        build(checkout)
        assert source_tree.edits(checkout) != before
    assert source_tree.edits(checkout) == before
    assert all((checkout / name).read_text() == "as committed\n" for name in TRACKED)


@pytest.mark.parametrize(
    ("date", "epoch"),
    [("@86400 +0000", 315532800), ("@1700000000 +0200", 1700000000), ("@9999999999 +0000", 4354819198)],
)
def test_a_commit_of_any_time_has_one_that_a_wheel_can_have(checkout: Path, date: str, epoch: int) -> None:
    env = {**os.environ, "GIT_COMMITTER_DATE": date}
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "two"]
    subprocess.run(git, cwd=checkout, env=env, check=True)
    assert source_tree.commit_time(checkout) == epoch


def test_an_edit_in_a_submodule_is_one(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    module = repository(tmp_path_factory.mktemp("module"), {"kernel.cu": "one\n"})
    git = ["git", "-c", "protocol.file.allow=always", "-C", str(checkout)]
    subprocess.run([*git, "submodule", "--quiet", "add", module, "third_party/m"], check=True)
    subprocess.run([*git, "config", "submodule.third_party/m.ignore", "all"], check=True)  # as torch has it
    subprocess.run([*git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "module"], check=True)
    kernel = checkout / "third_party" / "m" / "kernel.cu"
    found = {source_tree.edits(checkout)}
    for text in ("two\n", "three\n"):
        kernel.write_text(text)
        found.add(source_tree.edits(checkout))
    assert len(found) == 3


def test_edits_of_a_person_stay_also_after_a_build_that_fails(checkout: Path) -> None:
    (checkout / "x.egg-info" / "SOURCES.txt").write_text("mine\n")
    with pytest.raises(ValueError, match="fails"), source_tree.restore_egg_info(checkout):
        build(checkout)
        (checkout / "setup.py").write_text("edited meanwhile\n")
        raise ValueError("fails")
    assert (checkout / "x.egg-info" / "SOURCES.txt").read_text() == "mine\n"
    assert (checkout / "setup.py").read_text() == "edited meanwhile\n"
    assert (checkout / "x.egg-info" / "PKG-INFO").read_text() == "as committed\n"


def test_the_module_preloads_in_order_and_checks_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []
    sdk = types.ModuleType("rocm_sdk")
    sdk.initialize_process = lambda **given: calls.append(given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rocm_sdk", sdk)
    space: dict[str, object] = {}
    exec(source_tree.rocm_init_module(preloads=("amdhip64", "hipblas"), rocm_version="7.10.0"), space)  # noqa: S102
    initialize = space["initialize"]
    assert callable(initialize)
    initialize()
    assert calls == [{"preload_shortnames": ["amdhip64", "hipblas"], "check_version": "7.10.0"}]


def test_no_preloads_is_an_empty_list() -> None:
    assert "preload_shortnames=[]" in source_tree.rocm_init_module(preloads=(), rocm_version="1")
