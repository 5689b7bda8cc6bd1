"""One working repository, root or submodule, that borrows its objects from a mirror."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources import git

UPSTREAM_TAG = "THEROCK_UPSTREAM_DIFFBASE"
HIPIFY_TAG = "THEROCK_HIPIFY_DIFFBASE"

# The submodules' settings, in a file that the repository's own configuration includes: written in one go.
_OURS = "cairn.config"
GITLINK = "160000"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A working tree and its git directory (which is elsewhere for a submodule)."""

    work_tree: Path
    git_dir: Path

    def run(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> str:
        """Run git in the working tree; its output. Never finds a repository further up by mistake."""
        own = {**self._where(), **(env or {})}
        return git.run(self.work_tree, *args, env=own, config=config, stdin=stdin)

    def succeeds(self, *args: str) -> bool:
        """Whether git succeeds in the working tree."""
        return git.succeeds(self.work_tree, *args, env=self._where())

    def exists(self) -> bool:
        """Whether there is a working tree with a commit checked out."""
        return self.head() is not None

    def head(self) -> str | None:
        """The commit that is checked out; None where there is no working tree with one."""
        return self.commit_of("HEAD") if (self.work_tree / ".git").exists() else None

    def commit_of(self, name: str) -> str | None:
        """The commit that a name means here; None when it means none."""
        if not self.git_dir.is_dir() or not self.work_tree.is_dir():
            return None
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
        except SourceError:
            return None

    def tag(self, name: str) -> str | None:
        """The commit that a tag is at; None when there is no such tag."""
        return self.commit_of(f"refs/tags/{name}")

    def tags(self, *names: str) -> tuple[str | None, ...]:
        """Like `tag`, of several with one run of git."""
        refs = [f"refs/tags/{name}" for name in names]
        # An annotated tag is an object of its own: what it is of comes last.
        listed = self.run("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", *refs)
        found = {words[0]: words[-1] for words in map(str.split, listed.splitlines())}
        return tuple(found.get(ref) for ref in refs)

    def at_or_above(self, commit: str) -> bool:
        """Whether HEAD is a commit or descends from it."""
        return self.succeeds("merge-base", "--is-ancestor", commit, "HEAD")

    def gitlinks(self) -> tuple[str, ...]:
        """Paths at which the index has submodules."""
        listed = self.run("ls-files", "--stage", "-z").split("\0")
        return tuple(e.partition("\t")[2] for e in listed if e.startswith(GITLINK))

    def changes(self) -> tuple[str, ...]:
        """Files edited, added or deleted since HEAD, and new ones that are not ignored; not submodules'."""
        options = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
        listed = self.run("status", "--porcelain", "-z", *options)
        return tuple(entry[3:] for entry in listed.split("\0") if entry)

    def hidden(self) -> tuple[str, ...]:
        """Files that a person told git not to look at (assume-unchanged, skip-worktree); not submodules."""
        listed = self.run("ls-files", "-v", "-z").split("\0")
        # The mark is lower case, or S (git-ls-files(1), -v).
        marked = [entry[2:] for entry in listed if entry and (entry[0] == "S" or entry[0].islower())]
        links = set(self.gitlinks()) if marked else set()
        return tuple(name for name in marked if name not in links)

    def commits_only_here(self) -> tuple[str, ...]:
        """Id and subject of the commits that no branch, tag or remote keeps once HEAD moves away."""
        kept = ("--not", "--branches", "--tags", "--remotes")
        return tuple(self.run("log", "--format=%h %s", "HEAD", *kept).splitlines())

    def _where(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}


def root_at(path: Path) -> Repository:
    """The repository of a checkout folder, whether it exists or not.

    A worktree of another repository (`.git` is a file there) has its git directory elsewhere.
    """
    dot_git = path / ".git"
    if dot_git.is_file():
        text = dot_git.read_text(encoding="utf-8").strip().removeprefix("gitdir: ")
        return Repository(work_tree=path, git_dir=(path / text).resolve())
    return Repository(work_tree=path, git_dir=dot_git)


def create(repository: Repository) -> None:
    """Make the repository when it is missing or only begun; a submodule's is tied to its working tree."""
    work_tree, git_dir = repository.work_tree, repository.git_dir
    work_tree.mkdir(parents=True, exist_ok=True)
    dot_git = work_tree / ".git"
    if git_dir != dot_git:
        files.write_text(dot_git, f"gitdir: {_relative(git_dir, work_tree)}\n")
    if (git_dir / _OURS).exists():
        return
    git_dir.mkdir(parents=True, exist_ok=True)
    repository.run("init", "--quiet")
    if git_dir != dot_git:
        repository.run("config", "core.worktree", _relative(work_tree, git_dir))
    _append(repository, [("include.path", _OURS)])
    configure(repository, ())


def name_origin(repository: Repository, url: str) -> None:
    """Make `origin` mean this URL, so that plain git works in the checkout."""
    try:
        before = repository.run("config", "--local", "--get", "remote.origin.url").rstrip("\n")
    except SourceError:
        fetch = "+refs/heads/*:refs/remotes/origin/*"
        _append(repository, [("remote.origin.url", url), ("remote.origin.fetch", fetch)])
        return
    if before != url:
        repository.run("config", "--local", "--replace-all", "remote.origin.url", url)


def configure(repository: Repository, settings: Iterable[tuple[str, str]]) -> None:
    """Make these the settings that Cairn keeps in the repository."""
    path = repository.git_dir / _OURS
    text = git.config_text(settings)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _append(repository: Repository, settings: Iterable[tuple[str, str]]) -> None:
    """Add settings that are not there yet, which takes a file written and not a run of git for each."""
    path = repository.git_dir / "config"
    before, more = path.read_text(encoding="utf-8"), git.config_text(settings)
    if more not in before:
        files.write_text(path, before + more)


def borrow_objects(repository: Repository, mirror: Path) -> None:
    """Let the repository use the objects of a mirror, and end its history where the mirror's ends."""
    path = repository.git_dir / "objects" / "info" / "alternates"
    ours = str(mirror / "objects")
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [ours, *(line for line in before if line != ours and Path(line).is_dir())]
    if lines != before:
        files.write_text(path, "".join(f"{line}\n" for line in lines))
    shallow, theirs = repository.git_dir / "shallow", mirror / "shallow"
    if theirs.exists():
        files.write_bytes(shallow, theirs.read_bytes())
    else:
        shallow.unlink(missing_ok=True)


def place(repository: Repository, commit: str, *, alone: bool = True) -> None:
    """Make the working tree exactly that commit, HEAD detached; only ignored files stay.

    Args:
        repository: which one.
        commit: its id.
        alone: whether all cores may work on it; where others are placed side by side, each is faster on one.
    """
    # A working tree that was never filled has nothing to be cleaned of.
    filled = (repository.git_dir / "index").exists() or _has_files(repository)
    workers = {"checkout.workers": "0" if alone else "1"}
    repository.run("checkout", "--quiet", "--force", "--detach", commit, config=workers)
    if filled:
        repository.run("clean", "--quiet", "-ffd")


def _has_files(repository: Repository) -> bool:
    return any(entry.name != ".git" for entry in repository.work_tree.iterdir())


def move_refs(repository: Repository, refs: Mapping[str, str | None]) -> None:
    """Set refs to objects, or delete them (None), all or none."""
    lines = [
        f"update {name} {target}" if target else f"delete {name}" for name, target in sorted(refs.items())
    ]
    repository.run("update-ref", "--stdin", stdin="\n".join([*lines, ""]).encode())


def _relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()
