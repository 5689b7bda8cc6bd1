"""history.toml: a repository described by the files of its newest state and the changes of each commit.

`write_repository` makes bare git repositories of such commits, with the same ids on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.sources.git import command
from cairn.sources.git.repository import create_bare

FILE = "100644"
EXECUTABLE = "100755"
GITLINK = "160000"

# As GitHub and GitLab allow: fetching a commit by its id, and partial clones (git-config(1), `uploadpack`).
_SERVED_LIKE_A_HOST = ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter")


class NewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One path of a commit.

    Attributes:
        mode: git's mode of it, one of `FILE`, `EXECUTABLE` and `GITLINK`.
        data: the file's bytes; of a submodule, the id of its commit in hexadecimal.
    """

    mode: str
    data: bytes


class NewCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit.

    Attributes:
        message: its whole message.
        date: when it was written and committed, with a time zone.
        parent: index of its parent in the repository's commits; None for a first commit.
        files: everything in it, by path with `/`.
    """

    message: str
    date: datetime
    parent: int | None
    files: Mapping[str, NewEntry]


class NewRepository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository to be written.

    Attributes:
        author: `Name <address>`, of every commit and tag.
        default_branch: the branch that a clone checks out.
        commits: parents before children.
        branches: index of the commit of each branch.
        tags: index of the commit of each tag; all tags are annotated.
    """

    author: str
    default_branch: str
    commits: tuple[NewCommit, ...]
    branches: Mapping[str, int]
    tags: Mapping[str, int]


def write_repository(repository: NewRepository, folder: Path) -> None:
    """Write a bare repository into `folder`, which is empty.

    Raises:
        PrerequisiteError: git is not installed.
        SourceError: git refused.
    """
    create_bare(folder, *((name, "true") for name in _SERVED_LIKE_A_HOST), branch=repository.default_branch)
    # Fewer than fastimport.unpackLimit objects become loose files: a pack is faster to write and to serve.
    stream = b"".join(_stream(repository))
    command.run(folder, "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", "--done", stdin=stream)


def commits_of(folder: Path) -> Mapping[str, str]:
    """Return the commits of a repository's branches and tags, by name; a tag wins over a branch."""
    refs = command.run(folder, "for-each-ref", "--format=%(refname:strip=2) %(objectname) %(*objectname)")
    # Sorted: refs/tags comes last. An annotated tag is an object of its own, and what it is of comes last.
    return {words[0]: words[-1] for words in map(str.split, refs.splitlines())}


def _stream(repository: NewRepository) -> Iterator[bytes]:
    """Yield the repository as a `git fast-import` stream (git-fast-import(1), "INPUT FORMAT").

    Commits get the marks `:1`, `:2`, …, by which later commands refer to them.
    """
    author = repository.author
    for index, commit in enumerate(repository.commits):
        # Every commit moves the default branch; the resets below say where the branches end up.
        yield f"commit refs/heads/{repository.default_branch}\nmark :{index + 1}\n".encode()
        yield _signed("author", author, commit.date) + _signed("committer", author, commit.date)
        yield _data(commit.message.encode())
        if commit.parent is not None:
            yield f"from :{commit.parent + 1}\n".encode()
        # A commit begins with its parent's files; ours lists all that it has.
        yield b"deleteall\n"
        for path, entry in sorted(commit.files.items()):
            if entry.mode == GITLINK:  # its data is the id of a commit of a different repository
                yield b"M %s %s %s\n" % (entry.mode.encode(), entry.data, _quoted(path))
            else:
                yield b"M %s inline %s\n" % (entry.mode.encode(), _quoted(path)) + _data(entry.data)
    for name, index in sorted(repository.branches.items()):
        yield f"reset refs/heads/{name}\nfrom :{index + 1}\n\n".encode()
    for name, index in sorted(repository.tags.items()):
        yield f"tag {name}\nfrom :{index + 1}\n".encode()
        yield _signed("tagger", author, repository.commits[index].date) + _data(f"{name}\n".encode())
    yield b"done\n"


def _signed(role: str, author: str, date: datetime) -> bytes:
    """Format an author or committer line with a `raw` date: seconds since 1970 and the zone as +hhmm."""
    return f"{role} {author} {int(date.timestamp())} {date.strftime('%z')}\n".encode()


def _data(data: bytes) -> bytes:
    """Format a `data` command by byte count, so that it may hold anything; its last line feed is optional."""
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    """Quote a path; only these three characters need an escape."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()


_REFERENCE = re.compile(r"\{commit:([A-Za-z0-9_-]+):([^}\s]+)\}")
_LEFT_BY_TOOLS = ("__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache")


class HistoryStep(datafile.Value):
    """The changes of one commit on top of its parent.

    Attributes:
        name: what this file calls it.
        message: its message.
        date: ISO 8601 with a time zone.
        parent: the name of an earlier step; None takes the one before it in the file.
        remove: patterns of paths that it deletes.
        tree: patterns of files that come from `tree/`, in their newest state (`*` crosses folders).
        write: paths and their text. `{commit:REPOSITORY:REF}` stands for a commit of a neighbour.
        submodules: paths and their commits, given in the same way.
    """

    name: str
    message: str
    date: str
    parent: str | None = None
    remove: tuple[str, ...] = ()
    tree: tuple[str, ...] = ()
    write: Mapping[str, str] = msgspec.field(default_factory=dict)
    submodules: Mapping[str, str] = msgspec.field(default_factory=dict)


class History(datafile.Value, tag_field="schema", tag="cairn.history/1"):
    """A repository's history.

    Attributes:
        author: `Name <address>` of every commit.
        default_branch: the branch that a clone checks out.
        commits: in order; the first has no parent.
        branches: the name of each branch's newest commit.
        tags: the name of each tag's commit.
        executable: paths with the executable bit, which not every file system keeps.
    """

    author: str
    default_branch: str
    commits: tuple[HistoryStep, ...]
    branches: Mapping[str, str]
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    executable: tuple[str, ...] = ()

    def neighbours(self) -> tuple[str, ...]:
        """The repositories whose commits this history names."""
        texts = [t for step in self.commits for t in (*step.write.values(), *step.submodules.values())]
        return tuple(sorted({match[1] for text in texts for match in _REFERENCE.finditer(text)}))


def load(folder: Path) -> History:
    """Read `history.toml` of a folder.

    Raises:
        UsageError: it is missing, malformed, or names a commit that it does not describe.
    """
    path = folder / "history.toml"
    tip = "the origin's `tree` must name a folder with a history.toml and a tree/ folder"
    history = datafile.read(path, History, tip=tip)
    names: set[str] = set()
    for step in history.commits:
        _validate(step, names, f"{path}: the commit {step.name!r}")
        names.add(step.name)
    for kind, refs in (("branch", history.branches), ("tag", history.tags)):
        for name, commit in refs.items():
            if commit not in names:
                raise UsageError(f"{path}: the {kind} {name} names the unknown commit {commit!r}")
    if history.default_branch not in history.branches:
        raise UsageError(f"{path}: the default branch {history.default_branch!r} is not among the branches")
    return history


def _validate(step: HistoryStep, names: set[str], where: str) -> None:
    if step.name in names:
        raise UsageError(f"{where} is described twice")
    if step.parent is not None and step.parent not in names:
        raise UsageError(f"{where} names the parent {step.parent!r}, which is not before it")
    try:
        zone = datetime.fromisoformat(step.date).tzinfo
    except ValueError as error:
        raise UsageError(f"{where} has the date {step.date!r}, which is not ISO 8601") from error
    if zone is None:
        raise UsageError(f"{where} has the date {step.date!r}, which has no time zone")
    # What git refuses to check out (git's read-cache.c, `verify_path`).
    for name in (*step.write, *step.submodules):
        if PurePosixPath(name).is_absolute() or not {"..", ".git"}.isdisjoint(PurePosixPath(name).parts):
            raise UsageError(f"{where} writes {name!r}, which is outside the repository")


def read_tree(folder: Path, executable: tuple[str, ...]) -> dict[str, NewEntry]:
    """Read the files of `tree/`, by path with `/`; files that tools leave behind are skipped.

    Raises:
        UsageError: there is a link, or anything else that is not a plain file.
    """
    root = folder / "tree"
    trees = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if any(part in _LEFT_BY_TOOLS for part in PurePosixPath(name).parts):
            continue
        if path.is_symlink() or not path.is_file():
            raise UsageError(f"{path} is not a plain file")
        trees[name] = NewEntry(mode=EXECUTABLE if name in executable else FILE, data=path.read_bytes())
    return trees


def to_repository(
    history: History, tree: Mapping[str, NewEntry], commit_of: Callable[[str, str], str]
) -> NewRepository:
    """Turn a history into the repository that it describes.

    Args:
        history: the description.
        tree: the files of the newest state.
        commit_of: the commit of a neighbour, from the names of the repository and of the branch or tag.

    Raises:
        UsageError: a pattern matches nothing.
    """
    indices: dict[str, int] = {}
    commits: list[NewCommit] = []
    for step in history.commits:
        parent = indices[step.parent] if step.parent else (len(commits) - 1 if commits else None)
        before = {} if parent is None else commits[parent].files
        removed = {path for pattern in step.remove for path in _matching(step, pattern, before)}
        selected = {path: tree[path] for pattern in step.tree for path in _matching(step, pattern, tree)}
        written = {
            path: NewEntry(mode=mode, data=_REFERENCE.sub(lambda m: commit_of(m[1], m[2]), text).encode())
            for mode, texts in ((FILE, step.write), (GITLINK, step.submodules))
            for path, text in texts.items()
        }
        files = {path: entry for path, entry in before.items() if path not in removed} | selected | written
        date = datetime.fromisoformat(step.date)
        commits.append(NewCommit(message=f"{step.message.strip()}\n", date=date, parent=parent, files=files))
        indices[step.name] = len(commits) - 1
    return NewRepository(
        author=history.author,
        default_branch=history.default_branch,
        commits=tuple(commits),
        branches={name: indices[commit] for name, commit in history.branches.items()},
        tags={name: indices[commit] for name, commit in history.tags.items()},
    )


def _matching(step: HistoryStep, pattern: str, files: Mapping[str, NewEntry]) -> list[str]:
    # A pattern without a match is a typing error, which would otherwise change what a commit has.
    matches = [path for path in files if fnmatch(path, pattern)]
    if not matches:
        raise UsageError(f"the commit {step.name!r}: no file matches {pattern!r}")
    return matches
