"""What Cairn notes in a checkout's git directory: what it is of, and how far the last run came."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile, files
from cairn.errors import UsageError

_NAME = "cairn.json"
_LOCK_WAIT = 4 * 3600.0

Phase = Literal["moving", "placed", "hipifying", "ready"]
"""`moving`: files are being replaced, all differences are ours. `placed`: upstream's files are there.
`hipifying`: differences from `heads` are ours. `ready`: all that was asked for is done."""


class State(datafile.Value, tag_field="schema", tag="cairn.checkout/1"):
    """The note.

    Attributes:
        project: the project's name.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was.
        phase: how far the run came.
        submodules: whether they were asked for.
        hipify: whether it was asked for.
        committed: whether hipify's edits are a commit.
        heads: while hipifying, the commit each repository had before, by path (empty for the root).
        files: where hipify's edits are no commit, the state of the files that they led to.
    """

    project: str
    origin: str
    hashtag: str
    commit: str
    phase: Phase
    submodules: bool = True
    hipify: bool = True
    committed: bool = True
    heads: Mapping[str, str] = msgspec.field(default_factory=dict)
    files: str | None = None


def read(git_dir: Path) -> State | None:
    """The note; None where there is none that we understand, as in a clone made by hand."""
    path = git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, State)
    except UsageError:
        return None


def write(git_dir: Path, state: State) -> None:
    """Write the note; the git directory is made when missing, so that a killed first run is recognised."""
    datafile.write(git_dir / _NAME, state)


@contextlib.contextmanager
def alone(checkout_dir: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a checkout against other runs of Cairn; `on_wait` is called where there is one."""
    key = hashlib.sha256(str(checkout_dir.resolve()).encode()).hexdigest()[:16]
    with files.locked(files.cache_dir() / "checkouts" / f"{key}.lock", timeout=_LOCK_WAIT, on_wait=on_wait):
        yield
