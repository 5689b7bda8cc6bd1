"""How `.gitmodules` is read: as git reads it, where it says a thing twice too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairn.errors import SourceError
from cairn.sources.git.repository import root_at
from cairn.sources.manifest import manifest
from cairn.sources.patches import apply as patches
from cairn.sources.worktree.parts import walk_submodules
from helpers.patches import apply, audit
from helpers.sources import Bench, Upstream, git

_TWICE = """
[submodule "{name}"]
\tpath = {path}
\turl = ../{url}.git
"""
PATH = "third_party/cudakit"


def declare(upstream: Upstream, *entries: tuple[str, str, str]) -> None:
    """Commit a `.gitmodules` of these names, paths and repositories."""
    text = "".join(_TWICE.format(name=name, path=path, url=url) for name, path, url in entries)
    upstream.commit("torch", {".gitmodules": text}, "Declare submodules")


@pytest.mark.parametrize(
    "entries",
    [
        (("first", PATH, "cudakit"), ("second", PATH, "kit2")),
        (("second", PATH, "kit2"), ("first", PATH, "cudakit")),
        (("first", "third_party/old", "kit2"), ("first", PATH, "cudakit")),
    ],
)
def test_git_decides_which_of_two_entries_a_path_has(
    bench: Bench, upstream: Upstream, tmp_path: Path, entries: tuple[tuple[str, str, str], ...]
) -> None:
    git(upstream.folder, "clone", "--quiet", "--bare", upstream.origin("cudakit"), "kit2.git")
    declare(upstream, *entries, ("third_party/plain", "third_party/plain", "plain"))
    git(tmp_path, "clone", "--quiet", upstream.origin("torch"), "by hand")
    by_hand = tmp_path / "by hand"
    git(by_hand, "submodule", "--quiet", "init")
    wanted = dict(
        line.split(" ", 1)
        for line in git(by_hand, "config", "--get-regexp", r"^submodule\..*\.url$").splitlines()
    )
    done = bench()
    there = {f"submodule.{m.name}.url": m.origin for m in _direct(bench.path)}
    assert there == wanted
    assert [m.path for m in done.submodules] == [PATH, "third_party/plain", "third_party/plain/deps/inner"]


def _direct(path: Path) -> list[Any]:
    root = root_at(path)
    origin = root.run("config", "remote.origin.url").strip()
    return [m for m in walk_submodules(root, origin=origin) if m.parent is root]


def test_a_path_that_is_declared_twice_is_one_submodule_for_every_command(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    """Upstream's torch has declared third_party/NNPACK_deps and others so."""
    git(upstream.folder, "clone", "--quiet", "--bare", upstream.origin("cudakit"), "kit2.git")
    plain = ("third_party/plain", "third_party/plain", "plain")
    declare(upstream, ("a", PATH, "kit2"), plain, (PATH, PATH, "cudakit"))
    done = bench()
    frozen = manifest.create(
        [done], stack="s", line="l", targets=("cpu",), pythons=("3.11",), platform="linux_x86_64"
    )
    assert manifest.verify(frozen, {"torch": bench.path}) == ()
    assert not (bench.path / ".git/modules/a").exists()

    bench.git("-C", PATH, "commit", "--quiet", "--allow-empty", "-m", "Mine")
    folder = tmp_path / "patches"
    assert [p.path for p in patches.export(bench.path, folder)[0]] == [PATH]
    bench.git("-C", PATH, "reset", "--quiet", "--hard", "HEAD~1")
    assert [(a.path, a.commit is not None) for a in apply(bench, folder)] == [(PATH, True)]
    assert audit(bench).parts == 4


@pytest.mark.parametrize(
    "more",
    [
        f'[submodule "bare"]\n\tpath = {PATH}\n',
        # A section that moves on leaves its path to nobody, though another one had it before.
        f'[submodule "bare"]\n\tpath = {PATH}\n\tpath = third_party/other\n\turl = ../x.git\n',
    ],
)
def test_a_path_without_a_url_is_refused_as_git_refuses_it(
    bench: Bench, upstream: Upstream, tmp_path: Path, more: str
) -> None:
    path = upstream.work("torch") / ".gitmodules"
    path.write_text(path.read_text() + more)
    upstream.commit("torch", {}, "Declare without a url")
    git(tmp_path, "clone", "--quiet", upstream.origin("torch"), "by hand")
    with pytest.raises(AssertionError, match=f"No url found for submodule path '{PATH}'"):
        git(tmp_path / "by hand", "submodule", "--quiet", "init")
    with pytest.raises(SourceError, match=f"no url for the submodule {PATH}"):
        bench()


def test_a_submodule_that_is_called_differently_takes_its_place(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    gitmodules = upstream.work("torch") / ".gitmodules"
    renamed = gitmodules.read_text().replace('[submodule "third_party/cudakit"]', '[submodule "kit two"]')
    upstream.commit("torch", {".gitmodules": renamed}, "Rename a submodule")
    edited = bench.path / "third_party/cudakit/README"
    before = edited.read_bytes()
    edited.write_text("mine")
    with pytest.raises(SourceError, match=r"has 1 edited or new file \(third_party/cudakit/README\)"):
        bench()
    edited.write_bytes(before)
    assert len(bench().submodules) == 3
    assert (bench.path / "third_party/cudakit/.git").read_text().endswith("/modules/kit two\n")
    assert bench.git("status", "--porcelain") == ""
