"""A checkout as the README page shows it, in every way a hashtag can be written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cairn.cli.checkout import answer
from cairn.errors import NetworkError, SourceError
from cairn.stack import Project
from helpers.sources import Bench, Upstream, files_of, git

UPSTREAM, HIPIFY = "THEROCK_UPSTREAM_DIFFBASE", "THEROCK_HIPIFY_DIFFBASE"
ROOT_ALONE = {"submodules": False, "hipify": False}


def test_history_reads_as_the_page_shows_it(bench: Bench) -> None:
    done = bench.begin()
    log = bench.git("log", "--format=%D|%s", "-2").splitlines()
    assert log == [
        f"HEAD, tag: {HIPIFY}|DO NOT SUBMIT: HIPIFY",
        f"tag: {UPSTREAM}, origin/main|Add submodules",
    ]
    assert bench.git("status", "--porcelain") == ""
    assert done.version == "2.9.0a0"
    heads = bench.git("rev-parse", UPSTREAM, "HEAD", "HEAD^{tree}").splitlines()
    assert heads == [done.commit, done.hipify_commit, done.tree]
    # Both tags are in every submodule, changed or not.
    paths = ("third_party/cudakit", "third_party/plain", "third_party/plain/deps/inner")
    assert tuple(module.path for module in done.submodules) == paths
    for module in done.submodules:
        tags = bench.git("-C", module.path, "rev-parse", UPSTREAM, HIPIFY).splitlines()
        assert tags == [module.commit, module.hipify_commit]
    assert [m.path for m in done.submodules if m.commit != m.hipify_commit] == ["third_party/cudakit"]


def test_the_report_and_the_commit_have_what_hipify_did(bench: Bench) -> None:
    report = bench.begin().report
    assert report is not None
    assert report.changed == ("src/device.cpp", "third_party/cudakit/fill.cu")
    assert report.generated == ("generated.ignored", "src/hip/kernel.hip")
    assert report.unchanged == ("src/cuda/kernel.cu",)
    names = bench.git("diff", "--name-only", UPSTREAM, HIPIFY).splitlines()
    # Generated files that the project ignores are in it too; what changed in submodules is not.
    assert names == ["generated.ignored", "src/device.cpp", "src/hip/kernel.hip"]


def test_hipify_is_not_applied_twice(bench: Bench) -> None:
    first = bench.begin()
    second = bench()
    assert first == second
    assert (bench.path / "src/device.cpp").read_text() == '#include "hip/driver_types.h"\n'


def test_two_people_get_the_same_commits(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = bench.begin()
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "other cache"))
    theirs = bench(checkout_dir=tmp_path / "theirs")
    assert mine.hipify_commit == theirs.hipify_commit
    assert mine.submodules == theirs.submodules


@pytest.mark.parametrize("name", ["v2.9.0", "refs/tags/v2.9.0", "tags/v2.9.0"])
def test_a_tag(bench: Bench, name: str) -> None:
    done = bench(name, **ROOT_ALONE)
    assert done.commit == bench.git("rev-parse", "v2.9.0^{commit}")
    assert bench.git("cat-file", "-t", "v2.9.0") == "tag"


def test_a_bare_commit_that_no_branch_has(bench: Bench, upstream: Upstream) -> None:
    lost = upstream.commit("torch", {"version.txt": "9\n"}, "Lost", branch="away")
    git(Path(upstream.origin("torch")), "branch", "-D", "away")
    done = bench(lost, **ROOT_ALONE)
    assert (done.commit, done.version) == (lost, "9")


def test_an_abbreviated_commit(bench: Bench, upstream: Upstream) -> None:
    commit = upstream.commit("torch", {"version.txt": "3\n"}, "Three", branch="three")
    assert bench(commit[:10], **ROOT_ALONE).commit == commit


@pytest.mark.parametrize("name", ["refs/pull/7/head", "pull/7/head", "#7"])
def test_a_pull_requests_ref(bench: Bench, upstream: Upstream, name: str) -> None:
    commit = upstream.commit("torch", {"version.txt": "7\n"}, "Seven", branch="seven")
    bare = Path(upstream.origin("torch"))
    git(bare, "update-ref", "refs/pull/7/head", commit)
    git(bare, "branch", "-D", "seven")
    assert bench(name, **ROOT_ALONE).commit == commit


def test_a_branch_is_followed_even_when_it_is_rewritten(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    git(upstream.work("torch"), "reset", "--quiet", "--hard", "HEAD~1")
    rewritten = upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Other", branch="main")
    done = bench()
    assert (done.commit, done.version) == (rewritten, "2.9.1")
    assert bench.git("log", "--format=%s", "-2").splitlines() == ["DO NOT SUBMIT: HIPIFY", "Other"]


def test_submodules_follow_the_root_and_leave_with_it(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    newer = upstream.commit("cudakit", {"README": "newer\n"}, "Newer kit")
    upstream.bump_submodule("torch", "third_party/cudakit", newer)
    git(upstream.work("torch"), "rm", "--quiet", "-f", "third_party/plain")
    upstream.commit("torch", {}, "Bump, and drop plain")
    done = bench()
    assert [(m.path, m.commit) for m in done.submodules] == [("third_party/cudakit", newer)]
    assert not (bench.path / "third_party/plain").exists()
    assert bench.git("status", "--porcelain") == ""
    older = bench("v2.9.0")
    assert [m.path for m in older.submodules][-1] == "third_party/plain/deps/inner"
    assert (bench.path / "third_party/plain/deps/inner/inner.h").exists()
    assert bench.git("status", "--porcelain") == ""


def test_a_submodule_whose_folder_was_removed_comes_back_whatever_branches_are_called(bench: Bench) -> None:
    bench.begin()
    bench.git("branch", "missing")
    shutil.rmtree(bench.path / "third_party/cudakit")
    bench()
    assert (bench.path / "third_party/cudakit/README").read_text() == "kit\n"


def test_plain_git_works_in_the_checkout(bench: Bench) -> None:
    bench.begin()
    assert bench.git("remote", "get-url", "origin") == bench.request.origin
    bench.git("fetch", "--quiet", "origin")
    bench.git("submodule", "--quiet", "update", "--init", "--recursive")
    bench.git("fsck")


def test_ignored_files_stay_so_that_builds_go_on(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    (bench.path / "build").mkdir()
    (bench.path / "build/object.o").write_text("o")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    bench()
    assert (bench.path / "build/object.o").read_text() == "o"


def test_choices_can_be_changed_on_one_checkout(bench: Bench) -> None:
    committed = bench.begin()
    uncommitted = bench(commit_hipify=False)
    assert uncommitted.hipify_commit is None
    assert bench.git("rev-parse", "HEAD") == uncommitted.commit
    assert bench.git("diff", "--name-only") == "src/device.cpp"
    assert bench(commit_hipify=False) == uncommitted
    assert (bench.path / "src/device.cpp").read_text() == '#include "hip/driver_types.h"\n'
    plain = bench(hipify=False)
    assert plain.hipify_commit is None
    assert bench.git("tag", "--list", "THEROCK*").splitlines() == [UPSTREAM]
    assert (bench.path / "src/device.cpp").read_text() == '#include "driver_types.h"\n'
    assert bench() == committed


def test_no_submodules(bench: Bench) -> None:
    done = bench.begin(submodules=False, hipify=False)
    assert done.submodules == ()
    assert list((bench.path / "third_party/cudakit").iterdir()) == []
    assert len(bench(hipify=False).submodules) == 3
    assert bench(**ROOT_ALONE).submodules == ()


def test_depth_fetches_no_more_history(bench: Bench, upstream: Upstream) -> None:
    upstream.commit("torch", {"a": "1"}, "One more")
    done = bench(depth=1)
    assert bench.git("log", "--format=%s").splitlines() == ["DO NOT SUBMIT: HIPIFY", "One more"]
    assert len(done.submodules) == 3
    bench.git("fsck")
    deeper = upstream.commit("torch", {"a": "2"}, "Two more")
    assert bench(depth=2).commit == deeper
    assert bench.git("log", "--format=%s").splitlines() == ["DO NOT SUBMIT: HIPIFY", "Two more", "One more"]
    assert bench().commit == deeper
    assert bench(hipify=False).commit == deeper
    assert "Begin torch" in bench.git("log", "--format=%s").splitlines()


def test_an_origin_that_is_shallow_itself(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    url = f"file://{upstream.origin('torch')}"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=1", url, "part.git")
    origin = str(tmp_path / "part.git")
    with pytest.raises(SourceError, match="does not have the whole history of main") as error:
        bench(origin=origin, **ROOT_ALONE)
    assert "--depth" in (error.value.tip or "")
    assert bench(origin=origin, **ROOT_ALONE, depth=1).version == "2.9.0a0"


def test_a_project_that_hipifies_at_build_gets_both_tags_at_one_commit(bench: Bench, torch: Project) -> None:
    done = bench(project=msgspec.structs.replace(torch, hipify="at-build"), submodules=False)
    assert done.hipify_commit == done.commit
    names = bench.git("log", "-1", "--format=%D").split(", ")
    assert sorted(names) == ["HEAD", "origin/main", f"tag: {HIPIFY}", f"tag: {UPSTREAM}"]


def test_a_hipify_that_has_nothing_to_do_is_fine(bench: Bench, upstream: Upstream) -> None:
    work = upstream.work("torch")
    git(work, "rm", "--quiet", "-rf", "src", "third_party")
    upstream.commit(
        "torch", {"tools/amd_build/build_amd.py": "print('none')\n", "a.cpp": "int a;\n"}, "No CUDA"
    )
    done = bench(submodules=False)
    assert done.hipify_commit == done.commit


def test_a_hipify_that_matches_nothing_though_there_is_cuda_is_an_error(
    bench: Bench, upstream: Upstream
) -> None:
    upstream.commit("torch", {"tools/amd_build/build_amd.py": "print('matched nothing')\n"}, "Broken")
    with pytest.raises(SourceError, match=r"changed nothing .*kernel\.cu"):
        bench(submodules=False)


def test_a_hipify_that_fails_says_why(bench: Bench, upstream: Upstream) -> None:
    upstream.commit("torch", {"tools/amd_build/build_amd.py": "raise SystemExit('no submodule')\n"}, "Broken")
    with pytest.raises(SourceError, match="no submodule"):
        bench(submodules=False)
    assert bench("v2.9.0", submodules=False).version == "2.9.0a0"


def test_an_unknown_hashtag_names_similar_ones(bench: Bench) -> None:
    with pytest.raises(SourceError, match="has no branch, tag or commit 'mian'") as error:
        bench("mian")
    assert error.value.tip == "it has main"
    assert not bench.path.exists()


def test_what_cannot_be_a_hashtag(bench: Bench) -> None:
    for name in ("0" * 40, "--upload-pack=x", "a b", "", "main:x", "../main"):
        with pytest.raises(SourceError):
            bench(name)


def test_a_path_without_a_repository(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read the origin .*nowhere"):
        bench(origin=str(tmp_path / "nowhere"))


def test_an_unreachable_origin_is_tried_again_and_named(bench: Bench) -> None:
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1") as error:
        bench(origin="http://user:s3cr%40t@127.0.0.1:9/torch.git")
    assert "s3cr" not in f"{error.value} {error.value.tip}"


def test_an_address_that_git_cannot_read_is_named_without_its_password(bench: Bench) -> None:
    # Which of the two depends on the curl that git has.
    with pytest.raises((SourceError, NetworkError), match=r"127\.0\.0\.1:9/torch\.git") as error:
        bench(origin="http://user:s3cr@t@127.0.0.1:9/torch.git")
    assert "s3cr" not in f"{error.value} {error.value.tip}"


def test_a_missing_version_file_is_one_line(bench: Bench, upstream: Upstream) -> None:
    git(upstream.work("torch"), "rm", "--quiet", "version.txt")
    upstream.commit("torch", {}, "No version")
    with pytest.raises(SourceError, match=r"torch has no readable version file .*version\.txt"):
        bench(**ROOT_ALONE)


def test_a_submodule_commit_that_its_origin_lacks_is_named(bench: Bench, upstream: Upstream) -> None:
    work = upstream.work("torch") / "third_party/cudakit"
    git(work, "commit", "--quiet", "--allow-empty", "-m", "Never pushed")
    upstream.commit("torch", {}, "Bad bump")
    with pytest.raises(SourceError, match="submodule third_party/cudakit"):
        bench(hipify=False)


def test_the_files_are_those_of_upstreams_procedure_by_hand(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    bench.begin()
    by_hand = tmp_path / "by hand"
    git(tmp_path, "clone", "--quiet", "--recursive", upstream.origin("torch"), by_hand.name)
    subprocess.run(
        [sys.executable, "tools/amd_build/build_amd.py"], cwd=by_hand, check=True, capture_output=True
    )
    assert files_of(bench.path) == files_of(by_hand)


def test_torchs_hipify_needs_an_interpreter_that_has_torch(bench: Bench, torch: Project) -> None:
    with pytest.raises(SourceError, match="No module named 'torch'") as error:
        bench(project=msgspec.structs.replace(torch, hipify="torch-utils"), submodules=False)
    assert "--python" in (error.value.tip or "")


def test_a_submodule_name_that_climbs_out_is_refused(bench: Bench, upstream: Upstream) -> None:
    modules = upstream.work("torch") / ".gitmodules"
    modules.write_text(modules.read_text().replace('"third_party/plain"', '"../../hooks"'))
    upstream.commit("torch", {}, "Attack")
    with pytest.raises(SourceError, match="outside the repository"):
        bench()
    assert not bench.path.exists()


@pytest.mark.parametrize("path", ["version.txt", ".gitmodules"])
def test_a_merge_that_was_committed_in_conflict_is_refused(
    bench: Bench, upstream: Upstream, path: str
) -> None:
    text = (upstream.work("torch") / path).read_text()
    upstream.commit("torch", {path: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> theirs\n"}, "Conflict")
    with pytest.raises(SourceError, match=path.replace(".", r"\.")):
        bench(hipify=False)


def test_of_a_tag_and_a_branch_of_one_name_the_tag_is_taken_and_said(
    bench: Bench, upstream: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    branch = upstream.commit("torch", {"version.txt": "3.0\n"}, "A branch", branch="v2.9.0")
    work = upstream.work("torch")
    done = bench("v2.9.0", **ROOT_ALONE)
    assert done.commit == git(work, "rev-parse", "refs/tags/v2.9.0^{commit}") != branch
    assert [("is a tag and a branch" in note, "refs/heads/v2.9.0" in note) for note in done.notes] == [
        (True, True)
    ]
    answer([done])
    assert "torch: v2.9.0 is a tag and a branch" in capsys.readouterr().err
    # As git itself does, and upstream's scripts by it.
    git(work, "fetch", "--quiet", "origin", "v2.9.0")
    assert git(work, "rev-parse", "FETCH_HEAD^{commit}") == done.commit
    named = bench("refs/heads/v2.9.0", **ROOT_ALONE)
    assert (named.commit, named.notes) == (branch, ())
    assert [bench(name, **ROOT_ALONE).notes for name in ("refs/tags/v2.9.0", "main")] == [(), ()]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/inner.git", "../nowhere.git", "../../../../../../../../x"]
)
def test_a_submodule_that_cannot_be_reached_is_named_by_its_path(
    bench: Bench, upstream: Upstream, url: str
) -> None:
    plain = upstream.work("plain")
    git(plain, "config", "--file", ".gitmodules", "submodule.deps/inner.url", url)
    commit = upstream.commit("plain", {}, "Moved away")
    upstream.bump_submodule("torch", "third_party/plain", commit)
    upstream.commit("torch", {}, "Follow")
    with pytest.raises((SourceError, NetworkError), match=r"^submodule third_party/plain/deps/inner: "):
        bench(hipify=False)


def test_pointers_of_lfs_get_a_line(bench: Bench, upstream: Upstream) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    files = {
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        "a.bin": "real",
        "b.txt": pointer,
    }
    upstream.commit("plain", files | {"weights/c ü.bin": pointer}, "Weights")
    at = upstream.commit("plain", {}, "Again")
    upstream.bump_submodule("torch", "third_party/plain", at)
    upstream.commit("torch", {}, "Follow")
    (note,) = bench(hipify=False).notes
    assert "1 file of Git LFS came as a pointer" in note
    assert "third_party/plain/weights/c ü.bin" in note
    assert bench(hipify=False).notes == (note,)  # as long as it is so
