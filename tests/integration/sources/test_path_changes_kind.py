"""A path that is a submodule in one release, and a folder, a file or a link in another."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import SourceError
from helpers.sources import Bench, Upstream, dropped, files_of, git

KINDS = ("submodule", "other submodule", "folder", "file", "link", "submodule below", "nothing")
MINE = "only a person has this\n"


def everything_dropped(bench: Bench) -> str:
    """What `--force` gave a ref, in whichever repository of a checkout, as text."""
    git_dir = bench.path / ".git"
    return dropped(git_dir, *(objects.parent for objects in git_dir.glob("modules/**/objects")))


def give(upstream: Upstream, name: str, path: str, kind: str) -> str:
    """Commit what a path is to be to the branch of that kind; the commit."""
    work = upstream.work(name)
    git(work, "checkout", "--quiet", "--force", "-B", kind.replace(" ", "-"), "start")
    git(work, "clean", "--quiet", "-ffdx")
    place = work / path
    shutil.rmtree(place, ignore_errors=True)
    if kind == "submodule":
        add(upstream, name, "cudakit", path, called="s")
    elif kind == "other submodule":
        add(upstream, name, "plain", path, called="other")
    elif kind == "submodule below":
        add(upstream, name, "cudakit", f"{path}/below", called="below")
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        (place / "deep").mkdir(parents=True)
        (place / "deep/README").write_text("in a folder\n")
        (place / "fill.cu").write_text("a file of the same name\n")
    if kind == "file":
        place.write_text("a file\n")
    if kind == "link":
        place.symlink_to("../elsewhere" if "/" in path else "elsewhere")
    return upstream.commit(name, {"kind.txt": f"{kind}\n"}, kind, branch=kind.replace(" ", "-"))


def add(upstream: Upstream, name: str, module: str, path: str, *, called: str) -> None:
    command = ("submodule", "--quiet", "add", "--force", "--name", called)
    git(upstream.work(name), *command, f"../{module}.git", path)


def releases(upstream: Upstream, path: str, *kinds: str, within: str = "torch") -> None:
    """A branch of torch for each kind of these; of a submodule of it where `within` names one."""
    work = upstream.work(within)
    (work / "elsewhere").mkdir()
    (work / "elsewhere/aim").write_text("what a link leads to\n")
    upstream.commit(within, {}, "Begin")
    git(work, "branch", "--force", "start")
    commits = {kind: give(upstream, within, path, kind) for kind in kinds}
    if within != "torch":
        for kind, commit in commits.items():
            upstream.bump_submodule("torch", f"third_party/{within}", commit)
            upstream.commit("torch", {"kind.txt": f"{kind}\n"}, kind, branch=kind.replace(" ", "-"))


def walk(kinds: tuple[str, ...]) -> Iterator[str]:
    """A way that goes from each kind to each other one."""
    steps = {kind: [other for other in kinds if other != kind] for kind in kinds}
    way, stack = [], [kinds[0]]
    while stack:  # Hierholzer's way through every edge once
        if steps[stack[-1]]:
            stack.append(steps[stack[-1]].pop())
        else:
            way.append(stack.pop())
    return reversed(way)


def go(bench: Bench, kind: str, **changes: Any) -> None:
    bench(kind.replace(" ", "-"), **changes)


def visit(bench: Bench, kinds: tuple[str, ...], *, hipify: bool) -> None:
    expected = {}
    for kind in kinds:
        folder = bench.path.parent / kind
        go(bench, kind, checkout_dir=folder, hipify=hipify)
        expected[kind] = files_of(folder)
    go(bench, kinds[0], hipify=hipify)
    for before, kind in itertools.pairwise(walk(kinds)):
        go(bench, kind, hipify=hipify)
        assert files_of(bench.path) == expected[kind], f"{before} -> {kind}"
        assert bench.git("status", "--porcelain") == "", f"{before} -> {kind}"


@pytest.mark.parametrize(("path", "within", "hipify"), [("p", "torch", True), ("deps/p", "plain", False)])
def test_a_pristine_checkout_goes_from_each_kind_to_each_other(
    bench: Bench, upstream: Upstream, path: str, within: str, *, hipify: bool
) -> None:
    kinds = ("submodule", "folder", "link")
    releases(upstream, path, *kinds, within=within)
    visit(bench, kinds, hipify=hipify)


@pytest.mark.by_hand
@pytest.mark.parametrize("hipify", [True, False])
@pytest.mark.parametrize(("path", "within"), [("p", "torch"), ("third_party/p", "torch"), ("p", "plain")])
def test_it_does_where_submodules_move_and_take_each_others_place(
    bench: Bench, upstream: Upstream, path: str, within: str, *, hipify: bool
) -> None:
    releases(upstream, path, *KINDS, within=within)
    visit(bench, KINDS, hipify=hipify)


def test_a_link_to_a_submodule_is_not_taken_for_one(bench: Bench, upstream: Upstream) -> None:
    releases(upstream, "p", "other submodule")
    work = upstream.work("torch")
    git(work, "checkout", "--quiet", "--force", "-B", "to-it", "start")
    git(work, "clean", "--quiet", "-ffdx")
    (work / "p").symlink_to("third_party/plain")
    upstream.commit("torch", {}, "Link", branch="to-it")
    for kind in ("other submodule", "to it", "other submodule"):
        go(bench, kind)
        assert (bench.path / "p").is_symlink() == (kind == "to it")
        assert (bench.path / "p/plain.h").read_text() == "// plain\n"
        assert (bench.path / "third_party/plain/plain.h").read_text() == "// plain\n"


def new(place: Path) -> None:
    (place / "mine.txt").write_text(MINE)


def ignored(place: Path) -> None:
    (place / "mine.ignored").write_text(MINE)


def file_instead(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text(MINE)


def link_instead(place: Path) -> None:
    shutil.rmtree(place)
    place.symlink_to(MINE.strip())


def untied(place: Path) -> None:
    (place / ".git").unlink()
    new(place)


@pytest.mark.parametrize(
    ("before", "act", "after"),
    [
        ("submodule", untied, "file"),
        ("submodule", link_instead, "nothing"),
        ("submodule below", file_instead, "submodule"),
        ("folder", ignored, "submodule"),
        pytest.param("submodule", new, "folder", marks=pytest.mark.by_hand),
        pytest.param("submodule", file_instead, "link", marks=pytest.mark.by_hand),
        pytest.param("submodule", file_instead, "other submodule", marks=pytest.mark.by_hand),
        pytest.param("folder", new, "submodule", marks=pytest.mark.by_hand),
        pytest.param("folder", ignored, "file", marks=pytest.mark.by_hand),
        pytest.param("folder", file_instead, "submodule", marks=pytest.mark.by_hand),
    ],
)
def test_what_a_person_has_there_is_refused_by_name_and_kept_by_force(
    bench: Bench, upstream: Upstream, before: str, act: Callable[[Path], None], after: str
) -> None:
    releases(upstream, "p", before, after)
    go(bench, before)
    act(bench.path / "p")
    found = files_of(bench.path)
    with pytest.raises(SourceError, match=r"(file|files)( where the new commit has its own)? \(.*\bp\b"):
        go(bench, after)
    assert files_of(bench.path) == found
    go(bench, after, force=True)
    assert MINE.strip() in everything_dropped(bench)


@pytest.mark.parametrize(("act", "after"), [(new, "folder"), (new, "nothing"), (link_instead, "submodule")])
def test_what_a_person_has_in_the_place_of_a_submodule_that_was_not_wanted(
    bench: Bench, upstream: Upstream, act: Callable[[Path], None], after: str
) -> None:
    """Git does not look into such a folder."""
    releases(upstream, "p", "submodule", "other submodule", after)
    go(bench, "submodule", submodules=False)
    go(bench, "other submodule", submodules=False)
    act(bench.path / "p")
    with pytest.raises(SourceError, match=r"\(.*\bp\b"):
        go(bench, after, submodules=False)
    go(bench, after, submodules=False, force=True)
    assert MINE.strip() in everything_dropped(bench)


def test_git_leaves_what_is_in_the_folder_of_a_submodule_that_is_not_wanted(
    bench: Bench, upstream: Upstream
) -> None:
    releases(upstream, "p", "submodule", "other submodule")
    go(bench, "submodule", submodules=False)
    new(bench.path / "p")
    go(bench, "other submodule", submodules=False)
    assert (bench.path / "p/mine.txt").read_text() == MINE


def test_a_submodule_that_a_killed_run_has_begun_goes_away_with_its_release(
    bench: Bench, upstream: Upstream
) -> None:
    releases(upstream, "p", "submodule", "file")
    go(bench, "submodule")
    expected = files_of(bench.path)
    # As a kill leaves it before the first commit is there.
    dead = bench.path / ".git/modules/s"
    shutil.rmtree(dead)
    git(bench.path, "init", "--quiet", "--bare", str(dead))
    for name in ("fill.cu", "README"):
        (bench.path / "p" / name).unlink()
    note = bench.path / ".git/cairn.json"
    note.write_text(note.read_text().replace('"ready"', '"moving"'))
    go(bench, "file")
    assert (bench.path / "p").read_text() == "a file\n"
    go(bench, "submodule")
    assert files_of(bench.path) == expected
