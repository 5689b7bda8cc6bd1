"""The changes of an index: between two states, and generation by generation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from msgspec import structs

from cairn import datafile
from cairn.output import safe_text
from cairn.release.index.generation import FileRef, Generation, ProjectState
from cairn.release.index.names import FlatGeneration, GenerationOrigin, origin_of
from cairn.release.index.reach import change_since
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Change, Index, Snapshot, empty, missing
from cairn.store.protocol import Store


class Difference(datafile.Value):
    """The files and sets that an index stops offering, and those that it newly offers.

    Attributes:
        gone: the files that go.
        back: the files that come.
        gone_sets, back_sets: the same of sets, by id.
    """

    gone: tuple[FileRef, ...] = ()
    back: tuple[FileRef, ...] = ()
    gone_sets: tuple[str, ...] = ()
    back_sets: tuple[str, ...] = ()

    def joined(self, later: Difference) -> Difference:
        """The union of both differences."""
        return Difference(
            gone=_sorted({*self.gone, *later.gone}),
            back=_sorted({*self.back, *later.back}),
            gone_sets=tuple(sorted({*self.gone_sets, *later.gone_sets})),
            back_sets=tuple(sorted({*self.back_sets, *later.back_sets})),
        )


def between(before: Snapshot, change: Change) -> Difference:
    """What a change removes from a snapshot, and what it adds."""
    after = before.with_change(change)
    old = {file.ref for name in change.projects for file in before.project(name).files}
    new = {file.ref for name in change.projects for file in after.project(name).files}
    return Difference(
        gone=_sorted(old - new),
        back=_sorted(new - old),
        gone_sets=tuple(sorted(i for i in change.sets if before.has_set(i) and not after.has_set(i))),
        back_sets=tuple(sorted(i for i in change.sets if after.has_set(i) and not before.has_set(i))),
    )


def without_losses(before: Snapshot, change: Change) -> Change:
    """The part of a change that adds: each project with the files it has and those it gains.

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


def same_but_serial(old: ProjectState, new: ProjectState) -> bool:
    """Whether an index offers the same files of a project, whenever it was last changed."""
    return structs.replace(old, serial=new.serial, page=new.page) == new


def checked_reason(reason: str) -> str:
    """Return the reason, if pages and logs can show it.

    Raises:
        UsageError: it is blank, or has what would not be seen as it is.
    """
    safe_text.require_lines(reason, what="a reason is needed", tip="say in one line why: --reason WHY")
    return reason


def _sorted(refs: set[FileRef]) -> tuple[FileRef, ...]:
    return tuple(sorted(refs, key=lambda ref: (ref.filename, ref.sha256)))


class Logged(GenerationOrigin):
    """One generation of an index.

    Attributes:
        brought, removed, marked: the ids of the sets that came, that went, and that were changed.
        projects: how many of its projects differ from those of the generation before.
    """

    brought: tuple[str, ...]
    removed: tuple[str, ...]
    marked: tuple[str, ...]
    projects: int


def entries(store: Store, index: str) -> Iterator[Logged]:
    """Return the generations of an index, newest first; each is read when it is asked for.

    Raises:
        StoreError: there is no such index, or a generation of it is lost or was changed.
    """
    current = read_current(Index(store, index))
    if not current.exists:
        raise missing(store, index)
    return (entry for _, _, entry in logged(current))


def logged(current: Snapshot) -> Iterator[tuple[str, Generation, Logged]]:
    """The generations of an index by digest, newest first, each with its entry in the log."""
    chain = itertools.chain(current.index.chain(current), [("", empty(current.index.name))])
    for (digest, made), (before, older) in itertools.pairwise(chain):
        change = {name: getattr(made, name) for name in ("brought", "removed", "marked", "changed")}
        if isinstance(made, FlatGeneration):  # which says nothing of its change
            change = change_since(current.index.at(older, before), current.index.at(made, digest))
        projects = change.pop("changed")
        yield digest, made, Logged(**origin_of(digest, made), **change, projects=projects)
