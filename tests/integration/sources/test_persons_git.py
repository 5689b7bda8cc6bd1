"""Nothing that a person configures for git changes what we do; how they reach an origin is theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn.sources.git import command
from cairn.sources.origins import materialize
from helpers.sources import Bench, Upstream, make_hostile

FOREIGN_DIRS = "notes"


def test_the_result_is_the_same_byte_for_byte(
    bench: Bench, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bench.begin()
    make_hostile(home)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Odd")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "fresh cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    monkeypatch.setenv("CALLER_SECRET", "x")
    monkeypatch.setenv("ROCM_HOME", "/somewhere/rocm")
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    command.connection_settings.cache_clear()
    done = bench(checkout_dir=tmp_path / "again")
    assert (done.hipify_commit, done.tree, done.submodules, done.report) == (
        expected.hipify_commit,
        expected.tree,
        expected.submodules,
        expected.report,
    )
    assert (tmp_path / "again/src/device.cpp").read_bytes() == b'#include "hip/driver_types.h"\n'
    assert not (home / "ran").exists()


def test_local_hooks_and_settings_of_the_checkout_do_not_count(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    hook = bench.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    bench.git("config", "core.autocrlf", "true")
    bench.git("config", "commit.gpgSign", "true")
    upstream.commit("torch", {"src/device.cpp": '#include "driver_types.h"\nint a;\n'}, "Next")
    bench()
    assert b"\r" not in (bench.path / "src/device.cpp").read_bytes()


def test_settings_for_reaching_an_origin_are_taken_and_nothing_else(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "more").write_text('[http "https://h/"]\n\textraHeader = "Authorization: basic c2VjcmV0"\n')
    (home / ".gitconfig").write_text(
        '[credential]\n\thelper = store\n[url "https://mirror/"]\n\tinsteadOf = https://h/\n'
        "\tpushInsteadOf = https://h/\n[user]\n\tname = X\n"
        f'[include]\n\tpath = "{home / "more"}"\n[http]\n\tproxy = p\n'
    )
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i key")
    command.connection_settings.cache_clear()
    taken = command.connection_settings()
    command.connection_settings.cache_clear()
    assert sorted(taken) == [
        ("credential.helper", "store"),
        ("http.https://h/.extraheader", "Authorization: basic c2VjcmV0"),
        ("http.proxy", "p"),
        ("url.https://mirror/.insteadof", "https://h/"),
    ]
    assert command.environment(online=True)["GIT_SSH_COMMAND"] == "ssh -i key"
    assert "GIT_SSH_COMMAND" not in command.environment()
    assert not any("c2VjcmV0" in value for value in command.environment().values())


def test_url_instead_of_leads_to_the_persons_mirror(bench: Bench, home: Path, upstream: Upstream) -> None:
    (home / ".gitconfig").write_text(
        f'[url "{upstream.folder}/"]\n\tinsteadOf = https://user:t0ken@private.invalid/\n'
    )
    command.connection_settings.cache_clear()
    done = bench(origin="https://user:t0ken@private.invalid/torch.git", submodules=False, hipify=False)
    command.connection_settings.cache_clear()
    assert done.origin == "https://private.invalid/torch.git"
    written = [p for p in bench.path.rglob("*") if p.is_file()] + [
        p for p in Path(os.environ["CAIRN_CACHE_DIR"]).rglob("*") if p.is_file()
    ]
    assert not any(b"t0ken" in p.read_bytes() for p in written)


def test_an_origin_that_another_user_owns(bench: Bench, upstream: Upstream) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give files away")
    for path in Path(upstream.origin("torch")).rglob("*"):
        os.chown(path, 65534, 65534)
    os.chown(upstream.origin("torch"), 65534, 65534)
    assert bench().version == "2.9.0a0"


def test_a_read_only_origin(bench: Bench, upstream: Upstream) -> None:
    def state() -> dict[str, tuple[int, int]]:
        found = {str(p): p.lstat() for p in upstream.folder.rglob("*")}
        return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}

    before = state()
    folders = [p for p in upstream.folder.rglob("*") if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert bench().version == "2.9.0a0"
        assert state() == before  # for root, whom the mode of a folder does not stop
    finally:
        for folder in folders:
            folder.chmod(0o755)


HISTORY = """\
schema = "cairn.history/1"
author = "Up Stream <up@example.invalid>"
default_branch = "main"
branches = {{ main = "first" }}

[[commits]]
name = "first"
message = "Begin"
date = "2025-01-01T00:00:00+00:00"
write = {write}
"""


def test_a_made_origin_in_a_cache_that_another_user_owns(tmp_path: Path, home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give files away")
    assert home.is_dir()
    for name, write in (("kit", '{ "a" = "1" }'), ("torch", '{ "pin" = "{commit:kit:main}" }')):
        folder = tmp_path / "repos" / name
        (folder / "tree").mkdir(parents=True)
        (folder / "history.toml").write_text(HISTORY.format(write=write))
    kit = materialize.TreeOrigin(name="kit", path=tmp_path / "repos/kit")
    cache = tmp_path / "cache"
    made = materialize.materialize([kit], cache)["kit"]
    for path in (made, *made.rglob("*")):
        os.chown(path, 65534, 65534)
    torch = materialize.TreeOrigin(name="torch", path=tmp_path / "repos/torch")
    found = materialize.materialize([torch], cache)["torch"]
    assert command.line(found, "show", "main:pin") == command.line(made, "rev-parse", "main")
