"""A run that failed or was killed, and a person who edits before the next one: nothing of theirs goes.

The upstream repositories have files on several pages, so that half a file is possible.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import CairnError, SourceError
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.stack import Project
from helpers.sources import Bench, Upstream

# Runs a checkout in a process of its own, which a `git` in front of the real one kills at its N-th call.
CHILD = """
import sys
from pathlib import Path
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.stack import Origin, Project
names = {"name": "torch", "distribution": "torch", "checkout_dir": "x", "hashtag": "x"}
project = Project(**names, origin=Origin(url="x"), hipify="build_amd")
origin, folder, hashtag, python = sys.argv[1:5]
checkout(CheckoutRequest(project=project, checkout_dir=Path(folder), origin=origin, hashtag=hashtag,
                         python=Path(python), jobs=1))
"""
# Killed before the call, or just after the files it wrote are there.
SHIM = """#!/bin/sh
set -C
count=1
until true 2>/dev/null > "{state}/call $count"; do count=$((count + 1)); done
case " $* " in
    {verb}) ;;
    *) exec "{git}" "$@" ;;
esac
nth=1
until true 2>/dev/null > "{state}/hit $nth"; do nth=$((nth + 1)); done
[ $nth -eq {nth} ] || exec "{git}" "$@"
[ {after} -eq 1 ] && "{git}" "$@"
kill -9 $PPID
exit 1
"""
# What kills hipify half way: the file it has rewritten is there, the other ones are not yet.
HALF_HIPIFY = """\
import os, pathlib, signal
path = pathlib.Path("src/device.cpp")
path.write_text(path.read_text().replace("driver_types.h", "hip/driver_types.h"))
pathlib.Path("early.ignored").write_text("x")
{end}
"""
KILL = (
    "note = pathlib.Path('{pid}'); pid = int(note.read_text()); note.unlink(); os.kill(pid, signal.SIGKILL)"
)

Act = Callable[[Any], None]


# The same of the `hipify` command; the arguments are those above.
HIPIFY = CHILD[: CHILD.index("checkout(Check")].replace("CheckoutRequest, checkout", "hipify_checkout")
HIPIFY += "hipify_checkout(project, Path(folder))\n"


def killed(
    bench: Bench, folder: Path, *, verb: str, nth: int = 1, after: bool = False, program: str = CHILD
) -> int:
    """The exit status of a checkout of `main` that is killed at a call of git, of any command or of one."""
    folder.mkdir()
    shim = folder / "git"
    git = shutil.which("git")
    pattern = f'*" {verb} "*' if verb else "*"
    shim.write_text(SHIM.format(state=folder, verb=pattern, nth=nth, after=int(after), git=git))
    shim.chmod(0o755)
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", program, bench.request.origin, str(bench.path), "main", sys.executable]
    return subprocess.run(command, env=env, check=False, capture_output=True).returncode


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, byte for byte; of git's, all that commits and refs are made of."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.fsencode(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def work(folder: Path) -> dict[str, bytes]:
    """The files of the working trees, without git's."""
    return {name: data for name, data in everything(folder).items() if ".git" not in name.split("/")}


def fail_to_hipify(bench: Bench, upstream: Upstream, _tmp_path: Path) -> None:
    """As a dangling `.cu` link makes it: something is written, then it ends."""
    _newer(upstream, HALF_HIPIFY.format(end="raise SystemExit('cannot read src/dangling.cu')"))
    with pytest.raises(SourceError, match="hipify"):
        bench()


def kill_hipify(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    _newer(upstream, HALF_HIPIFY.format(end=KILL.format(pid=pid)))
    code = f"import os, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n" + CHILD
    command = [sys.executable, "-c", code, bench.request.origin, str(bench.path), "main", sys.executable]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL


def fail_to_fetch(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    _newer(upstream)
    (upstream.folder / "cudakit.git").rename(tmp_path / "away.git")
    with pytest.raises(CairnError, match="third_party/cudakit"):
        bench()
    (tmp_path / "away.git").rename(upstream.folder / "cudakit.git")


def _at(verb: str, **how: Any) -> Callable[[Any, Any, Path], None]:
    def kill(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
        _newer(upstream)
        assert killed(bench, tmp_path / "shim", verb=verb, **how) == -signal.SIGKILL

    return kill


def _newer(upstream: Upstream, hipify: str | None = None) -> None:
    """Something to move to, in the root and in a submodule."""
    newer = upstream.commit("cudakit", {"fill.cu": '#include "driver_types.h"\nint newer;\n'}, "Newer kit")
    upstream.bump_submodule("torch", "third_party/cudakit", newer)
    more = {"tools/amd_build/build_amd.py": hipify} if hipify else {}
    upstream.commit("torch", {"version.txt": "2.9.1\n", "src/new.cpp": "new\n", **more}, "Next")


MOMENTS: dict[str, Callable[[Any, Any, Path], None]] = {
    "a failed hipify": fail_to_hipify,
    "a killed hipify": kill_hipify,
    "a submodule that is not available": fail_to_fetch,
    "killed before the root moves": _at("checkout"),
    "killed when the root's files are there": _at("checkout", after=True),
    "killed before the clean": _at("clean"),
    "killed before a submodule moves": _at("checkout", nth=2),
    "killed when a submodule's files are there": _at("checkout", nth=2, after=True),
    "killed before hipify's commit": _at("commit-tree"),
    "killed when hipify's commit is made": _at("update-ref -m", after=True),
    "killed before hipify's commit arrives": _at("merge"),
    "killed when hipify's files have arrived": _at("merge", after=True),
    "killed when they have in the root, and not in a submodule": _at("merge", nth=2),
}


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
        folder = bench.path / where
        if branch:
            bench.git("-C", str(folder), "switch", "--quiet", "-c", branch)
        (folder / "by a person.txt").write_text("committed\n")
        bench.git("-C", str(folder), "add", "by a person.txt")
        bench.git("-C", str(folder), "commit", "--quiet", "-m", "A commit of a person")

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
    upstream.commit("torch", {"tools/amd_build/build_amd.py": "open('src/new.cpp', 'a').write('hip')"}, "Go")


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_person_did_since_is_refused_by_name(
    bench: Bench, upstream: Upstream, tmp_path: Path, moment: str
) -> None:
    bench()
    bench.git("branch", "before")
    MOMENTS[moment](bench, upstream, tmp_path)
    broken = bench.path.parent / "as it was left"
    shutil.copytree(bench.path, broken, symlinks=True)
    for act, name in ACTS.values():
        shutil.rmtree(bench.path)
        shutil.copytree(broken, bench.path, symlinks=True)
        act(bench)
        before = work(bench.path)
        head = bench.git("rev-parse", "HEAD")
        with pytest.raises(SourceError) as error:
            bench()
        assert name in str(error.value)
        assert work(bench.path) == before
        assert bench.git("rev-parse", "HEAD") == head
        assert "--force" in str(error.value.tip)


@pytest.mark.slow
def test_what_a_person_did_after_a_kill_at_any_call_of_git_stays(
    bench: Bench, upstream: Upstream, tmp_path: Path
) -> None:
    bench()
    _newer(upstream)
    before = bench.path.parent / "before"
    shutil.copytree(bench.path, before, symlinks=True)
    # From anywhere, so that in the course of time every call has its turn.
    seed = random.randrange(10_000)  # noqa: S311
    dice = random.Random(seed)  # noqa: S311
    at = dice.randint(1, 9)
    while killed(bench, tmp_path / f"shim {at}", verb="", nth=at, after=bool(at % 2)):
        what = dice.choice(sorted(ACTS))
        act, name = ACTS[what]
        act(bench)
        there, head = work(bench.path), bench.git("rev-parse", "HEAD")
        # Where the kill came after the end, there is nothing to move, and all stays without a word.
        refusal = refusal_of(bench)
        assert refusal is None or name in refusal, f"{what} at {at}, seed {seed}"
        assert work(bench.path) == there, f"{what} at {at}, seed {seed}"
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


@pytest.mark.parametrize("moment", MOMENTS)
def test_without_an_edit_the_next_run_carries_on(
    bench: Bench, upstream: Upstream, tmp_path: Path, moment: str
) -> None:
    bench()
    write("mine.ignored")(bench)
    MOMENTS[moment](bench, upstream, tmp_path)
    upstream.commit(
        "torch", {"tools/amd_build/build_amd.py": "open('src/new.cpp', 'a').write('hip')"}, "Mend"
    )
    done = bench()
    assert done.version == "2.9.1"
    assert bench.git("status", "--porcelain") == ""
    bench.git("fsck", "--strict")
    reference = bench(checkout_dir=tmp_path / "reference")
    found, expected = work(bench.path), work(tmp_path / "reference")
    assert found.pop("mine.ignored") == b"a person's\n"
    found.pop(
        "generated.ignored", None
    )  # git ignores it, so that it is left where it was committed by hipify
    assert found == expected
    assert done.submodules == reference.submodules


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_named_branch_a_stash_and_a_tag_stay(
    bench: Bench, upstream: Upstream, tmp_path: Path, moment: str
) -> None:
    bench()
    MOMENTS[moment](bench, upstream, tmp_path)
    (bench.path / ".gitignore").write_text("stashed\n")
    bench.git("stash", "--quiet")
    commit(".", branch="mine")(bench)
    commit("third_party/plain", branch="mine")(bench)
    bench.git("tag", "v2.9.0-mine")
    kept = ("mine", "refs/stash", "v2.9.0-mine")
    before = bench.git("rev-parse", *kept)
    inner = bench.git("-C", "third_party/plain", "rev-parse", "mine")
    mend(upstream)
    bench(force=True)
    assert bench.git("rev-parse", *kept) == before
    assert bench.git("-C", "third_party/plain", "rev-parse", "mine") == inner


def test_what_force_drops_is_said_and_can_be_had_again(
    bench: Bench, upstream: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    bench()
    _newer(upstream)
    commit(".")(bench)
    commit("third_party/cudakit")(bench)
    write("new.txt")(bench)
    mine = bench.git("rev-parse", "HEAD")
    bench(force=True)
    line = next(line for line in capsys.readouterr().err.splitlines() if "dropping" in line)
    assert "new.txt" in line
    assert "A commit of a person" in line
    ref = next(word for word in line.split() if word.startswith("refs/cairn/dropped/"))
    assert bench.git("rev-parse", f"{ref}~1") == mine
    assert bench.git("show", f"{ref}:new.txt") == "a person's"
    assert bench.git("-C", "third_party/cudakit", "show", f"{ref}:by a person.txt") == "committed"


@pytest.mark.parametrize(("nth", "after"), [(1, False), (1, True), (2, False), (2, True)])
def test_the_hipify_command_takes_back_what_it_had_begun(
    bench: Bench, torch: Project, tmp_path: Path, nth: int, *, after: bool
) -> None:
    reference = bench(checkout_dir=tmp_path / "reference")
    bench(hipify=False)
    bench.git("switch", "--quiet", "-c", "mine")
    upstreams = bench.git("rev-parse", "HEAD")
    folder = tmp_path / "shim"
    status = killed(bench, folder, verb="merge", nth=nth, after=after, program=HIPIFY)
    assert status == -signal.SIGKILL
    (bench.path / ".gitignore").write_text("mine\n")
    with pytest.raises(SourceError, match=r"1 edited or new file \(\.gitignore\)"):
        hipify_checkout(torch, bench.path)
    bench.git("checkout", "--", ".gitignore")
    done = hipify_checkout(torch, bench.path)
    assert (done.hipify_commit, done.submodules) == (reference.hipify_commit, reference.submodules)
    assert bench.git("rev-parse", "mine", "mine~1").split() == [done.hipify_commit, upstreams]
    assert bench.git("status", "--porcelain") == ""


def test_an_ignored_file_of_a_person_where_hipify_makes_its_own_stays(
    bench: Bench, torch: Project, tmp_path: Path
) -> None:
    bench(hipify=False)
    assert killed(bench, tmp_path / "shim", verb="merge", program=HIPIFY) == -signal.SIGKILL
    (bench.path / "generated.ignored").write_text("a person's\n")
    with pytest.raises(SourceError, match=r"generated\.ignored"):
        hipify_checkout(torch, bench.path)
    assert (bench.path / "generated.ignored").read_text() == "a person's\n"


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


def test_a_folder_of_a_person_where_hipify_makes_a_file_stays(
    bench: Bench, torch: Project, tmp_path: Path
) -> None:
    bench(hipify=False)
    assert killed(bench, tmp_path / "shim", verb="merge", program=HIPIFY) == -signal.SIGKILL
    folder = bench.path / "generated.ignored"
    folder.mkdir()
    (folder / "mine").write_text("a person's\n")
    with pytest.raises(SourceError, match=r"generated\.ignored"):
        hipify_checkout(torch, bench.path)
    assert (folder / "mine").read_text() == "a person's\n"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("newer", [True, False])
def test_a_merge_that_was_killed_half_way_is_carried_on(
    bench: Bench, upstream: Upstream, tmp_path: Path, *, whole: bool, newer: bool
) -> None:
    """Git has written a file that it ignores, or half of it, and neither its index nor HEAD."""

    def makes(letter: str, version: str) -> None:
        program = f"open('generated.ignored', 'w').write({letter!r} * 9000)"
        upstream.commit("torch", {"tools/amd_build/build_amd.py": program, "version.txt": version}, "G")

    makes("y", "2.9.0\n")
    bench()
    makes("x", "2.9.1\n")
    assert killed(bench, tmp_path / "shim", verb="merge") == -signal.SIGKILL
    (bench.path / "generated.ignored").write_text("x" * (9000 if whole else 4096))
    if newer:
        makes("z", "2.9.2\n")
    bench()
    assert bench.git("status", "--porcelain") == ""
    assert (bench.path / "generated.ignored").read_text() == ("z" if newer else "x") * 9000


def test_a_branch_that_squashes_its_merges_gets_hipifys_commit(bench: Bench, torch: Project) -> None:
    bench(hipify=False)
    bench.git("switch", "--quiet", "-c", "mine")
    bench.git("config", "branch.mine.mergeOptions", "--squash")
    done = hipify_checkout(torch, bench.path)
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit
