"""Bare git repositories made of given commits: the same commits get the same ids on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cairn.sources.git import command

FILE = "100644"
EXECUTABLE = "100755"
GITLINK = "160000"

# As GitHub and GitLab allow: fetching a commit by its id, and partial clones (git-config(1), `uploadpack`).
_SERVED_LIKE_A_HOST = ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter")


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """One path of a commit.

    Attributes:
        mode: git's mode of it, one of `FILE`, `EXECUTABLE` and `GITLINK`.
        data: the file's bytes; of a submodule, the id of its commit in hexadecimal.
    """

    mode: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class NewCommit:
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


@dataclass(frozen=True, kw_only=True)
class NewRepository:
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
    branch = f"--initial-branch={repository.default_branch}"
    command.run(folder, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", branch)
    for name in _SERVED_LIKE_A_HOST:
        command.run(folder, "config", name, "true")
    # Fewer than fastimport.unpackLimit objects become loose files: a pack is faster to write and to serve.
    stream = b"".join(_stream(repository))
    command.run(folder, "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", "--done", stdin=stream)


def resolve(folder: Path, ref: str) -> str:
    """The id of the commit that a branch or tag of a repository names.

    Raises:
        SourceError: there is no such branch or tag.
    """
    return command.line(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def _stream(repository: NewRepository) -> Iterator[bytes]:
    """The repository in the language of `git fast-import` (git-fast-import(1), "INPUT FORMAT").

    Commits are marked `:1`, `:2`, …, by which what follows names them.
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
    """Who and when, in the date format `raw`: seconds since 1970 and the zone as +hhmm."""
    return f"{role} {author} {int(date.timestamp())} {date.strftime('%z')}\n".encode()


def _data(data: bytes) -> bytes:
    """Bytes by their count, so that they may hold anything; the line feed after them is optional."""
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    """A path in quotes, where only these three need an escape."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()
