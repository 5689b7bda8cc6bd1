"""One working repository, root or submodule, that borrows its objects from a mirror."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources.git import command

UPSTREAM_TAG = "THEROCK_UPSTREAM_DIFFBASE"
HIPIFY_TAG = "THEROCK_HIPIFY_DIFFBASE"

# The submodules' settings, in a file that the repository's own configuration includes: written in one go.
_OURS = "cairn.config"
GITLINK = "160000"
_WORKTREE = ("config", "--local", "core.worktree")
OWN_SUBJECT = "DO NOT SUBMIT: HIPIFY"


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
        return command.run(self.work_tree, *args, env=own, config=config, stdin=stdin)

    def succeeds(self, *args: str) -> bool:
        """Whether git succeeds in the working tree."""
        return command.succeeds(self.work_tree, *args, env=self._where())

    @property
    def common_dir(self) -> Path:
        """Where objects and settings are: elsewhere for a worktree of another repository."""
        try:
            text = (self.git_dir / "commondir").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return self.git_dir
        return (self.git_dir / text).resolve()

    def is_begun(self) -> bool:
        """Whether there is a working tree with a repository, which may have no commit yet."""
        return (self.work_tree / ".git").exists() and (self.git_dir / "HEAD").exists()

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

    def commits_only_here(self, *known: str) -> tuple[str, ...]:
        """Id and subject of the commits that no branch, tag or remote keeps once HEAD moves away.

        Without what is below a known commit, and without those that Cairn made itself: an unfinished run has
        not tagged its own yet.
        """
        if self.commit_of("HEAD") is None:
            return ()
        kept = ("--not", "--branches", "--tags", "--remotes", *known)
        heads = ("HEAD", *self.merge_heads())
        lines = self.run("log", "--format=%ce%x09%h %s", *heads, *kept).splitlines()
        found = (line.partition("\t") for line in lines)
        return tuple(
            text for email, _, text in found if email != command.EMAIL or not text.endswith(OWN_SUBJECT)
        )

    def commit_tree(self, commit: str | None) -> str | None:
        """The id of a commit's tree; None for none."""
        return self.run("rev-parse", "--verify", f"{commit}^{{tree}}").strip() if commit else None

    def without_files(self) -> Repository:
        """The same repository, to be asked for commits where its working tree is gone."""
        return Repository(work_tree=self.git_dir, git_dir=self.git_dir)

    def merge_heads(self) -> tuple[str, ...]:
        """The commits that a merge under way is to bring in; a checkout ends the merge."""
        try:
            return tuple((self.git_dir / "MERGE_HEAD").read_text(encoding="ascii").split())
        except FileNotFoundError:
            return ()

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
    # A worktree that a person added to a repository of theirs is tied to it already, in another way.
    is_submodule = git_dir != dot_git and repository.common_dir == git_dir
    if is_submodule:
        files.write_text(dot_git, f"gitdir: {_relative(git_dir, work_tree)}\n")
    if (repository.common_dir / _OURS).exists():
        if is_submodule and not repository.succeeds(*_WORKTREE):
            repository.run(*_WORKTREE, _relative(work_tree, git_dir))
        return
    git_dir.mkdir(parents=True, exist_ok=True)
    if repository.common_dir == git_dir:
        repository.run("init", "--quiet")
    if is_submodule:
        repository.run(*_WORKTREE, _relative(work_tree, git_dir))
    _append(repository, [("include.path", _OURS)])
    configure(repository, ())


def untie(repository: Repository) -> None:
    """Have a submodule's git directory name its working tree no longer, which is gone."""
    if repository.succeeds(*_WORKTREE):
        repository.run("config", "--local", "--unset-all", "core.worktree")


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
    path = repository.common_dir / _OURS
    text = command.config_text(settings)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _append(repository: Repository, settings: Iterable[tuple[str, str]]) -> None:
    """Add settings that are not there yet, which takes a file written and not a run of git for each."""
    path = repository.common_dir / "config"
    before, more = path.read_text(encoding="utf-8"), command.config_text(settings)
    if more not in before:
        files.write_text(path, before + more)


def borrow_objects(repository: Repository, mirror: Path) -> None:
    """Let the repository use the objects of a mirror, and end its history where neither has more of it."""
    path = repository.common_dir / "objects" / "info" / "alternates"
    ours = str(mirror / "objects")
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [ours, *(line for line in before if line != ours and not _is_lost_mirror(line))]
    if lines != before:
        files.write_text(path, "".join(f"{line}\n" for line in lines))
    _end_history(repository, mirror)


def has_lost_mirror(repository: Repository) -> bool:
    """Whether a mirror that the repository borrows from is gone."""
    path = repository.common_dir / "objects" / "info" / "alternates"
    return path.exists() and any(map(_is_lost_mirror, path.read_text(encoding="utf-8").splitlines()))


def _is_lost_mirror(line: str) -> bool:
    # Other lenders, which may be relative names or comments (gitrepository-layout(5)), are not ours to judge.
    lender = Path(line).parent
    return lender.suffix == ".git" and lender.parent.name == "mirrors" and not lender.exists()


def _end_history(repository: Repository, mirror: Path) -> None:
    """Say where the history ends: at the commits whose parents neither we nor the mirror have.

    A clone made by hand may be shallower than the mirror, or deeper, or shallow in another branch.
    """
    own, theirs = repository.common_dir / "shallow", mirror / "shallow"
    listed = [path.read_bytes() for path in (own, theirs) if path.exists()]
    if not listed:
        return
    ends = sorted({line for text in listed for line in text.decode().split()})
    # `cat-file` shows a commit as it was written; all else takes the ends for roots.
    parents: dict[str, list[str]] = {}
    for end in ends:
        if repository.succeeds("cat-file", "-e", end):
            head = repository.run("cat-file", "commit", end).partition("\n\n")[0].splitlines()
            parents[end] = [line.split()[1] for line in head if line.startswith("parent ")]
    names = [name for found in parents.values() for name in found]
    checked = repository.run("cat-file", "--batch-check", stdin="".join(f"{n}\n" for n in names).encode())
    missing = {line.split()[0] for line in checked.splitlines() if line.endswith(" missing")}
    kept = [end for end, found in parents.items() if missing.intersection(found)]
    if not kept:
        own.unlink(missing_ok=True)
    elif not own.exists() or own.read_bytes().decode().split() != kept:
        files.write_text(own, "".join(f"{end}\n" for end in kept))


def place(repository: Repository, commit: str, *, alone: bool = True) -> None:
    """Make the working tree exactly that commit, HEAD detached; only ignored files stay, and repositories.

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
        repository.run("clean", "--quiet", "-fd")


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
