"""Bare git repositories made of given commits: the same commits give the same object names everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cairn.sources.git import command

FILE = "100644"
EXECUTABLE = "100755"
GITLINK = "160000"

# As the well-known hosts allow: fetching one commit by its name, and partial clones.
_SERVED_LIKE_A_HOST = ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of a commit.

    Attributes:
        mode: git's mode of it, one of `FILE`, `EXECUTABLE` and `GITLINK`.
        data: the file's bytes; of a submodule, the name of its commit in hexadecimal.
    """

    mode: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Commit:
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
    files: Mapping[str, Entry]


@dataclass(frozen=True, kw_only=True)
class Repository:
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
    commits: tuple[Commit, ...]
    branches: Mapping[str, int]
    tags: Mapping[str, int]


def write_repository(repository: Repository, folder: Path) -> None:
    """Write a bare repository into `folder`, which is empty.

    Raises:
        PrerequisiteError: git is not on this machine.
        SourceError: git refused.
    """
    branch = f"--initial-branch={repository.default_branch}"
    command.run(folder, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", branch)
    for name in _SERVED_LIKE_A_HOST:
        command.run(folder, "config", name, "true")
    stream = b"".join(_stream(repository))
    command.run(folder, "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", "--done", stdin=stream)


def resolve(folder: Path, ref: str) -> str:
    """The name of the commit that a branch or tag of a repository means.

    Raises:
        SourceError: there is no such branch or tag.
    """
    return command.line(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def _stream(repository: Repository) -> Iterator[bytes]:
    """The repository in the language of `git fast-import` (git's Documentation/git-fast-import)."""
    author = repository.author
    for index, commit in enumerate(repository.commits):
        yield f"commit refs/heads/{repository.default_branch}\nmark :{index + 1}\n".encode()
        yield _signed("author", author, commit.date) + _signed("committer", author, commit.date)
        yield _data(commit.message.encode())
        if commit.parent is not None:
            yield f"from :{commit.parent + 1}\n".encode()
        yield b"deleteall\n"
        for path, entry in sorted(commit.files.items()):
            yield from _modify(path, entry)
    for name, index in sorted(repository.branches.items()):
        yield f"reset refs/heads/{name}\nfrom :{index + 1}\n\n".encode()
    for name, index in sorted(repository.tags.items()):
        yield f"tag {name}\nfrom :{index + 1}\n".encode()
        yield _signed("tagger", author, repository.commits[index].date) + _data(f"{name}\n".encode())
    yield b"done\n"


def _modify(path: str, entry: Entry) -> Iterator[bytes]:
    if entry.mode == GITLINK:
        yield b"M %s %s %s\n" % (entry.mode.encode(), entry.data, _quoted(path))
        return
    yield b"M %s inline %s\n" % (entry.mode.encode(), _quoted(path))
    yield _data(entry.data)


def _signed(role: str, author: str, date: datetime) -> bytes:
    return f"{role} {author} {int(date.timestamp())} {date.strftime('%z')}\n".encode()


def _data(data: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()
