"""One patch after the other put on a repository, each compared by what it changes with what is there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cairn.errors import SourceError
from cairn.sources.checkout import local_commits
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git.repository import Repository
from cairn.sources.patches import conflict
from cairn.sources.patches.mail import Mail
from cairn.sources.worktree import copy
from cairn.sources.worktree.copy import Part

Outcome = Literal["applied", "there already", "upstream has it", "waits for hipify"]

_EXACT = ("--keep-non-patch", "--keep-cr", "--no-scissors", "--empty=keep", "--committer-date-is-author-date")


@dataclass(frozen=True, kw_only=True)
class Put:
    """What became of a patch: `commit` is what it became, None where it became none."""

    mail: Mail
    outcome: Outcome
    commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What patches are put on.

    Attributes:
        part: the repository they are for.
        head: the commit they go on top of.
        base: upstream's commit, or hipify's, below `commits`: what it has, nobody here has added.
        commits: what has been added already.
    """

    part: Part
    head: str
    base: str
    commits: Sequence[LocalCommit]


def put(ground: Ground, mails: Sequence[Mail]) -> tuple[str, tuple[Put, ...]]:
    """Put patches on a copy of a repository, which learns of the new commits and is not moved to them.

    Returns:
        The commit with all of them, and what became of each.

    Raises:
        SourceError: one does not apply.
    """
    own = ground.part.repository
    known = _there(own, ground.commits, mails)
    if all(mail.path in known for mail in mails):
        return ground.head, tuple(Put(mail=mail, outcome="there already") for mail in mails)
    with copy.copy((Part(path="", repository=own, commit=ground.head),)) as (copied,):
        head, done = put_on(copied.repository, ground, mails)
        keep(own, copied.repository, head)
    return head, done


def put_on(copied: Repository, ground: Ground, mails: Sequence[Mail]) -> tuple[str, tuple[Put, ...]]:
    """Like `put`, on a copy that is there, which is moved."""
    known = _there(ground.part.repository, ground.commits, mails)
    done = tuple(
        Put(mail=mail, outcome="there already") if mail.path in known else _one(copied, ground, mail)
        for mail in mails
    )
    return copied.run("rev-parse", "HEAD").strip(), done


def keep(own: Repository, copied: Repository, commit: str) -> None:
    """Bring the objects of a commit that was made in a copy, which they must outlive."""
    quiet = ("--quiet", "--no-tags", "--no-write-fetch-head")
    own.run("fetch", *quiet, str(copied.git_dir), commit)


def not_of(own: Repository, commits: Sequence[LocalCommit], mails: Sequence[Mail]) -> tuple[LocalCommit, ...]:
    """The commits that none of the patches makes."""
    made = set(_there(own, commits, mails).values())
    return tuple(commit for commit in commits if commit.id not in made)


def _there(own: Repository, commits: Sequence[LocalCommit], mails: Sequence[Mail]) -> Mapping[Path, str]:
    """The commit that makes the change of each patch, for those that have one; not one that was reverted."""
    by_digest: dict[str, str] = {}
    for commit in commits:
        if not commit.is_merge:
            by_digest.pop(local_commits.digest(own, commit.id, reverse=True), None)
            by_digest[local_commits.digest(own, commit.id)] = commit.id
    live = set(by_digest.values())
    found: dict[Path, str] = {}
    for mail in mails:
        commit_id = by_digest.get(local_commits.digest_of(mail.diff)) if mail.diff else None
        for commit in commits:
            # With other options git writes the same change as another text, with a rename for instance.
            if commit_id is None and commit.identity == mail.identity and commit.id in live:
                commit_id = commit.id if _makes(own, commit, mail) else None
        if commit_id is not None:
            found[mail.path] = commit_id
    return found


def _makes(own: Repository, commit: LocalCommit, mail: Mail) -> bool:
    """Whether a patch, put on what a commit was put on, gives that commit's files."""
    tree = own.run("rev-parse", "--verify", f"{commit.id}^{{tree}}").strip()
    parent = own.commit_of(f"{commit.id}~1")
    if parent is None or not mail.diff:
        return not mail.diff
    with _index(own, parent) as env:
        try:
            own.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=mail.diff, env=env)
        except SourceError:
            return False
        return own.run("write-tree", env=env).strip() == tree


def _one(copied: Repository, ground: Ground, mail: Mail) -> Put:
    before = copied.run("rev-parse", "HEAD").strip()
    try:
        copied.run("am", "--quiet", "--3way", *_EXACT, str(mail.path.absolute()))
    except SourceError as error:
        copied.run("reset", "--quiet", "--hard", before)
        if (copied.git_dir / "rebase-apply").is_dir():
            copied.run("am", "--quit")
        if not _has(copied, "HEAD", mail):
            raise _refused(copied, ground, mail, error) from error
    after = copied.run("rev-parse", "HEAD").strip()
    if after != before:
        return Put(mail=mail, outcome="applied", commit=after)
    # Git found nothing to do: the change is there. Whose is it?
    return Put(mail=mail, outcome="upstream has it" if _has(copied, ground.base, mail) else "there already")


def _has(copied: Repository, commit: str, mail: Mail) -> bool:
    """Whether a commit's files are as the patch leaves them: taken back, it applies."""
    with _index(copied, commit) as env:
        try:
            copied.run("apply", "--cached", "--check", "--reverse", "-", stdin=mail.diff, env=env)
        except SourceError:
            return False
    return True


@contextlib.contextmanager
def _index(own: Repository, commit: str) -> Iterator[dict[str, str]]:
    """The variables with which git works on an index of a commit's files, and not on the repository's own."""
    with tempfile.TemporaryDirectory(prefix="cairn-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        own.run("read-tree", commit, env=env)
        yield env


def _refused(copied: Repository, ground: Ground, mail: Mail, error: SourceError) -> SourceError:
    where = f"submodule {ground.part.path}" if ground.part.path else "the root"
    why = conflict.reasons(copied, mail)
    said = f"{mail.path.name} does not apply to {where}: {conflict.in_words(why) if why else error}"
    if old := next((c for c in ground.commits if c.identity == mail.identity), None):
        return SourceError(
            f"{said}; it was amended since {old.id[:12]}, which has the same author, date and subject",
            tip="nothing was changed; drop that commit (git rebase -i), or check out again and apply all",
        )
    return SourceError(said, tip=conflict.tip(why, mail))
