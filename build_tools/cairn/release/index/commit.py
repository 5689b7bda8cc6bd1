"""One change of a channel, from its files to its pages, so that a crash anywhere can be finished or undone.

    step                              if the writer dies after it
    1 files and sidecars              no page names them, so no one sees them; the next run finds them there
    2 open journal entry              the same; the next run records the change as undone
    3 parts of the state              the same: no state names them
    4 state.json, if it is unchanged  the change counts; the pages are still the old ones, whole, and the
                                      state says which are to be written
    5 pages of sets, of projects,     an installer sees each project before or after the change. What others
      then the root                   depend on comes first: what a page pins is on the pages it leads to
    6 ended journal entry             the state still lists the work: the next run does it again
    7 state.json without the work     nothing is left to do

Only step 4 decides. All after it can be done by any run, as often as it likes, because pages are made from
the state alone. `recover` does just that at the beginning of each change.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from cairn import datafile
from cairn.release.index import keys, write
from cairn.release.index.generation import ChannelState, Pending, ProjectState, StagedSet, now
from cairn.release.index.snapshot import Channel, Snapshot
from cairn.store.protocol import MissingKeyError, Store

Kind = Literal["publish", "stage", "promote", "yank"]
Outcome = Literal["open", "done", "undone"]


@dataclass(frozen=True, kw_only=True)
class ChannelChange:
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


class JournalEntry(datafile.Value, tag_field="schema", tag="cairn.journal/1"):
    """The record of a change and how it ended: for people and audits, it decides nothing.

    Attributes:
        id: sorts by time.
        kind: which command asked for it.
        started, finished: RFC 3339 in UTC.
        outcome: `undone` is a change that never reached the state, so that nothing of it can be seen.
        projects: whose pages it writes, in that order.
        sets: the sets it brings.
        note: who and why, where that was given.
    """

    id: str
    kind: Kind
    started: str
    projects: tuple[str, ...]
    sets: tuple[str, ...] = ()
    note: str | None = None
    outcome: Outcome = "open"
    finished: str | None = None


def commit(
    channel: Channel, kind: Kind, plan: Callable[[Snapshot], ChannelChange], *, note: str | None = None
) -> ChannelChange:
    """Make the change that `plan` decides on, after finishing what an earlier run left.

    Args:
        channel: the channel to change; the files that the change offers are in its store (step 1).
        kind: which command asks for it.
        plan: the change to make of a snapshot; called again when a different writer was first.
        note: who and why, for the journal.

    Returns:
        The change that was made; an empty one where there was nothing to do.
    """
    recover(channel.store, channel.name)
    started = now()
    # Sorts by time, and no other run chooses it.
    compact = started.translate(str.maketrans("", "", "-:.Z"))
    entry_id = f"{compact}-{kind}-{secrets.token_hex(4)}"
    made = ChannelChange(projects=())
    pending = Pending(projects=())

    def attempt(snapshot: Snapshot) -> ChannelState | None:
        nonlocal made, pending
        if entry_id in snapshot.state.pending:
            # The write of an attempt before this one arrived and its answer did not (a bucket may do this to
            # a client that tries again): the state names our entry, so what we planned then is what counts.
            # To plan again would find everything there, and report that there was nothing to do.
            return None
        made = plan(snapshot)
        if made.empty:
            return None
        pending = Pending(
            projects=tuple(project.name for project in made.projects),
            sets=tuple(staged.set_id for staged in made.sets),
        )
        entry = JournalEntry(
            id=entry_id, kind=kind, started=started, note=note, projects=pending.projects, sets=pending.sets
        )
        channel.store.write(keys.open_journal_key(channel.name, entry_id), datafile.dumps(entry).encode())
        projects = {project.name: channel.put_part(project) for project in made.projects}
        sets = {staged.set_id: channel.put_part(staged) for staged in made.sets}
        state = snapshot.state
        return msgspec.structs.replace(
            state,
            projects={**state.projects, **projects},
            sets={**state.sets, **sets},
            pending={**state.pending, entry_id: pending},
        )

    channel.update(attempt)
    if made.empty:
        # An earlier attempt may have opened the entry; meanwhile a different writer made the same change.
        _end(channel, entry_id, "undone")
    else:
        finish(channel, entry_id, pending)
    return made


def recover(store: Store, name: str) -> tuple[str, ...]:
    """Finish what a crash left of changes that were committed, and record as undone those that were not.

    Safe beside writers that are alive: pages are made from the state, by whichever run. A living writer
    between steps 2 and 4 cannot be told from a dead one and is recorded as undone; when it commits, `_end`
    corrects that.

    Returns:
        One sentence for each change that was finished or undone.
    """
    channel = Channel(store, name)
    said = []
    for entry_id, pending in channel.load().state.pending.items():
        finish(channel, entry_id, pending)
        said.append(f"finished {entry_id}: pages of {', '.join(pending.projects) or 'its sets'}")
    # Listed before the state is read again, so that an entry which is committed in between is in that state.
    open_entries = under_way(channel)
    committed = channel.load().state.pending
    for entry_id in open_entries:
        if entry_id not in committed:
            _end(channel, entry_id, "undone")
            said.append(f"undid {entry_id}: it had changed nothing that can be seen")
    return tuple(said)


def finish(channel: Channel, entry_id: str, pending: Pending) -> None:
    """Write the pages that a committed change has yet to write, and close its entry (steps 5 to 7)."""
    snapshot = channel.load()
    # A set's own index first: it is new, and no page leads to it.
    for set_id in pending.sets:
        write.write_set_pages(snapshot, snapshot.set(set_id))
    write.write_channel_pages(channel, pending.projects)
    _end(channel, entry_id, "done")

    def without(now_there: Snapshot) -> ChannelState | None:
        if entry_id not in now_there.state.pending:  # a different run finished it too, and was first
            return None
        left = {k: v for k, v in now_there.state.pending.items() if k != entry_id}
        return msgspec.structs.replace(now_there.state, pending=left)

    channel.update(without)


def under_way(channel: Channel) -> tuple[str, ...]:
    """The ids of changes that have begun and not ended."""
    prefix = keys.open_journal_prefix(channel.name)
    listed = channel.store.list(prefix)
    return tuple(found.key.removeprefix(prefix).removesuffix(".json") for found in listed)


def _end(channel: Channel, entry_id: str, outcome: Outcome) -> None:
    """Record how a change ended.

    The ended entry is written before the open one is removed, so at any moment at least one of them is there:
    a run that ends the same change at the same time finds it in one place or the other. `done` is final;
    `undone` is not, since the writer that a recovering run took for dead may have committed after all.
    """
    store = channel.store
    open_key, ended_key = (make(channel.name, entry_id) for make in (keys.open_journal_key, keys.journal_key))
    entry = None
    for key in (open_key, ended_key):
        try:
            entry = entry or datafile.loads(store.read(key).data, JournalEntry, name=key)
        except MissingKeyError:
            continue
    if entry is None:
        return
    if entry.outcome not in ("done", outcome):
        ended = msgspec.structs.replace(entry, outcome=outcome, finished=now())
        store.write(ended_key, datafile.dumps(ended).encode())
    store.delete(open_key)
