"""A person's edits and commits: kept, or refused with what would be lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairn.errors import SourceError
from cairn.sources.checkout import hipify_checkout
from cairn.sources.treestate import tree_state


def test_edits_and_commits_stay_where_nothing_moves(bench: Any) -> None:
    bench()
    (bench.path / "mine.txt").write_text("mine")
    bench.git("add", "mine.txt")
    bench.git("commit", "--quiet", "-m", "Mine")
    (bench.path / "src/device.cpp").write_text("edited")
    mine = bench.git("rev-parse", "HEAD")
    bench()
    assert bench.git("rev-parse", "HEAD") == mine
    assert (bench.path / "src/device.cpp").read_text() == "edited"


def test_moving_is_refused_with_what_would_be_lost(bench: Any, upstream: Any) -> None:
    bench()
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


def test_force_drops_them(bench: Any, upstream: Any) -> None:
    bench()
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    (bench.path / "new.txt").write_text("new")
    (bench.path / "src/device.cpp").write_text("edited")
    (bench.path / "third_party/cudakit/fill.cu").write_text("edited")
    done = bench(force=True)
    assert done.version == "2.9.1"
    assert not (bench.path / "new.txt").exists()
    assert bench.git("status", "--porcelain") == ""
    assert (bench.path / "third_party/cudakit/fill.cu").read_text() == '#include "hip/driver_types.h"\n'


def test_commits_on_a_branch_are_kept_by_the_branch(bench: Any, upstream: Any) -> None:
    bench()
    bench.git("switch", "--quiet", "-c", "mine")
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    mine = bench.git("rev-parse", "mine")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench().version == "2.9.1"
    assert bench.git("rev-parse", "mine") == mine


def test_commits_in_a_submodule_count(bench: Any, upstream: Any) -> None:
    bench()
    bench.git("-C", "third_party/plain", "commit", "--quiet", "--allow-empty", "-m", "In the submodule")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    with pytest.raises(SourceError, match=r"third_party/plain: .* In the submodule"):
        bench()


def test_uncommitted_hipify_is_nobodys_work_until_edited(bench: Any, upstream: Any) -> None:
    bench(commit_hipify=False)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench(commit_hipify=False).version == "2.9.1"
    (bench.path / "src/device.cpp").write_text("edited")
    with pytest.raises(SourceError, match=r"src/device\.cpp"):
        bench("v2.9.0", commit_hipify=False)


def test_a_folder_that_is_no_checkout_is_left_alone(bench: Any) -> None:
    bench.path.mkdir(parents=True)
    (bench.path / "thesis.txt").write_text("precious")
    with pytest.raises(SourceError, match="is not a git checkout"):
        bench(force=True)
    assert [p.name for p in bench.path.iterdir()] == ["thesis.txt"]


def test_a_clone_made_by_hand_is_updated_in_place(bench: Any, upstream: Any, run_git: Any) -> None:
    bench.path.parent.mkdir(parents=True)
    run_git(bench.path.parent, "clone", "--quiet", "--recursive", upstream.origin("torch"), bench.path.name)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    done = bench()
    assert done.version == "2.9.1"
    assert bench.git("status", "--porcelain") == ""
    assert len(done.submodules) == 3


def test_hipify_of_a_clone_made_by_hand(bench: Any, upstream: Any, torch: Any, run_git: Any) -> None:
    reference = bench()
    path = bench.path.parent / "by hand"
    run_git(bench.path.parent, "clone", "--quiet", "--recursive", upstream.origin("torch"), path.name)
    done = hipify_checkout(torch, path)
    assert (done.hipify_commit, done.tree) == (reference.hipify_commit, reference.tree)
    assert [m.hipify_commit for m in done.submodules] == [m.hipify_commit for m in reference.submodules]
    assert hipify_checkout(torch, path) == done


def test_hipify_of_a_checkout_made_without_keeps_local_commits(bench: Any, torch: Any) -> None:
    bench(hipify=False)
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    mine = bench.git("rev-parse", "HEAD")
    done = hipify_checkout(torch, bench.path)
    assert bench.git("rev-parse", "HEAD~1") == mine
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit
    assert hipify_checkout(torch, bench.path).hipify_commit == done.hipify_commit


def test_hipify_does_not_mix_its_edits_with_a_persons(bench: Any, torch: Any) -> None:
    bench(hipify=False)
    (bench.path / "src/device.cpp").write_text("edited")
    with pytest.raises(SourceError, match=r"src/device\.cpp.* would mix"):
        hipify_checkout(torch, bench.path)
    assert (bench.path / "src/device.cpp").read_text() == "edited"


def test_hipify_recognises_a_hipify_commit_of_somebody_else(bench: Any, torch: Any) -> None:
    bench()
    (bench.path / ".git/cairn.json").unlink()
    bench.git("tag", "-d", "THEROCK_HIPIFY_DIFFBASE")
    hipify_checkout(torch, bench.path)
    assert (bench.path / "src/device.cpp").read_text() == '#include "hip/driver_types.h"\n'


def test_the_tree_state_sees_every_edit_and_touches_nothing(bench: Any) -> None:
    bench()
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
    assert len(states) == 6
    assert (bench.path / ".git/index").read_bytes() == index


def test_the_tree_state_of_equal_checkouts_is_equal(bench: Any, tmp_path: Path) -> None:
    bench()
    bench(checkout_dir=tmp_path / "other")
    assert tree_state(bench.path) == tree_state(tmp_path / "other")
    with pytest.raises(SourceError, match="not a git checkout"):
        tree_state(tmp_path)
