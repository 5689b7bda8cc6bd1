"""Patch files as commits on a checkout: all of them or none, and none twice."""

from __future__ import annotations

import email.utils
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError, UsageError
from cairn.sources import losses, patches_commits, scratch, state
from cairn.sources.patches_export import base_of, parts_of
from cairn.sources.repository import Repository, root_at
from cairn.sources.scratch import Part

Say = Callable[[str], None]
_Identity = tuple[str, str, int, str]


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of a patch file.

    Attributes:
        path: the submodule it is for; empty for the root.
        file: its path in the folder of patches.
        commit: what it became; None where the checkout had it already.
    """

    path: str
    file: str
    commit: str | None


def apply(checkout: Path, folder: Path, *, dry_run: bool = False, say: Say) -> tuple[Applied, ...]:
    """Commit every `*.patch` below a folder on top of a checkout; the folder names the submodule.

    Authors, dates and messages stay. A patch whose author, time and subject a commit above the diff base has
    is there already. Nothing in the checkout changes unless every patch applies.

    Args:
        checkout: the working tree.
        folder: of the patches.
        dry_run: find out what would happen, and leave the checkout as it is.
        say: is told what happens.

    Raises:
        UsageError: there are no patches.
        SourceError: there is no such submodule, edits stand in the way, or a patch does not apply.
    """
    with state.alone(checkout):
        root = root_at(checkout.absolute())
        parts = {part.path: part for part in parts_of(root)}
        series = _series(folder)
        if unknown := sorted(series.keys() - parts.keys()):
            raise SourceError(
                f"{checkout} has no submodule {unknown[0]}, for which there are patches",
                tip="check it out with its submodules, or leave their folder away",
            )
        losses.refuse_edits(root, why="patches are not put on top of them")
        done = [_prepared(parts[path], paths, folder, say) for path, paths in sorted(series.items())]
        for prepared in done if not dry_run else ():
            # Everything applies. Each of these steps is git's own and whole; a run that is killed between
            # two of them is carried on by the next.
            prepared.part.repository.run("merge", "--quiet", "--ff-only", prepared.head)
        return tuple(result for prepared in done for result in prepared.results)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    part: Part
    head: str
    results: tuple[Applied, ...]


def _series(folder: Path) -> Mapping[str, Sequence[Path]]:
    series: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.patch")):
        parent = path.parent.relative_to(folder).as_posix()
        series.setdefault("" if parent == "." else parent, []).append(path)
    if not series:
        raise UsageError(f"{folder} has no *.patch", tip="name a folder that `cairn patches export` made")
    return series


def _prepared(part: Part, paths: Sequence[Path], folder: Path, say: Say) -> _Prepared:
    own = part.repository
    head = own.commit_of("HEAD") or ""
    there = {_identity_of(commit) for commit in patches_commits.above(own, base_of(own))}
    missing = [path for path in paths if _identity(own, path) not in there]
    made: list[str] = []
    if missing:
        say(f"applying {len(missing)} patches to {own.work_tree}")
        alone = Part(path="", repository=own, commit=head)
        with scratch.copy((alone,)) as (copied,):
            made = [_am(copied.repository, path, part) for path in missing]
            # The new objects must outlive the copy.
            own.run(
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                str(copied.repository.git_dir),
                made[-1],
            )
    commits = dict(zip(missing, made, strict=True))
    results = tuple(
        Applied(path=part.path, file=path.relative_to(folder).as_posix(), commit=commits.get(path))
        for path in paths
    )
    return _Prepared(part=part, head=made[-1] if made else head, results=results)


def _am(copied: Repository, path: Path, part: Part) -> str:
    exact = (
        "--keep-non-patch",
        "--keep-cr",
        "--no-scissors",
        "--empty=keep",
        "--committer-date-is-author-date",
    )
    try:
        copied.run("am", "--quiet", "--3way", *exact, str(path.absolute()))
    except SourceError as error:
        where = f"submodule {part.path}" if part.path else "the root"
        raise SourceError(
            f"{path.name} does not apply to {where}: {error}",
            tip="nothing was changed; rebase the commits where they were made, and export them again",
        ) from error
    return copied.run("rev-parse", "HEAD").strip()


def _identity_of(commit: patches_commits.LocalCommit) -> _Identity:
    return (commit.author, commit.email, commit.written, commit.subject)


def _identity(own: Repository, path: Path) -> _Identity:
    """Who wrote a patch, when, and what its subject is, by git's own reading of the mail."""
    with tempfile.TemporaryDirectory(prefix="cairn-mail-") as folder:
        message, patch = Path(folder, "message"), Path(folder, "patch")
        listed = own.run("mailinfo", "-b", "--no-scissors", str(message), str(patch), stdin=path.read_bytes())
    fields = dict(line.split(": ", 1) for line in listed.splitlines() if ": " in line)
    try:
        written = int(email.utils.parsedate_to_datetime(fields["Date"]).timestamp())
        return (fields["Author"], fields["Email"], written, fields["Subject"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is no patch of git format-patch", tip="make it with git format-patch"
        ) from error
