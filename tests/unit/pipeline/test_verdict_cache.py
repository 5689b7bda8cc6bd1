"""What a run need not do again, and all that makes it do it again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import isolation
from cairn.pipeline import verdict_cache
from cairn.release.index import keys
from cairn.store.folder import LocalStore
from cairn.testing.gpus import kernel
from cairn.testing.smoke import SmokeRequest
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import WheelSet
from helpers.testing import named_set, named_wheel

SHA = "ab" * 32
NAME = "torch-2.9.0-py3-none-any.whl"
FILE = keys.file_key(SHA, NAME)
WHEN = "2026-01-02T03:04:05Z"


def wheel_set(targets: tuple[str, ...] = ("gfx942",)) -> WheelSet:
    wheel = named_wheel(NAME, sha256=SHA, size=5)
    made = named_set(wheel, family="gfx94X-dcgpu", targets=targets)
    return wheel_sets.seal(made, [])


PAGE = keys.set_simple_prefix(wheel_set().id) + "torch/index.html"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store that has one file of a set, and pages."""
    store = LocalStore(tmp_path / "store")
    store.write(FILE, b"bytes")
    store.write("staging/simple/torch/index.html", b"page")
    store.write(PAGE, b"page")
    return store


def asked(tmp_path: Path) -> SmokeRequest:
    tests = tmp_path / "smoke-tests"
    tests.mkdir(exist_ok=True)
    (tests / "test_it.py").touch()
    return SmokeRequest(wheel_set=wheel_set(), work_dir=tmp_path / "work", smoke_tests=(tests,))


def test_what_did_not_change_is_found_and_what_it_left_must_be_whole(tmp_path: Path) -> None:
    path, record = tmp_path / "kept" / "smoke.json", tmp_path / "record.json"
    record.write_text("passed")
    verdict_cache.write(path, "key", evidence=[record])
    found = verdict_cache.find(path, "key")
    assert found is not None
    assert found.when.endswith("UTC")
    assert verdict_cache.find(path, "another key") is None
    record.write_text("passed!")
    assert verdict_cache.find(path, "key") is None
    record.unlink()
    assert verdict_cache.find(path, "key") is None
    path.write_text("{")
    assert verdict_cache.find(path, "key") is None
    path.write_text('{"schema": "cairn.kept/1", "key": "key", "when": "", "evidence": {"\\u0000": ""}}')
    assert verdict_cache.find(path, "key") is None
    assert verdict_cache.find(tmp_path / "nothing", "key") is None


CHANGES: dict[str, Callable[[LocalStore, Path, pytest.MonkeyPatch], object]] = {
    "a byte of a wheel": lambda store, _, __: store.write(FILE, b"bytez"),
    "a wheel that is gone": lambda store, _, __: store.delete(FILE),
    "a test": lambda _, tmp, __: (tmp / "smoke-tests" / "test_it.py").write_text("pass"),
    "a further test": lambda _, tmp, __: (tmp / "smoke-tests" / "test_more.py").touch(),
    "a GPU": lambda _, __, patch: patch.setattr(kernel, "gpu_names", lambda: ("gfx942",)),
    "which GPUs may be used": lambda _, __, patch: patch.setenv("ROCR_VISIBLE_DEVICES", "0"),
    "Python": lambda _, __, patch: patch.setattr("sys.version", "3.99"),
    "a page of the set": lambda store, _, __: store.write(PAGE, b"pagE"),
    "the programs on PATH": lambda _, __, patch: patch.setenv("PATH", "/opt/bin"),
    "the system": lambda _, __, patch: patch.setattr("platform.platform", lambda: "Linux-99"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_smoke_test_runs_again_after_a_change_of(
    change: str, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = verdict_cache.key_of_smoke(store, asked(tmp_path), staged=WHEN)
    assert verdict_cache.key_of_smoke(store, asked(tmp_path), staged=WHEN) == before
    CHANGES[change](store, tmp_path, monkeypatch)
    assert verdict_cache.key_of_smoke(store, asked(tmp_path), staged=WHEN) != before


def test_a_smoke_test_runs_again_after_the_set_was_staged_again(store: LocalStore, tmp_path: Path) -> None:
    before = verdict_cache.key_of_smoke(store, asked(tmp_path), staged=WHEN)
    assert verdict_cache.key_of_smoke(store, asked(tmp_path), staged="2026-01-03T03:04:05Z") != before


@pytest.mark.parametrize("change", ["a byte of a wheel", "a wheel that is gone", "Python", "a page"])
def test_the_release_is_installed_again_after_a_change_of(
    change: str, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = verdict_cache.key_of_install(store, "staging", wheel_set())
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) == before
    if change == "a page":
        store.write("staging/simple/torch/index.html", b"pagE")
    else:
        CHANGES[change](store, tmp_path, monkeypatch)
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) != before


def test_the_release_is_installed_again_where_a_variable_that_reaches_the_installers_changes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ROCM_SDK_TARGET_FAMILY", "PATH", "SSL_CERT_FILE", "HTTPS_PROXY", "ROCR_VISIBLE_DEVICES")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    keys_ = [verdict_cache.key_of_install(store, "staging", wheel_set())]
    for other in ("SSH_TTY", "LC_ALL", "NO_COLOR", "TERM", "ROCM_PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):
        monkeypatch.setenv(other, "/dev/pts/7")
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) == keys_[0]
    for name in names:
        monkeypatch.setenv(name, "gfx1100")
        keys_.append(verdict_cache.key_of_install(store, "staging", wheel_set()))
        assert keys_[-1] != keys_[-2], name


TERMINAL = {"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "40", "LINES": "9"}
# The language is no part of it because no test sees another than one.
LANGUAGE = {"LC_ALL": "C", "LANG": "tr_TR.UTF-8", "LC_CTYPE": "POSIX"}


def test_nothing_is_done_again_for_a_different_terminal_or_language(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine_and_keys() -> tuple[object, ...]:
        smoke = verdict_cache.key_of_smoke(store, asked(tmp_path), staged=WHEN)
        return verdict_cache.machine(), smoke, verdict_cache.key_of_install(store, "staging", wheel_set())

    changes = {**TERMINAL, "COLORTERM": "truecolor", **LANGUAGE}
    for name in changes:
        monkeypatch.delenv(name, raising=False)
    before = machine_and_keys()
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
        assert machine_and_keys() == before, name
    assert isolation.variables(isolation.Isolation.TEST, tmp_path)["LC_ALL"] == "C.UTF-8"


def test_a_change_of_cairn_itself_has_everything_done_again(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cairn"
    package.mkdir()
    (package / "gate.py").write_text("holds = False")
    monkeypatch.setattr(verdict_cache, "_PACKAGE", package)
    before = verdict_cache.key_of_install(store, "staging", wheel_set())
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "gate.pyc").touch()
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) == before
    os.utime(package / "gate.py", (0, 0))
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) == before
    (package / "gate.py").write_text("holds = True")
    assert verdict_cache.key_of_install(store, "staging", wheel_set()) != before
