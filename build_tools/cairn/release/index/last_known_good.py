"""The locks that an index offers: those of the newest good set of each line, family, Python and platform."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import Snapshot
from cairn.store.protocol import MissingKeyError

_NOT_PLAIN = re.compile("[^A-Za-z0-9_]+")  # a name in `pylock.<name>.toml` has no dot (PEP 751)
_UP = b'"../../../files/'  # from the locks of a set to the files of the store
# `sets/<set id>/locks/<kind>.<end>`; an index has each as `<kind>.<name>.<end>`.
_KINDS = (("constraints", "txt"), ("pylock", "toml"), ("requirements", "txt"))

SET_LOCKS = tuple(f"{kind}.{end}" for kind, end in _KINDS)
"""What lies in `sets/<set id>/locks/`."""


def of_names(sets: Iterable[IndexSet]) -> dict[str, IndexSet]:
    """The newest set of each name (`lock_name`) that is not yanked: a tested one, where there is any."""
    best: dict[str, IndexSet] = {}
    # Where two were taken at the same time, the id decides, so that each writer chooses the same.
    for entry in sorted(sets, key=lambda one: (one.untested is None, one.added, one.set_id)):
        if entry.yanked is None:
            best[lock_name(entry)] = entry
    return dict(sorted(best.items()))


def lock_name(entry: IndexSet) -> str:
    """What a lock of such a set is called in an index: stack, line, family, Python and platform.

    It is for URLs and for `pylock.<name>.toml`: `pytorch-release_2_9-gfx110X_all-3_11-linux_x86_64`.
    """
    parts = (entry.stack, entry.line, entry.family, entry.python, entry.platform)
    return "-".join(_NOT_PLAIN.sub("_", part) for part in parts)


def lock_keys(snapshot: Snapshot) -> tuple[str, ...]:
    """Every lock that an index offers, or has offered for a name that has no good set any more."""
    index = snapshot.index
    prefix = keys.locks_prefix(index.name)
    named = {f"{prefix}{kind}.{name}.{end}" for name in of_names(snapshot.sets()) for kind, end in _KINDS}
    return tuple(sorted(named | {listed.key for listed in index.store.list(prefix)}))


def lock(snapshot: Snapshot, key: str) -> bytes:
    """What an index offers under one of `lock_keys`: the lock of its set, or that there is none.

    The first line names the generation that it is of, so that it never has the same bytes twice
    (`marks.update_marks`).
    """
    recent = snapshot.generation.recent
    head = f"# Generation {recent[0].number if recent else 0} of {snapshot.index.name}\n".encode()
    kind, _, rest = key.rpartition("/")[2].partition(".")
    name, _, end = rest.rpartition(".")
    good = of_names(snapshot.sets()).get(name)
    if good is None or (kind, end) not in _KINDS:
        return head + b"# No good set has this name.\n"
    try:
        data = snapshot.index.store.read(keys.set_key(good.set_id, f"locks/{kind}.{end}")).data
    except MissingKeyError:
        return head + b"# Its set has no locks.\n"
    # Paths in it are relative to the folder that it lies in.
    return head + data.replace(_UP, b'"' + b"../" * key.count("/") + b"files/")
