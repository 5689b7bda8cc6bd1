"""Finishing what a crash left, from the state and the journal."""

from __future__ import annotations

from dataclasses import replace

from cairn.release import index, journal
from cairn.release.channel import Channel, Snapshot
from cairn.release.state import ChannelState, Pending
from cairn.release.store import Store


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
        index.write_set_pages(snapshot, snapshot.set(set_id))
    index.write_channel_pages(channel, pending.projects)
    journal.end(channel, entry_id, "done")

    def without(now: Snapshot) -> ChannelState | None:
        if entry_id not in now.state.pending:
            return None
        left = {k: v for k, v in now.state.pending.items() if k != entry_id}
        return replace(now.state, pending=left)

    channel.update(without)
