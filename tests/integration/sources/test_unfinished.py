"""A run that failed or was killed, and a person who edits before the next one: nothing of theirs goes.

The upstream repositories have files on several pages, so that half a file is possible.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.errors import CairnError, SourceError
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Project
from helpers.sources import (
    EVERY_MOMENT,
    HIPIFY,
    Bench,
    Saved,
    Upstream,
    When,
    dropped_ref,
    files_of,
    killed,
)

# What kills hipify half way: the file it has rewritten is there, the other ones are not yet.
HALF_HIPIFY = """\
import os, pathlib, signal
path = pathlib.Path("src/device.cpp")
path.write_text(path.read_text().replace("driver_types.h", "hip/driver_types.h"))
pathlib.Path("early.ignored").write_text("x")
{end}
"""
KILL = "now = pathlib.Path('{now}'); now.exists() or (now.touch(), __import__('time').sleep(60))"

NEW = {"src/new.cpp": "new\n"}
HIPIFY_PY = "tools/amd_build/build_amd.py"

Act = Callable[[Bench], None]


def fail_to_hipify(bench: Bench, upstream: Upstream, _tmp_path: Path) -> None:
    """As a dangling `.cu` link makes it: something is written, then it ends."""
    upstream.go_on(
        NEW | {HIPIFY_PY: HALF_HIPIFY.format(end="raise SystemExit('cannot read src/dangling.cu')")}
    )
    with pytest.raises(SourceError, match="hipify"):
        bench()


def kill_hipify(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    now = tmp_path / "shim" / "now"  # then `killed` kills: a confined program signals none outside
    upstream.go_on(NEW | {HIPIFY_PY: HALF_HIPIFY.format(end=KILL.format(now=now))})
    assert killed(bench, tmp_path / "shim", nth=10_000) == -signal.SIGKILL


def fail_to_fetch(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    upstream.go_on(NEW)
    (upstream.folder / "cudakit.git").rename(tmp_path / "away.git")
    with pytest.raises(CairnError, match="third_party/cudakit"):
        bench()
    (tmp_path / "away.git").rename(upstream.folder / "cudakit.git")


def _at(verb: str, *, nth: int = 1, when: When = "before") -> Callable[[Bench, Upstream, Path], None]:
    def kill(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
        upstream.go_on(NEW)
        assert killed(bench, tmp_path / "shim", verb=verb, nth=nth, when=when) == -signal.SIGKILL

    return kill


MOMENTS: dict[str, Callable[[Bench, Upstream, Path], None]] = {
    "a failed hipify": fail_to_hipify,
    "a killed hipify": kill_hipify,
    "a submodule that is not available": fail_to_fetch,
    "killed before the root moves": _at("checkout"),
    "killed when the root's files are there": _at("checkout", when="after"),
    "killed before the clean": _at("clean"),
    "killed before a submodule moves": _at("checkout", nth=2),
    "killed when a submodule's files are there": _at("checkout", nth=2, when="after"),
    "killed before hipify's commit": _at("commit-tree"),
    "killed when hipify's commit is made": _at("commit-tree", when="after"),
    "killed before hipify's commit arrives": _at("merge"),
    "killed when hipify's files have arrived": _at("merge", when="after"),
    "killed when they have in the root, and not in a submodule": _at("merge", nth=2),
}


@pytest.fixture(params=MOMENTS, scope="module")
def moment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def unfinished(moment: str, bench: Bench, upstream: Upstream, saved: Saved, tmp_path: Path) -> Bench:
    """A checkout whose update ended at this moment."""

    def make() -> None:
        bench.begin()
        write("mine.ignored")(bench)
        MOMENTS[moment](bench, upstream, tmp_path)

    saved.bring(moment, make)
    return bench


def write(name: str, text: str = "a person's\n") -> Act:
    def act(bench: Bench) -> None:
        (bench.path / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.path / name).write_text(text)

    return act


def stage(bench: Bench) -> None:
    """Staged only: the file itself is as it was."""
    path = bench.path / "src/cuda/kernel.cu"
    before = path.read_bytes()
    path.write_text("staged\n")
    bench.git("add", "src/cuda/kernel.cu")
    path.write_bytes(before)


def commit(where: str, *, branch: str | None = None) -> Act:
    def act(bench: Bench) -> None:
        if branch:
            bench.git("-C", where, "switch", "--quiet", "-c", branch)
        bench.commit("by a person.txt", "committed\n", "A commit of a person", part=where)

    return act


def delete(bench: Bench) -> None:
    (bench.path / ".gitignore").unlink()


# What a person does, and the name it is refused under.
ACTS: dict[str, tuple[Act, str]] = {
    "an edited file": (write(".gitignore", "*.ignored\nbuild/\n# mine\n"), ".gitignore"),
    "an edited file that hipify has rewritten": (write("src/device.cpp", "mine\n"), "src/device.cpp"),
    "an edit of what is new": (write("version.txt", "2.9.1\nmine\n"), "version.txt"),
    "a new file": (write("notes of a person.txt"), "notes of a person.txt"),
    "a staged change": (stage, "src/cuda/kernel.cu"),
    "a deleted file": (delete, ".gitignore"),
    "an edit in a submodule": (write("third_party/cudakit/README", "mine\n"), "third_party/cudakit/README"),
    "an edit in a nested submodule": (
        write("third_party/plain/deps/inner/inner.h", "mine\n"),
        "third_party/plain/deps/inner/inner.h",
    ),
    "a new file in a submodule": (write("third_party/plain/mine.txt"), "third_party/plain/mine.txt"),
    "a detached commit": (commit("."), "A commit of a person"),
    "a commit in a submodule": (commit("third_party/cudakit"), "third_party/cudakit: "),
}


def mend(upstream: Upstream) -> None:
    """Give upstream a hipify that comes to its end."""
    upstream.commit("torch", {HIPIFY_PY: "open('src/new.cpp', 'a').write('hip')"}, "Mend")


def acts_at(moment: str) -> list[tuple[Act, str]]:
    """Every sixth act, from the moment's own number on: each act has its turn at two moments or three."""
    acts = list(ACTS.values())
    return acts if EVERY_MOMENT else acts[list(MOMENTS).index(moment) % 6 :: 6]


@pytest.mark.slow
def test_what_a_person_did_since_is_refused_by_name(unfinished: Bench, moment: str) -> None:
    left = unfinished.path.parent / "as it was left"
    shutil.copytree(unfinished.path, left, symlinks=True)
    for act, name in acts_at(moment):
        shutil.rmtree(unfinished.path)
        shutil.copytree(left, unfinished.path, symlinks=True)
        act(unfinished)
        before, head = files_of(unfinished.path), unfinished.git("rev-parse", "HEAD")
        with pytest.raises(SourceError) as error:
            unfinished()
        assert name in str(error.value)
        assert files_of(unfinished.path) == before
        assert unfinished.git("rev-parse", "HEAD") == head
        assert "--force" in str(error.value.tip)


@pytest.mark.slow
def test_what_a_person_did_after_a_kill_at_any_call_of_git_stays(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    bench.begin()
    upstream.go_on(NEW)
    before = bench.path.parent / "before"
    shutil.copytree(bench.path, before, symlinks=True)
    # From anywhere, so that in the course of time every call has its turn.
    seed = random.randrange(10_000)  # noqa: S311
    dice = random.Random(seed)  # noqa: S311
    at = dice.randint(1, 9)
    while killed(bench, tmp_path / f"shim {at}", nth=at, when="after" if at % 2 else "before"):
        what = dice.choice(sorted(ACTS))
        act, name = ACTS[what]
        act(bench)
        there, head = files_of(bench.path), bench.git("rev-parse", "HEAD")
        # Where the kill came after the end, there is nothing to move, and all stays without a word.
        refusal = refusal_of(bench)
        assert refusal is None or name in refusal, f"{what} at {at}, seed {seed}"
        assert files_of(bench.path) == there, f"{what} at {at}, seed {seed}"
        assert bench.git("rev-parse", "HEAD") == head
        shutil.rmtree(bench.path)
        shutil.copytree(before, bench.path, symlinks=True)
        at += 9
    assert at > 40


def refusal_of(bench: Bench) -> str | None:
    try:
        bench()
    except SourceError as error:
        return str(error)
    return None


def test_without_an_edit_the_next_run_carries_on(
    unfinished: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    mend(upstream)
    done = unfinished()
    assert done.version == "2.9.1"
    assert unfinished.git("status", "--porcelain") == ""
    unfinished.git("fsck", "--strict")
    reference = unfinished(checkout_dir=tmp_path / "reference")
    found, expected = files_of(unfinished.path), files_of(tmp_path / "reference")
    assert found.pop("mine.ignored") == b"a person's\n"
    # Git ignores it, so that it is left where it was committed by hipify.
    found.pop("generated.ignored", None)
    assert found == expected
    assert done.submodules == reference.submodules


def test_a_named_branch_a_stash_and_a_tag_stay(unfinished: Bench, upstream: Upstream) -> None:
    (unfinished.path / ".gitignore").write_text("stashed\n")
    unfinished.git("stash", "--quiet")
    commit(".", branch="mine")(unfinished)
    commit("third_party/plain", branch="mine")(unfinished)
    unfinished.git("tag", "v2.9.0-mine")
    kept = ("mine", "refs/stash", "v2.9.0-mine")
    before = unfinished.git("rev-parse", *kept)
    inner = unfinished.git("-C", "third_party/plain", "rev-parse", "mine")
    mend(upstream)
    unfinished(force=True)
    assert unfinished.git("rev-parse", *kept) == before
    assert unfinished.git("-C", "third_party/plain", "rev-parse", "mine") == inner


def test_what_force_drops_is_said_and_can_be_had_again(
    bench: Bench, upstream: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.begin()
    upstream.go_on(NEW)
    commit(".")(bench)
    commit("third_party/cudakit")(bench)
    write("new.txt")(bench)
    mine = bench.git("rev-parse", "HEAD")
    bench(force=True)
    line = next(line for line in capsys.readouterr().err.splitlines() if "dropping" in line)
    assert "new.txt" in line
    assert "A commit of a person" in line
    ref = dropped_ref(line)
    assert bench.git("rev-parse", f"{ref}~1") == mine
    assert bench.git("show", f"{ref}:new.txt") == "a person's"
    assert bench.git("-C", "third_party/cudakit", "show", f"{ref}:by a person.txt") == "committed"


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_hipify_command_takes_back_what_it_had_begun(
    bench: Bench, reference: Checkout, torch: Project, tmp_path: Path, nth: int, when: When
) -> None:
    bench.begin(hipify=False)
    bench.git("switch", "--quiet", "-c", "mine")
    upstreams = bench.git("rev-parse", "HEAD")
    status = killed(bench, tmp_path / "shim", verb="merge", nth=nth, when=when, program=HIPIFY)
    assert status == -signal.SIGKILL
    (bench.path / ".gitignore").write_text("mine\n")
    with pytest.raises(SourceError, match=r"1 edited or new file \(\.gitignore\)"):
        hipify_checkout(torch, bench.path)
    bench.git("checkout", "--", ".gitignore")
    done = hipify_checkout(torch, bench.path)
    assert (done.hipify_commit, done.submodules) == (reference.hipify_commit, reference.submodules)
    assert bench.git("rev-parse", "mine", "mine~1").split() == [done.hipify_commit, upstreams]
    assert bench.git("status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["generated.ignored", "generated.ignored/mine"])
def test_an_ignored_file_or_folder_of_a_person_where_hipify_makes_a_file_stays(
    bench: Bench, torch: Project, tmp_path: Path, name: str
) -> None:
    bench.begin(hipify=False)
    assert killed(bench, tmp_path / "shim", verb="merge", program=HIPIFY) == -signal.SIGKILL
    write(name)(bench)
    with pytest.raises(SourceError, match=r"generated\.ignored"):
        hipify_checkout(torch, bench.path)
    assert (bench.path / name).read_text() == "a person's\n"


def test_nothing_is_removed_through_an_ignored_link_of_a_person(
    bench: Bench, torch: Project, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit("torch", {".gitignore": "*.ignored\nbuild/\nsrc/hip\n"}, "Ignore what hipify makes")
    bench(hipify=False)
    assert killed(bench, tmp_path / "shim", verb="merge", program=HIPIFY) == -signal.SIGKILL
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kernel.hip").write_text("a person's\n")
    (bench.path / "src/hip").symlink_to(elsewhere)
    with pytest.raises(SourceError, match="src/hip"):
        hipify_checkout(torch, bench.path)
    assert (elsewhere / "kernel.hip").read_text() == "a person's\n"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("newer", [True, False])
def test_a_merge_that_was_killed_half_way_is_carried_on(
    bench: Bench, upstream: Upstream, tmp_path: Path, *, whole: bool, newer: bool
) -> None:
    """Git has written a file that it ignores, or half of it, and neither its index nor HEAD."""

    def generates(letter: str, version: str) -> None:
        program = f"open('generated.ignored', 'w').write({letter!r} * 9000)"
        upstream.commit("torch", {HIPIFY_PY: program, "version.txt": version}, "G")

    def make() -> None:
        generates("y", "2.9.0\n")
        bench()
        generates("x", "2.9.1\n")
        assert killed(bench, tmp_path / "shim", verb="merge") == -signal.SIGKILL

    bench.saved.bring("a merge killed half way", make)
    (bench.path / "generated.ignored").write_text("x" * (9000 if whole else 4096))
    if newer:
        generates("z", "2.9.2\n")
    bench()
    assert bench.git("status", "--porcelain") == ""
    assert (bench.path / "generated.ignored").read_text() == ("z" if newer else "x") * 9000


def test_a_branch_that_squashes_its_merges_gets_hipifys_commit(bench: Bench, torch: Project) -> None:
    bench.begin(hipify=False)
    bench.git("switch", "--quiet", "-c", "mine")
    bench.git("config", "branch.mine.mergeOptions", "--squash")
    done = hipify_checkout(torch, bench.path)
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit
