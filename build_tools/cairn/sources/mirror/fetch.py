"""Bringing objects from an origin into a bare repository, going on after a lost line where it broke off.

Git cannot continue a transfer: what came before the line was lost is thrown away. The first fetch of a whole
history is the one that is long enough to suffer, so after a first failure it goes on in pieces: the newest
state, then the history behind it, some generations at a time, fewer after each failure and more after each
success. What a piece brought stays, for this run and for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cairn import files
from cairn.errors import NetworkError, SourceError
from cairn.sources.git import command, url

_GENERATIONS = 64  # of the first piece of history
_NOTE = "cairn-pieces"  # a file that says what the pieces are of
_PIECES = "refs/cairn/pieces"  # what has come so far: git offers only what a ref names as what it has


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where objects come from and go to.

    Attributes:
        origin: its URL, credentials included, or absolute path.
        path: the bare repository that receives.
        depth: commits of history wanted; None for all of it.
        only: git's filter of what is wanted, such as `tree:0` for commits alone (git-rev-list(1), --filter).
        retry: with network faults.
        say: is told what happens.
    """

    origin: str
    path: Path
    depth: int | None = None
    only: str | None = None
    retry: command.RetryPolicy = field(default_factory=command.RetryPolicy)
    say: Callable[[str], None]


def fetch(source: Source, *refs: str) -> None:
    """Fetch refs or commits; `FETCH_HEAD` names them.

    Raises:
        UnknownRefError: the origin has no such thing.
        SourceError: there is no origin, or we may not read it.
        NetworkError: the network failed more often than retry allows without bringing anything.
    """
    try:
        if (
            source.depth is None
            and source.only is None
            and (is_unfinished(source.path) or _has_nothing(source.path))
        ):
            _resumably(source, refs)
        else:
            command.retrying(lambda: _once(source, refs), retry=source.retry, say=source.say)
    except command.UnreachableError as error:
        origin = url.without_credentials(source.origin)
        raise SourceError(f"cannot read the origin {origin}: {error}", tip=error.tip) from error


def is_unfinished(path: Path) -> bool:
    """Whether a repository that is to have whole histories has a part of one only, of a killed run."""
    return (path / "shallow").exists()


def _once(source: Source, refs: tuple[str, ...], *extra: str) -> None:
    options = ["--quiet", "--no-tags", "--no-recurse-submodules", "--force", *extra]
    if source.depth is not None:
        options.append(f"--depth={source.depth}")
    if source.only is not None:
        options.append(f"--filter={source.only}")
    settings = {"remote.origin.url": source.origin}
    command.run(source.path, "fetch", *options, "origin", *refs, config=settings, online=True)


def _has_nothing(path: Path) -> bool:
    """Whether nothing was ever fetched whole: only then is there a long way to go."""
    return not command.line(path, "for-each-ref", "--count=1", "--format=%(refname)")


def _resumably(source: Source, refs: tuple[str, ...]) -> None:
    _drop_pieces_of_others(source.path, refs)
    generations = _GENERATIONS if is_unfinished(source.path) else None
    failures = 0
    while True:
        try:
            _piece(source, refs, generations)
        except NetworkError as error:
            failures += 1
            if failures >= source.retry.attempts:
                raise
            command.wait_after(error, failures, retry=source.retry, say=source.say)
            generations = max(1, generations // 8) if generations else _GENERATIONS
        else:
            if not is_unfinished(source.path):
                break
            failures, generations = 0, 2 * (generations or _GENERATIONS)
    if generations is not None:
        _forget_pieces(source.path)


def _piece(source: Source, refs: tuple[str, ...], generations: int | None) -> None:
    """Fetch so many generations more, of nothing the newest one; all at once for None."""
    if generations is None:
        _once(source, refs)
        return
    named = tuple(ref if ":" in ref else f"+{ref}:{_PIECES}/{n}" for n, ref in enumerate(refs))
    if not is_unfinished(source.path):
        files.write_text(source.path / _NOTE, "\n".join(refs))
        _once(source, named, "--depth=1")
        return
    before = (source.path / "shallow").read_bytes()
    _once(source, named, f"--deepen={generations}")
    if is_unfinished(source.path) and (source.path / "shallow").read_bytes() == before:
        _once(source, named, "--unshallow")


def _drop_pieces_of_others(path: Path, refs: tuple[str, ...]) -> None:
    """Forget what an unfinished run fetched of other refs: from there, these cannot be reached."""
    wanted = "\n".join(refs)
    note = path / _NOTE
    if is_unfinished(path) and (not note.exists() or note.read_text(encoding="utf-8") != wanted):
        (path / "shallow").unlink()
        _delete_refs(path)


def _forget_pieces(path: Path) -> None:
    _delete_refs(path, _PIECES)
    (path / _NOTE).unlink(missing_ok=True)


def _delete_refs(path: Path, *below: str) -> None:
    listed = command.run(path, "for-each-ref", "--format=delete %(refname)", *below)
    command.run(path, "update-ref", "--stdin", stdin=listed.encode())
