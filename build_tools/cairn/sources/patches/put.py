"""One patch after the other put on a repository, each compared by what it changes with what is there.

And why one does not apply: which file, which hunk, which line, and whether only the line endings differ.
"""

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
from cairn.sources.patches.patch_files import FileDiff, Hunk, PatchFile
from cairn.sources.worktree import copy
from cairn.sources.worktree.parts import CommittedPart

Outcome = Literal["applied", "there already", "upstream has it", "waits for hipify"]

# As in the file: subjects keep their [brackets], lines their CR, and `-- >8 --` is text (git-am(1)). With the
# committer's date fixed too, the same patches on the same commit give the same ids.
_EXACT = ("--keep-non-patch", "--keep-cr", "--no-scissors", "--empty=keep", "--committer-date-is-author-date")
_SHOWN = 4  # reasons


@dataclass(frozen=True, kw_only=True)
class Put:
    """What became of a patch: `commit` is the commit that it became, or None."""

    patch: PatchFile
    outcome: Outcome
    commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What patches are put on.

    Attributes:
        part: the repository they are for.
        head: the commit they go on top of.
        base: upstream's commit, or hipify's, below `commits`: what it has was not added here.
        commits: what has been added already.
    """

    part: CommittedPart
    head: str
    base: str
    commits: Sequence[LocalCommit]


def put(ground: Ground, patches: Sequence[PatchFile]) -> tuple[str, tuple[Put, ...]]:
    """Put patches on a copy of a repository, which receives the new commits and is not moved to them.

    Returns:
        The commit with all of them, and what became of each.

    Raises:
        SourceError: one does not apply.
    """
    own = ground.part.repository
    known = _present(own, ground.commits, patches)
    if all(patch.path in known for patch in patches):
        return ground.head, tuple(Put(patch=patch, outcome="there already") for patch in patches)
    start = CommittedPart(path="", repository=own, commit=ground.head)
    with copy.copy((start,)) as (copied,):
        head, done = put_on(copied.repository, ground, patches)
        copy.bring_back(start, copied.repository, head)
    return head, done


def put_on(copied: Repository, ground: Ground, patches: Sequence[PatchFile]) -> tuple[str, tuple[Put, ...]]:
    """Like `put`, on an existing copy, which is moved."""
    known = _present(ground.part.repository, ground.commits, patches)
    done = tuple(
        Put(patch=patch, outcome="there already") if patch.path in known else _one(copied, ground, patch)
        for patch in patches
    )
    return copied.run("rev-parse", "HEAD").strip(), done


def not_of(
    own: Repository, commits: Sequence[LocalCommit], patches: Sequence[PatchFile]
) -> tuple[LocalCommit, ...]:
    """The commits that none of the patches makes."""
    made = set(_present(own, commits, patches).values())
    return tuple(commit for commit in commits if commit.id not in made)


def _present(
    own: Repository, commits: Sequence[LocalCommit], patches: Sequence[PatchFile]
) -> Mapping[Path, str]:
    """The commit that makes the change of each patch, for those that have one; not one that was reverted."""
    by_digest: dict[str, str] = {}
    for commit in commits:
        if not commit.is_merge:
            by_digest.pop(local_commits.digest(own, commit.id, reverse=True), None)
            by_digest[local_commits.digest(own, commit.id)] = commit.id
    live = set(by_digest.values())
    found: dict[Path, str] = {}
    for patch in patches:
        commit_id = by_digest.get(local_commits.digest_of(patch.diff)) if patch.diff else None
        for commit in commits:
            # With other options git writes the same change as a different text, with a rename for instance.
            if commit_id is None and commit.identity == patch.identity and commit.id in live:
                commit_id = commit.id if _makes(own, commit, patch) else None
        if commit_id is not None:
            found[patch.path] = commit_id
    return found


def _makes(own: Repository, commit: LocalCommit, patch: PatchFile) -> bool:
    """Whether a patch, put on what a commit was put on, gives that commit's files."""
    parent = own.commit_of(f"{commit.id}~1")
    if parent is None or not patch.diff:
        return not patch.diff
    with _index(own, parent) as env:
        try:
            own.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch.diff, env=env)
        except SourceError:
            return False
        return own.run("write-tree", env=env).strip() == own.commit_tree(commit.id)


def _one(copied: Repository, ground: Ground, patch: PatchFile) -> Put:
    before = copied.run("rev-parse", "HEAD").strip()
    try:
        copied.run("am", "--quiet", "--3way", *_EXACT, str(patch.path.absolute()))
    except SourceError as error:
        copied.run("reset", "--quiet", "--hard", before)
        if (copied.git_dir / "rebase-apply").is_dir():
            copied.run("am", "--quit")
        if not _has(copied, "HEAD", patch):
            raise _refused(copied, ground, patch, error) from error
    after = copied.run("rev-parse", "HEAD").strip()
    if after != before:
        return Put(patch=patch, outcome="applied", commit=after)
    # Git found nothing to do: the change is there. Whose is it?
    return Put(
        patch=patch, outcome="upstream has it" if _has(copied, ground.base, patch) else "there already"
    )


def _has(copied: Repository, commit: str, patch: PatchFile) -> bool:
    """Whether a commit's files are as the patch leaves them: it applies in reverse."""
    with _index(copied, commit) as env:
        try:
            copied.run("apply", "--cached", "--check", "--reverse", "-", stdin=patch.diff, env=env)
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


def _refused(copied: Repository, ground: Ground, patch: PatchFile, error: SourceError) -> SourceError:
    where = f"submodule {ground.part.path}" if ground.part.path else "the root"
    rejected = _rejected(copied, patch)
    why = list(dict.fromkeys(reason for file in patch.files for reason in _reasons(copied, file, rejected)))
    more = f"; and {len(why) - _SHOWN} more" if len(why) > _SHOWN else ""
    reason = "; ".join(why[:_SHOWN]) + more if why else str(error)
    said = f"{patch.path.name} does not apply to {where}: {reason}"
    if old := next((c for c in ground.commits if c.identity == patch.identity), None):
        return SourceError(
            f"{said}; it was amended since {old.id[:12]}, which has the same author, date and subject",
            tip="nothing was changed; drop that commit (git rebase -i), or check out again and apply all",
        )
    if any("and the patch CRLF" in reason for reason in why):
        tip = f"convert the patch: sed -i 's/\\r$//' '{patch.path}'"
    elif any("has CRLF line endings" in reason for reason in why):
        tip = "make the patch again from that file, without core.autocrlf"
    else:
        tip = "nothing was changed; rebase the commits where they were made, and export them again"
    return SourceError(said, tip=tip)


def _rejected(copied: Repository, patch: PatchFile) -> dict[str, frozenset[bytes]]:
    """The headers of the hunks that do not apply, by file: `git apply --reject` writes them to `FILE.rej`.

    The working tree, in which nothing is edited, is left as it was.
    """
    with contextlib.suppress(SourceError):  # it does not apply: that is why we are here
        copied.run("apply", "--reject", "--whitespace=nowarn", "-", stdin=patch.diff)
    listed = copied.run("ls-files", "--others", "-z").split("\0")
    found: dict[str, frozenset[bytes]] = {}
    for name in (name for name in listed if name.endswith(".rej")):
        lines = (copied.work_tree / name).read_bytes().split(b"\n")
        heads = (line[: line.index(b"@@", 2) + 2] for line in lines if line.startswith(b"@@ -"))
        found[name.removesuffix(".rej")] = frozenset(heads)
    copied.run("reset", "--quiet", "--hard")
    copied.run("clean", "--quiet", "-ffdx")
    return found


def _reasons(copied: Repository, file: FileDiff, rejected: Mapping[str, frozenset[bytes]]) -> Iterator[str]:
    path = copied.work_tree / file.name
    if file.is_new:
        if path.exists() or path.is_symlink():
            yield f"{file.name} exists already, and the patch creates it"
        return
    if not path.is_file():
        yield f"there is no {file.name}"
        return
    headers = rejected.get(file.name, frozenset())
    content = path.read_bytes().split(b"\n")
    for number, hunk in enumerate(file.hunks, 1):
        if hunk.header in headers:
            where = f"{file.name}, hunk {number} of {len(file.hunks)}, line {hunk.line}"
            yield _line_endings(file.name, hunk, content) or f"{where}: what it changes is not there"


def _line_endings(name: str, hunk: Hunk, content: list[bytes]) -> str | None:
    """The reason where a hunk would apply if both had the same line endings."""
    wanted = [line.removesuffix(b"\r") for line in hunk.before]
    plain = [line.removesuffix(b"\r") for line in content]
    size = len(wanted)
    starts = (at for at, line in enumerate(plain) if size and line == wanted[0])
    if not any(plain[at : at + size] == wanted for at in starts):
        return None
    file, patch = ("LF", "CRLF") if any(line.endswith(b"\r") for line in hunk.before) else ("CRLF", "LF")
    return f"{name} has {file} line endings and the patch {patch} (line {hunk.line})"
