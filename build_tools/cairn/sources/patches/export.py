"""Export a user's commits as patch files, with a folder per submodule."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cairn import files, owned
from cairn.errors import SourceError, UsageError
from cairn.output.wording import short_id
from cairn.sources.checkout import local_commits, local_work
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository, root_at
from cairn.sources.worktree import journal
from cairn.sources.worktree.parts import CommittedPart, walk_commit

# As committed: subjects keep their [brackets], empty commits stay; neither the version of git nor the id of
# the commit is named, so that the same change gives the same bytes (git-format-patch(1)).
_EXACT = (
    *("--keep-subject", "--always", "--no-signature", "--zero-commit", "--no-stat", "--no-renames"),
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--diff-algorithm=myers"),
)
# Whatever `format.*` is set to in the user's repository.
_UNCONFIGURED = (
    *("--no-attach", "--no-thread", "--no-to", "--no-cc", "--no-add-header", "--no-base", "--no-notes"),
    *("--no-from", "--no-signoff", "--no-cover-letter", "--suffix=.patch", "--encode-email-headers"),
    "--filename-max-length=64",
)


@dataclass(frozen=True, kw_only=True)
class ExportedPatch:
    """A patch file that was written.

    Attributes:
        path: of the submodule it is for; empty for the root.
        file: its path in the folder of patches.
        commit: that it was made of.
        subject: of the commit.
    """

    path: str
    file: str
    commit: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export.

    Attributes:
        patches: in the order in which they apply.
        edits: edited or new files that are in no commit, and so in no patch.
    """

    patches: tuple[ExportedPatch, ...]
    edits: tuple[str, ...]


def export(checkout: Path, output_dir: Path) -> Exported:
    """Write every commit above the diff base as a patch; those of a submodule go into a folder of its path.

    Patches that hipify was run on go into a folder `base` there; see `patch_files.find` for the layout.

    The files depend on the commits alone: exporting again writes the same bytes.

    Args:
        checkout: the working tree.
        output_dir: where they go; those that an earlier export left there are replaced.

    Raises:
        SourceError: it is not a checkout, or a commit is a merge.
        UsageError: the folder has files other than patches.
    """
    root = root_of(checkout, finished=False)
    refuse_other_files(output_dir)
    with tempfile.TemporaryDirectory(prefix="cairn-export-") as temporary:
        patches = [patch for part in walk_commit(root, "HEAD") for patch in _export(part, Path(temporary))]
        owned.replace_files(output_dir, Path(temporary))
    edits = local_work.of(root).edits
    return Exported(patches=tuple(patches), edits=edits)


def base_of(own: Repository) -> str:
    """Return the diff base that the user's commits are on top of.

    Raises:
        SourceError: there is none.
    """
    for name in (HIPIFY_TAG, UPSTREAM_TAG):
        if own.tag(name) is not None:
            if not own.head_descends_from(name):
                raise SourceError(f"HEAD of {own.work_tree} does not descend from {name}")
            return name
    raise SourceError(
        f"{own.work_tree} has neither {HIPIFY_TAG} nor {UPSTREAM_TAG}",
        tip="check the project out with `cairn checkout`",
    )


def root_of(checkout: Path, *, finished: bool) -> Repository:
    """Return the root repository of a checkout.

    Raises:
        SourceError: it is not a checkout; or, where it must be `finished`, its last command was not.
    """
    root = root_at(checkout.absolute())
    if not root.has_commit():
        raise SourceError(f"{root.work_tree} is not a git checkout", tip="name the folder of a checkout")
    note = journal.read(root.git_dir)
    if finished and note is not None and note.phase != "ready":
        raise SourceError(
            f"the checkout {root.work_tree} is unfinished", tip="run the `checkout` command again"
        )
    return root


def refuse_other_files(folder: Path) -> None:
    """Raise a UsageError if replacing a folder would lose files that are not patches."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", tip="name a folder for the patches")
    every = folder.rglob("*") if folder.is_dir() else ()
    paths = (path for path in every if not path.is_dir() and path.name != owned.MARK)
    other = next((path for path in paths if path.suffix != ".patch"), None)
    if other is not None:
        raise UsageError(f"{folder} has files other than patches ({other})", tip="name a folder of its own")


def _export(part: CommittedPart, folder: Path) -> list[ExportedPatch]:
    own, base = part.repository, base_of(part.repository)
    above = _write(part, folder, local_commits.above(own, base), f"{base}..HEAD", base)
    beneath = local_commits.beneath(own)
    if not beneath:
        return above
    these = f"{UPSTREAM_TAG}..{beneath[-1].id}"
    return _write(part, folder, beneath, these, UPSTREAM_TAG, stage="base") + above


def _write(
    part: CommittedPart,
    folder: Path,
    commits: Sequence[LocalCommit],
    these: str,
    base: str,
    *,
    stage: str = "",
) -> list[ExportedPatch]:
    own = part.repository
    if merge := next((commit for commit in commits if commit.is_merge), None):
        raise SourceError(
            f"{short_id(merge.id)} {merge.subject!r} in {own.work_tree} is a merge, which cannot be a patch",
            tip=f"make your commits linear: git rebase {base}",
        )
    if not commits:
        return []
    place = PurePosixPath(part.path, stage)
    with tempfile.TemporaryDirectory(prefix="cairn-export-") as temporary:
        where = f"--output-directory={temporary}"
        own.run("format-patch", "--quiet", *_EXACT, *_UNCONFIGURED, "--topo-order", where, these)
        written = sorted(Path(temporary).iterdir())
        target = folder / place
        target.mkdir(parents=True, exist_ok=True)
        for path in written:
            files.copy(path, target / path.name)
    return [
        ExportedPatch(path=part.path, file=str(place / path.name), commit=commit.id, subject=commit.subject)
        for path, commit in zip(written, commits, strict=True)
    ]
