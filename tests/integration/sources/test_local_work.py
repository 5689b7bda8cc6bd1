"""A person's edits and commits: kept, or refused with what would be lost."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.files import cache_dir
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.worktree.contents import tree_state
from cairn.stack import Project
from helpers.sources import Bench, Upstream, git


def test_edits_and_commits_stay_where_nothing_moves(bench: Bench) -> None:
    bench.begin()
    (bench.path / "mine.txt").write_text("mine")
    bench.git("add", "mine.txt")
    bench.git("commit", "--quiet", "-m", "Mine")
    (bench.path / "src/device.cpp").write_text("edited")
    mine = bench.git("rev-parse", "HEAD")
    bench()
    assert bench.git("rev-parse", "HEAD") == mine
    assert (bench.path / "src/device.cpp").read_text() == "edited"


def test_moving_is_refused_with_what_would_be_lost(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    (bench.path / "new.txt").write_text("new")
    (bench.path / "third_party/plain/plain.h").write_text("edited")
    (bench.path / "src/local.cpp").write_text("l")
    bench.git("add", "src/local.cpp")
    bench.git("commit", "--quiet", "-m", "A local fix")
    with pytest.raises(SourceError) as error:
        bench()
    message = str(error.value)
    assert "2 edited or new files (new.txt, third_party/plain/plain.h)" in message
    assert "1 commit that no branch keeps" in message
    assert "A local fix" in message
    assert "--force" in (error.value.tip or "")
    assert (bench.path / "new.txt").exists()


def test_force_drops_them(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    (bench.path / "new.txt").write_text("new")
    (bench.path / "src/device.cpp").write_text("edited")
    (bench.path / "third_party/cudakit/fill.cu").write_text("edited")
    done = bench(force=True)
    assert done.version == "2.9.1"
    assert not (bench.path / "new.txt").exists()
    assert bench.git("status", "--porcelain") == ""
    assert (bench.path / "third_party/cudakit/fill.cu").read_text() == '#include "hip/driver_types.h"\n'


def test_commits_on_a_branch_are_kept_by_the_branch(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    bench.git("switch", "--quiet", "-c", "mine")
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    mine = bench.git("rev-parse", "mine")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench().version == "2.9.1"
    assert bench.git("rev-parse", "mine") == mine


@pytest.mark.parametrize("end", ["\N{LINE SEPARATOR}", "\x0c", "\x85", "\x1c"])
def test_a_commit_counts_whose_subject_has_an_unusual_line_end(
    bench: Bench, upstream: Upstream, end: str
) -> None:
    bench.begin()
    upstream.go_on()
    bench.commit("mine.txt", "mine\n", f"One{end}two")
    with pytest.raises(SourceError, match="1 commit that no branch keeps"):
        bench()


def test_commits_in_a_submodule_count(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    bench.git("-C", "third_party/plain", "commit", "--quiet", "--allow-empty", "-m", "In the submodule")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    with pytest.raises(SourceError, match=r"third_party/plain: .* In the submodule"):
        bench()


def test_uncommitted_hipify_is_nobodys_work_until_edited(bench: Bench, upstream: Upstream) -> None:
    bench.begin(commit_hipify=False)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench(commit_hipify=False).version == "2.9.1"
    (bench.path / "src/device.cpp").write_text("edited")
    with pytest.raises(SourceError, match=r"src/device\.cpp"):
        bench("v2.9.0", commit_hipify=False)


def test_a_folder_that_is_no_checkout_is_left_alone(bench: Bench) -> None:
    bench.path.mkdir(parents=True)
    (bench.path / "thesis.txt").write_text("precious")
    with pytest.raises(SourceError, match="is not a git checkout"):
        bench(force=True)
    assert [p.name for p in bench.path.iterdir()] == ["thesis.txt"]


def test_a_dangling_link_is_called_that(bench: Bench, tmp_path: Path) -> None:
    bench.path.parent.mkdir(parents=True)
    bench.path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="is a dangling link"):
        bench()
    (tmp_path / "nowhere").mkdir()
    assert bench().version == "2.9.0a0"


def test_a_clone_made_by_hand_is_updated_in_place(bench: Bench, upstream: Upstream) -> None:
    bench.path.parent.mkdir(parents=True)
    git(bench.path.parent, "clone", "--quiet", "--recursive", upstream.origin("torch"), bench.path.name)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    done = bench()
    assert done.version == "2.9.1"
    assert bench.git("status", "--porcelain") == ""
    assert len(done.submodules) == 3


def test_hipify_of_a_clone_made_by_hand(bench: Bench, upstream: Upstream, torch: Project) -> None:
    reference = bench.begin()
    path = bench.path.parent / "by hand"
    git(bench.path.parent, "clone", "--quiet", "--recursive", upstream.origin("torch"), path.name)
    done = hipify_checkout(torch, path)
    assert (done.hipify_commit, done.tree) == (reference.hipify_commit, reference.tree)
    assert [m.hipify_commit for m in done.submodules] == [m.hipify_commit for m in reference.submodules]
    assert hipify_checkout(torch, path) == done


def test_hipify_of_a_checkout_made_without_keeps_local_commits(bench: Bench, torch: Project) -> None:
    bench.begin(hipify=False)
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    mine = bench.git("rev-parse", "HEAD")
    done = hipify_checkout(torch, bench.path)
    assert bench.git("rev-parse", "HEAD~1") == mine
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit
    assert hipify_checkout(torch, bench.path).hipify_commit == done.hipify_commit


def test_hipify_does_not_mix_its_edits_with_a_persons(bench: Bench, torch: Project) -> None:
    bench.begin(hipify=False)
    (bench.path / "src/device.cpp").write_text("edited")
    with pytest.raises(SourceError, match=r"src/device\.cpp.* would mix"):
        hipify_checkout(torch, bench.path)
    assert (bench.path / "src/device.cpp").read_text() == "edited"


def test_hipify_recognises_a_hipify_commit_of_somebody_else(bench: Bench, torch: Project) -> None:
    bench.begin()
    (bench.path / ".git/cairn.json").unlink()
    bench.git("tag", "-d", "THEROCK_HIPIFY_DIFFBASE")
    hipify_checkout(torch, bench.path)
    assert (bench.path / "src/device.cpp").read_text() == '#include "hip/driver_types.h"\n'


def test_the_tree_state_sees_every_edit_and_touches_nothing(bench: Bench) -> None:
    bench.begin()
    index = (bench.path / ".git/index").read_bytes()
    clean = tree_state(bench.path)
    assert tree_state(bench.path) == clean
    states = {clean}
    edits = {
        "edit": bench.path / "src/device.cpp",
        "new": bench.path / "src/new é.cpp",
        "submodule": bench.path / "third_party/cudakit/fill.cu",
        "nested": bench.path / "third_party/plain/deps/inner/new.h",
    }
    for path in edits.values():
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before or b"") + b"\n")
        states.add(tree_state(bench.path))
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        assert tree_state(bench.path) == clean
    (bench.path / "x.ignored").write_text("ignored")
    assert tree_state(bench.path) == clean
    (bench.path / "src/device.cpp").chmod(0o755)
    states.add(tree_state(bench.path))
    # Submodules do not vanish with the file that names them: HEAD has it still.
    (bench.path / ".gitmodules").unlink()
    states.add(tree_state(bench.path))
    edits["nested"].write_bytes(b"new\n")
    states.add(tree_state(bench.path))
    assert len(states) == 8
    assert (bench.path / ".git/index").read_bytes() == index


def test_the_tree_state_of_equal_checkouts_is_equal(bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    bench(checkout_dir=tmp_path / "other")
    assert tree_state(bench.path) == tree_state(tmp_path / "other")
    with pytest.raises(SourceError, match="not a git checkout"):
        tree_state(tmp_path)


def _own_clone(bench: Bench, upstream: Upstream, *options: str) -> None:
    bench.path.parent.mkdir(parents=True)
    url = f"file://{upstream.origin('torch')}"
    git(bench.path.parent, "clone", "--quiet", *options, url, bench.path.name)


@pytest.mark.parametrize("depth", [None, 1])
@pytest.mark.parametrize("branch", ["main", "other"])
def test_the_history_of_a_shallow_clone_made_by_hand_can_be_walked(
    bench: Bench, upstream: Upstream, branch: str, depth: int | None
) -> None:
    git(upstream.work("torch"), "switch", "--quiet", "-c", "other")
    upstream.commit("torch", {"other.txt": "1\n"}, "Other 1", branch="other")
    upstream.commit("torch", {"other.txt": "2\n"}, "Other 2", branch="other")
    git(upstream.work("torch"), "switch", "--quiet", "main")
    _own_clone(bench, upstream, "--depth=1", f"--branch={branch}")
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench(depth=depth).version == "2.9.1"
    bench.git("fsck", "--strict")
    assert bench.git("log", "--format=%s", branch).splitlines()[0] == "Mine"
    bench.git("rev-list", "--objects", "--all")
    bench.git("gc", "--quiet", "--prune=now")
    bench.git("fsck", "--strict")


def test_a_whole_clone_made_by_hand_keeps_its_history_beside_a_shallow_mirror(
    bench: Bench, upstream: Upstream
) -> None:
    _own_clone(bench, upstream)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    before = bench.git("rev-list", "--count", "main")
    bench(depth=1)
    assert bench.git("rev-list", "--count", "main") == before
    bench.git("fsck", "--strict")


def test_a_partial_clone_made_by_hand_is_updated_in_place(bench: Bench, upstream: Upstream) -> None:
    git(upstream.folder / "torch.git", "config", "uploadpack.allowFilter", "true")
    _own_clone(bench, upstream, "--filter=blob:none")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench().version == "2.9.1"
    bench.git("fsck")
    bench.git("log", "-p", "--all")


def test_a_clone_keeps_the_other_repositories_that_it_borrows_from(bench: Bench, upstream: Upstream) -> None:
    place = bench.saved.place
    git(place, "clone", "--quiet", "--bare", upstream.origin("torch"), "lender")
    _own_clone(bench, upstream, "--reference", str(place / "lender"))
    alternates = bench.path / ".git/objects/info/alternates"
    lender = Path("../../../../lender/objects")
    assert (bench.path / ".git/objects" / lender).is_dir()
    alternates.write_text(f"# by hand\n{lender}\n")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    bench()
    assert str(lender) in alternates.read_text().splitlines()
    bench.git("fsck", "--strict")
    assert bench().version == "2.9.1"


def test_what_the_user_wrote_into_a_git_directory_need_not_be_utf_8(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"J\xf6rg")
    lender = os.fsencode(folder / "lender" / "objects")
    folder.mkdir()
    git(folder, "clone", "--quiet", "--bare", upstream.origin("torch"), "lender")
    git(folder, "--git-dir=lender", "branch", os.fsdecode(b"J\xf6rg"))
    bench = dataclasses.replace(
        bench, request=dataclasses.replace(bench.request, checkout_dir=folder / "pytorch")
    )
    git(folder, "clone", "--quiet", upstream.origin("torch"), "pytorch")
    (bench.path / ".git/objects/info/alternates").write_bytes(lender + b"\n")
    config = bench.path / ".git/config"
    config.write_bytes(config.read_bytes() + b"[user]\n\tname = J\xf6rg\n")
    git(folder, "--git-dir=lender", "push", "--quiet", upstream.origin("torch"), "--all")
    commit = upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench(commit[:10]).version == "2.9.1"
    assert lender in (bench.path / ".git/objects/info/alternates").read_bytes().splitlines()
    assert b"name = J\xf6rg\n" in config.read_bytes()
    (mirror,) = (cache_dir() / "mirrors").glob("*-torch*.git")
    git(mirror, "pack-refs", "--all")
    assert b"J\xf6rg" in (mirror / "packed-refs").read_bytes()
    assert bench("main").version == "2.9.1"
    with pytest.raises(SourceError, match="is not a valid repo hashtag"):
        bench(os.fsdecode(b"J\xf6rg"))


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"gitdir: \0", b"gitdir: nowhere\n", b"nowhere\n"])
def test_a_file_git_that_leads_nowhere_is_left_alone(bench: Bench, text: bytes) -> None:
    bench.path.mkdir(parents=True)
    (bench.path / ".git").write_bytes(text)
    with pytest.raises(SourceError, match="has files and is not a git checkout"):
        bench()
    assert (bench.path / ".git").read_bytes() == text


def test_a_worktree_made_by_hand_is_updated_in_place(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{upstream.origin('torch')}", "first")
    first = tmp_path / "first"
    bench.path.parent.mkdir(parents=True)
    git(first, "worktree", "add", "--quiet", "-b", "second", str(bench.path))
    (first / "mine.txt").write_text("mine")
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench().version == "2.9.1"
    assert bench.git("log", "-1", "--format=%s", "second") == "Mine"
    for tree in (first, bench.path):
        git(tree, "fsck", "--strict")
        git(tree, "log", "--all")
    assert git(first, "status", "--porcelain") == "?? mine.txt"
    assert git(first, "branch", "--show-current") == "main"


def test_a_sparse_checkout_loses_nothing(bench: Bench, upstream: Upstream) -> None:
    _own_clone(bench, upstream)
    bench.git("sparse-checkout", "set", "--no-cone", "/*", "!/src/cuda/")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    (bench.path / "src/cuda").mkdir()
    (bench.path / "src/cuda/kernel.cu").write_text("mine\n")
    with pytest.raises(SourceError, match=r"src/cuda/kernel\.cu"):
        bench()
    assert (bench.path / "src/cuda/kernel.cu").read_text() == "mine\n"
    (bench.path / "src/cuda/kernel.cu").unlink()
    with pytest.raises(SourceError, match="sparse checkout"):
        bench(force=True)
    bench.git("sparse-checkout", "disable")
    assert bench().version == "2.9.1"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_edit_that_git_was_told_to_overlook_counts(bench: Bench, upstream: Upstream, flag: str) -> None:
    bench.begin()
    bench.git("update-index", flag, "version.txt")
    (bench.path / "version.txt").write_text("mine\n")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    with pytest.raises(SourceError, match=r"version\.txt\); checking out would lose"):
        bench()
    assert (bench.path / "version.txt").read_text() == "mine\n"


@pytest.mark.parametrize("where", ["torch", "cudakit"])
def test_ignored_files_that_the_new_commit_has_are_refused_by_name(
    bench: Bench, upstream: Upstream, where: str
) -> None:
    names = ("local.ignored", "Größe Ω.ignored", "a folder/deep/local.ignored")

    def make() -> None:
        kit = upstream.commit("cudakit", {".gitignore": "*.ignored\n"}, "Ignore")
        upstream.bump_submodule("torch", "third_party/cudakit", kit)
        upstream.commit("torch", {}, "Bump")
        bench()

    bench.saved.bring("cudakit ignores too", make)
    prefix = {"torch": "", "cudakit": "third_party/cudakit/"}[where]
    folder = bench.path / prefix
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious\n")
    (folder / "same.ignored").write_text("as upstream has it\n")
    tracked = dict.fromkeys(names, "tracked now\n") | {"same.ignored": "as upstream has it\n"}
    commit = upstream.commit(where, tracked, "Track")
    if where == "cudakit":
        upstream.bump_submodule("torch", "third_party/cudakit", commit)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    with pytest.raises(SourceError) as error:
        bench()
    assert [name for name in names if f"{prefix}{name}" not in str(error.value)] == []
    assert "same.ignored" not in str(error.value)
    assert {(folder / name).read_text() for name in names} == {"precious\n"}
    bench(force=True)
    assert {(folder / name).read_text() for name in names} == {"tracked now\n"}
    ref = bench.git("-C", str(folder), "for-each-ref", "--format=%(refname)", "refs/cairn/dropped")
    assert {bench.git("-C", str(folder), "show", f"{ref}:{name}") for name in names} == {"precious"}


def test_ignored_folders_and_files_in_each_others_place_are_refused_by_name(
    bench: Bench, upstream: Upstream
) -> None:
    bench.begin()
    (bench.path / "build").mkdir()
    (bench.path / "build/mine.o").write_text("mine")
    (bench.path / "tools.ignored").write_text("mine")
    (bench.path / "LOCAL.ignored").write_text("mine")
    (bench.path / "link.ignored").symlink_to("/etc")
    tracked = {"build": "a file now\n", "tools.ignored/x.txt": "x\n", "local.ignored": "x\n"}
    upstream.commit("torch", tracked | {"link.ignored/hosts": "x\n"}, "Track")
    with pytest.raises(SourceError) as error:
        bench()
    assert "3 ignored files" in str(error.value)
    for name in ("build/mine.o", "tools.ignored", "link.ignored"):
        assert name in str(error.value)
    assert (bench.path / "build/mine.o").read_text() == "mine"
    assert (bench.path / "link.ignored").is_symlink()
    bench(force=True)
    assert (bench.path / "LOCAL.ignored").read_text() == "mine"
    assert (bench.path / "local.ignored").read_text() == "x\n"


@pytest.mark.parametrize("way", ["upstream drops it", "--no-submodules"])
def test_ignored_files_in_a_submodule_that_goes_away_are_refused_by_name(
    bench: Bench, upstream: Upstream, way: str
) -> None:
    bench.begin()
    exclude = bench.path / ".git/modules/third_party/plain/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.mine\n")
    (bench.path / "third_party/plain/x.mine").write_text("mine")
    if way == "upstream drops it":
        git(upstream.work("torch"), "rm", "--quiet", "-rf", "third_party/plain")
        upstream.commit("torch", {}, "Without plain")
    changes = {} if way == "upstream drops it" else {"submodules": False}
    with pytest.raises(SourceError, match=r"third_party/plain/x\.mine"):
        bench(**changes)
    assert (bench.path / "third_party/plain/x.mine").read_text() == "mine"
    bench(force=True, **changes)
    assert not (bench.path / "third_party/plain/plain.h").exists()


def test_a_clone_where_a_submodule_belongs_is_left_alone(bench: Bench, upstream: Upstream) -> None:
    bench.begin(submodules=False)
    git(bench.path / "third_party", "clone", "--quiet", upstream.origin("plain"), "plain")
    (bench.path / "third_party/plain/mine.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(SourceError, match="third_party/plain"):
            bench(force=force)
    assert (bench.path / "third_party/plain/mine.txt").read_text() == "mine"


def test_a_repository_within_the_checkout_survives_force(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    git(bench.path, "init", "--quiet", "tool")
    (bench.path / "tool/mine.txt").write_text("mine")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    for force in (False, True):
        with pytest.raises(SourceError, match="tool/"):
            bench(force=force)
    assert (bench.path / "tool/mine.txt").read_text() == "mine"
    (bench.path / ".git/info").mkdir(exist_ok=True)
    (bench.path / ".git/info/exclude").write_text("tool/\n")
    assert bench().version == "2.9.1"
    assert (bench.path / "tool/mine.txt").read_text() == "mine"


def test_a_tag_of_a_persons_own_is_not_moved(bench: Bench, upstream: Upstream) -> None:
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    bench()
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    bench.git("tag", "v2.9.0")
    mine = bench.git("rev-parse", "v2.9.0")
    assert bench("v2.9.0").version == "2.9.0a0"
    assert bench.git("rev-parse", "v2.9.0") == mine
