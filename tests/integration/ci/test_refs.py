"""A night of a branch, a tag, a commit or a fork, by real git: what freezing says, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cairn import datafile
from cairn import stack as stacks
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightPlan
from cairn.sources.manifest.manifest import Manifest
from cairn.store.folder import LocalStore
from helpers import tiny_stack
from helpers.program import Cairn, Shown


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    done = subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Repository:
    """A stack whose origin has more than its line, a fork of it, and a store."""

    def __init__(self, folder: Path, cairn: Cairn) -> None:
        self.folder, self.cairn, self.store = folder, cairn, LocalStore(folder / "store")
        self.origin, self.fork = tiny_stack.write(folder) / "origin", folder / "fork"
        git(folder, "clone", "--quiet", str(self.origin), str(self.fork))
        for where, branch in ((self.origin, "my-branch"), (self.fork, "theirs")):
            git(where, "checkout", "--quiet", "-b", branch)
            (where / "tiny/__init__.py").write_text(f"ANSWER = 42  # {branch}\n")
            git(where, "commit", "--quiet", "--all", "--message", branch)
        git(self.origin, "checkout", "--quiet", "main")
        git(self.origin, "branch", "both", "my-branch")
        git(self.origin, "tag", "both", "main")
        matrix = cairn("matrix", "--stack", folder, "--trigger", "nightly", "--json").out
        (folder / "matrix.json").write_text(matrix)

    def freeze(self, night: str, *words: str, code: int = 0) -> Shown:
        where = ("--stack", self.folder, "--store", self.folder / "store", "--work-dir", self.folder / "work")
        matrix = ("--matrix", self.folder / "matrix.json")
        return self.cairn("ci", "night", "freeze", "--night", night, *where, *matrix, *words, code=code)

    def night(self, name: str) -> tuple[NightPlan, Manifest]:
        night = plan.read(self.store, name)
        return night, plan.manifest_of(self.store, night)


@pytest.fixture
def repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Repository:
    return Repository(tmp_path, Cairn(capsys))


@pytest.mark.parametrize("fork", [False, True])
def test_a_night_of_a_branch_has_a_version_and_a_channel_of_its_own(
    repository: Repository, *, fork: bool
) -> None:
    where = repository.fork if fork else repository.origin
    ref = f"tiny={where.as_uri()}@theirs" if fork else "tiny=my-branch"
    commit = git(where, "rev-parse", "theirs" if fork else "my-branch")
    repository.freeze("line")
    shown = repository.freeze("branch", "--refs", ref, "--to", "dev")
    assert f"({commit[:12]})" in shown.err
    night, frozen = repository.night("branch")
    line, _ = repository.night("line")
    assert (night.staging, night.release, night.refs) == ("dev", "dev", (ref,))
    assert night.manifest_sha256 != line.manifest_sha256
    assert (frozen.off_line, frozen.projects[0].commit) == (("tiny",), commit)
    stack = plan.NightRun(store=repository.store, plan=night, stack=stacks.load(repository.folder)).stack
    assert plan.version_suffix(stack, frozen, ("cpu",)) == f"+git{commit[:8]}"
    # It goes on, named again or not, and its manifest is that of another night: but none of the line's.
    repository.freeze("branch", "--to", "dev", "--refs", ref)
    repository.freeze("again", "--to", "dev", "--like", "branch")
    assert repository.night("again")[0].refs == night.refs
    for wrong in (("branch",), ("release", "--like", "branch", "--to", "release")):
        repository.freeze(*wrong, code=2)
    repository.freeze("line")
    assert "refs" in datafile.to_plain(night)
    listed = repository.cairn("ci", "night", "list", "--store", repository.folder / "store").out
    assert f"main, {ref}" in listed


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("tiny=my-branch", "--to", "nightly"), 2, "nightly is for commits of the line main"),
        (("tiny=my-brunch", "--to", "dev"), 4, "it has my-branch"),
        (("tinny=my-branch", "--to", "dev"), 2, "did you mean tiny?"),
        (("my-branch", "--to", "dev"), 2, "'my-branch' names no ref of a project"),
        (("tiny=https://a:b@example.org/tiny", "--to", "dev"), 2, "names no ref of a project"),
        (("tiny=main, tiny=my-branch", "--to", "dev"), 2, "tiny has two refs"),
        (("tiny=main", "--to", "dev", "--like", "1"), 2, "the night 1 has its own commits"),
    ],
)
def test_what_is_no_ref_is_said_before_anything_is_built(
    repository: Repository, words: tuple[str, ...], code: int, reason: str
) -> None:
    shown = repository.freeze("1", "--refs", *words, code=code)
    assert reason in shown.err
    assert "a:b" not in shown.err
    assert plan.find(repository.store, "1") is None


def test_an_ambiguous_ref_is_named(repository: Repository) -> None:
    shown = repository.freeze("1", "--dry-run", "--refs", "tiny=both", "--to", "dev")
    assert "both is a tag and a branch of" in shown.err
    assert "the tag was taken" in shown.err
    assert plan.find(repository.store, "1") is None


def test_a_commit_that_is_in_a_fork_alone_is_not_of_the_origin(repository: Repository) -> None:
    commit = git(repository.fork, "rev-parse", "theirs")
    shown = repository.freeze("1", "--refs", f"tiny={commit}", "--to", "dev", code=4)
    assert f"has no branch, tag or commit '{commit}'" in shown.err
