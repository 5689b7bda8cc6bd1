"""What is different between two states of an index, for users to read and for a commit to make."""

from __future__ import annotations

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import safe_text
from cairn.release.index.generation import FileRef, ProjectState
from cairn.release.index.snapshot import Change, Snapshot


class Difference(datafile.Value):
    """What an index offers no more, and what it offers that it did not.

    Attributes:
        gone: the files that go.
        back: the files that come.
        gone_sets, back_sets: the same of sets, by id.
    """

    gone: tuple[FileRef, ...] = ()
    back: tuple[FileRef, ...] = ()
    gone_sets: tuple[str, ...] = ()
    back_sets: tuple[str, ...] = ()

    def joined(self, other: Difference) -> Difference:
        """All that is in either."""
        return Difference(
            gone=_sorted({*self.gone, *other.gone}),
            back=_sorted({*self.back, *other.back}),
            gone_sets=tuple(sorted({*self.gone_sets, *other.gone_sets})),
            back_sets=tuple(sorted({*self.back_sets, *other.back_sets})),
        )


def between(before: Snapshot, change: Change) -> Difference:
    """What a change of a snapshot takes away and brings."""
    after = before.with_change(change)
    old = {file.ref for name in change.projects for file in before.project(name).files}
    new = {file.ref for name in change.projects for file in after.project(name).files}
    return Difference(
        gone=_sorted(old - new),
        back=_sorted(new - old),
        gone_sets=tuple(sorted(set(before.set_ids) - set(after.set_ids))),
        back_sets=tuple(sorted(set(after.set_ids) - set(before.set_ids))),
    )


def without_losses(before: Snapshot, change: Change) -> Change:
    """What of a change brings something: each project with what it has, and what it is to have.

    An installer that reads pages while they are written must find whole sets at every moment. A page that
    gains one set and loses another is right neither before nor after the pages of what these need. So what
    comes is offered first beside what goes, by a generation of its own.
    """
    projects: dict[str, ProjectState | None] = {}
    for name, new in change.projects.items():
        old = before.project(name)
        if new is not None and {f.ref for f in new.files} - {f.ref for f in old.files}:
            projects[name] = old.with_files(new.files)
    return Change(
        projects=projects, sets={set_id: new for set_id, new in change.sets.items() if new is not None}
    )


def same_but_serial(one: ProjectState, other: ProjectState) -> bool:
    """Whether an index offers the same of a project, whenever it was last changed."""
    return msgspec.structs.replace(one, serial=0) == msgspec.structs.replace(other, serial=0)


def checked_reason(reason: str) -> str:
    """A reason that pages and logs can show.

    Raises:
        UsageError: it is blank, or has what would not be seen as it is.
    """
    if not reason.strip() or safe_text.UNSEEN.search(reason):
        raise UsageError(
            "the reason is blank, or has control characters", tip="say in one line why: --reason WHY"
        )
    return reason


def _sorted(refs: set[FileRef]) -> tuple[FileRef, ...]:
    return tuple(sorted(refs, key=lambda ref: (ref.filename, ref.sha256)))
