"""One change of a channel, from its files to its pages, so that a crash anywhere can be finished or undone.

The conditional write of `state.json` decides: before it, nothing of the change can be seen, and the next run
records it as undone; with it, the state itself says which pages are still to be written, and the next run
writes them. Pages follow in the order that the change gives, what others depend on first, the root last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cairn.release.index import journal, write
from cairn.release.index.generation import ChannelState, Pending, ProjectState, StagedSet
from cairn.release.index.snapshot import Channel, Snapshot
from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is to be different in a channel.

    Attributes:
        projects: the whole new state of each changed project, what others depend on first.
        sets: new or changed sets.
    """

    projects: tuple[ProjectState, ...]
    sets: tuple[StagedSet, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.projects and not self.sets


def commit(
    channel: Channel, kind: journal.Kind, plan: Callable[[Snapshot], Change], *, note: str | None = None
) -> Change:
    """Bring about what `plan` makes of the channel, after finishing what another run left.

    Args:
        channel: the channel to change.
        kind: which command asks for it.
        plan: the change to make of a snapshot; called again when another writer was first.
        note: who and why, for the journal.

    Returns:
        The change that was made; an empty one where there was nothing to do.
    """
    recover(channel.store, channel.name)
    started = journal.now()
    entry_id = journal.new_id(kind, started)
    made = Change(projects=())

    def attempt(snapshot: Snapshot) -> ChannelState | None:
        nonlocal made
        made = plan(snapshot)
        if made.empty:
            return None
        pending = _pending(made)
        entry = journal.Entry(
            id=entry_id, kind=kind, started=started, note=note, projects=pending.projects, sets=pending.sets
        )
        journal.begin(channel, entry)
        return _changed(snapshot, made, entry_id, pending)

    channel.update(attempt)
    if made.empty:
        journal.end(channel, entry_id, "undone")
    else:
        finish(channel, entry_id, _pending(made))
    return made


def _pending(change: Change) -> Pending:
    return Pending(projects=tuple(p.name for p in change.projects), sets=tuple(s.set_id for s in change.sets))


def _changed(snapshot: Snapshot, change: Change, entry_id: str, pending: Pending) -> ChannelState:
    channel, state = snapshot.channel, snapshot.state
    projects = {project.name: channel.put_part(project) for project in change.projects}
    sets = {staged.set_id: channel.put_part(staged) for staged in change.sets}
    return msgspec.structs.replace(
        state,
        projects={**state.projects, **projects},
        sets={**state.sets, **sets},
        pending={**state.pending, entry_id: pending},
    )


def recover(store: Store, name: str) -> tuple[str, ...]:
    """Finish what a crash left of changes that were committed, and record as undone those that were not.

    Safe beside writers that are alive: pages are made from the state, whoever writes them.

    Returns:
        One sentence for each change that was finished or undone.
    """
    channel = Channel(store, name)
    said = []
    for entry_id, pending in channel.load().state.pending.items():
        finish(channel, entry_id, pending)
        said.append(f"finished {entry_id}: pages of {', '.join(pending.projects) or 'its sets'}")
    committed = channel.load().state.pending
    for entry_id in journal.under_way(channel):
        if entry_id not in committed:
            journal.end(channel, entry_id, "undone")
            said.append(f"undid {entry_id}: it had changed nothing that can be seen")
    return tuple(said)


def finish(channel: Channel, entry_id: str, pending: Pending) -> None:
    """Write the pages that a committed change has yet to write, and close its journal entry."""
    snapshot = channel.load()
    for set_id in pending.sets:
        write.write_set_pages(snapshot, snapshot.set(set_id))
    write.write_channel_pages(channel, pending.projects)
    journal.end(channel, entry_id, "done")

    def without(now: Snapshot) -> ChannelState | None:
        if entry_id not in now.state.pending:
            return None
        left = {k: v for k, v in now.state.pending.items() if k != entry_id}
        return msgspec.structs.replace(now.state, pending=left)

    channel.update(without)
