"""Retention: a new generation without old sets, and without what only they needed."""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.errors import UsageError
from cairn.release.history import difference
from cairn.release.history.difference import Difference
from cairn.release.index import keys
from cairn.release.index.commit import attempts
from cairn.release.index.generation import PUBLISHED, FileRef, IndexSet, ProjectState, project_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Change, Index, Snapshot, missing, read_set, traces, whole_id
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# `name==version`, as constraints have it; what follows may be a marker, a hash or a comment.
_PIN = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*==\s*([^\s;\\#]+)", re.MULTILINE)


class Rule(datafile.Value):
    """The rule for which sets of an index stay.

    Attributes:
        last: how many of the newest sets that are not yanked stay, of each line, family, Python and platform.
        days: those that came within this time.
        keep: these, by id or the beginning of one.
    """

    last: int | None = None
    days: int | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.last is None) == (self.days is None) or (self.last or self.days or 0) < 1:
            raise UsageError("say how much is to stay", tip="give --keep-last N or --days D, at least 1")


class Retained(datafile.Value):
    """The result of a retention, or of a dry run.

    Attributes:
        generation: number of the new generation; of the current one where nothing was to be done.
        changed: whether anything was to be done.
        difference: what goes; nothing comes.
        held: the sets that are too old and stay, each with what names it.
    """

    generation: int
    changed: bool
    difference: Difference
    held: tuple[tuple[str, str], ...]


def retain(
    store: Store, index: str, rule: Rule, *, reason: str | None = None, dry_run: bool = False
) -> Retained:
    """Remove old sets from an index by a new generation; their files stay in the store until `gc`.

    What a lock of the index, a different index that users install from, or `rule.keep` names stays, and so
    does every file that a set that stays has or needs.

    Args:
        store: where the index lives.
        index: its name.
        rule: which sets stay.
        reason: why, for the log.
        dry_run: say what would go, and write nothing.

    Raises:
        StoreError: there is no such index, or it has no set that is to be kept.
    """
    reason = difference.checked_reason(reason) if reason is not None else None
    current = read_current(Index(store, index))
    if not current.exists:
        raise missing(store, index)
    keep = {whole_id(given, current) for given in rule.keep}
    read: dict[str, WheelSet] = {}  # sets never change, and most are the same in each attempt
    for attempt in attempts(current.index, dry_run=dry_run):
        now = attempt.before
        read |= {set_id: read_set(store, set_id) for set_id in now.set_ids if set_id not in read}
        old = _old(now.sets(), rule)
        held = _held(now, old, read, keep)
        change = _without(now, [set_id for set_id in old if set_id not in held], read)
        if attempt.commit(change, "retain", why=reason):
            break
    return Retained(
        generation=attempt.generation,
        changed=not change.empty,
        difference=difference.between(now, change),
        held=tuple(sorted(held.items())),
    )


def _old(sets: Iterable[IndexSet], rule: Rule) -> list[str]:
    """The ids of the sets that a rule drops; of each kind, the newest that is not yanked always stays."""
    kinds: dict[tuple[str, ...], list[IndexSet]] = collections.defaultdict(list)
    for wheel_set in sets:
        kinds[wheel_set.stack, wheel_set.line, wheel_set.family, wheel_set.python, wheel_set.platform].append(
            wheel_set
        )
    since = None if rule.days is None else datetime.now(UTC) - timedelta(days=rule.days)
    old = []
    for group in kinds.values():
        good = 0
        for wheel_set in sorted(group, key=lambda s: (s.added, s.set_id), reverse=True):
            recent = since is not None and datetime.fromisoformat(wheel_set.added) >= since
            if not (recent or good < (rule.last or 1)):
                old.append(wheel_set.set_id)
            good += wheel_set.yanked is None
    return old


def _held(
    now: Snapshot, old: Sequence[str], sets: dict[str, WheelSet], keep: Iterable[str]
) -> dict[str, str]:
    """The old sets that something still names, each with what names it."""
    store, name = now.index.store, now.index.name
    keep = set(keep)
    bearers = collections.Counter(
        sha for wheel_set in sets.values() for sha in {wheel.sha256 for wheel in wheel_set.wheels}
    )
    held = dict.fromkeys((set_id for set_id in old if set_id in keep), "--keep")
    signs = {set_id: tuple(_signs(sets[set_id], bearers)) for set_id in old}
    for locked in store.list(f"{name}/locks/"):
        text = store.read(locked.key).data.decode("utf-8", "replace")
        mentioned = frozenset((*_DIGEST.findall(text), *_PIN.findall(text)))
        for set_id in old:
            if set_id in mentioned or any(sign & mentioned for sign in signs[set_id]):
                held.setdefault(set_id, locked.key)
    for trace in traces(store):
        if trace != name and keys.is_gated(trace):
            ids = frozenset(read_current(Index(store, trace)).set_ids)
            held |= {set_id: trace for set_id in old if set_id in ids and set_id not in held}
    return held


def _signs(wheel_set: WheelSet, bearers: Mapping[str, int]) -> Iterator[frozenset[str | tuple[str, str]]]:
    """The digest and the version by which a lock may name each wheel that no other set has."""
    unshared = [wheel for wheel in wheel_set.wheels if bearers[wheel.sha256] == 1]
    for wheel in unshared or wheel_set.wheels:
        yield frozenset((wheel.sha256, (wheel.distribution, wheel.version)))


def _without(now: Snapshot, going: Sequence[str], sets: dict[str, WheelSet]) -> Change:
    """The change that removes these sets, and the files that no remaining set has or needs."""
    if not going:
        return Change()
    gone = frozenset(going)
    staying = {
        FileRef(filename=file.file_name, sha256=file.sha256)
        for set_id in now.set_ids
        if set_id not in gone
        for file in sets[set_id].files
    }
    # What was published by hand came for its own sake; `origin` tells it from the rest of a closure.
    wheels = [wheel for set_id in going for wheel in sets[set_id].wheels]
    others = [file for set_id in going for file in sets[set_id].closure if file.origin != "published"]
    leaving = {FileRef(filename=wheel.file_name, sha256=wheel.sha256) for wheel in wheels}
    leaving |= {FileRef(filename=file.file_name, sha256=file.sha256) for file in others}
    leaving -= staying
    needed = _needed_by_hand(now, leaving)
    projects: dict[str, ProjectState | None] = {}
    for name in sorted({project_of(ref.filename) for ref in leaving} - needed):
        project = now.project(name)
        names = frozenset(file.filename for file in project.files if file.ref in leaving)
        left = project.without(names)
        if names:
            projects[name] = left if left.files else None
    return Change(projects=projects, sets=dict.fromkeys(going))


def _needed_by_hand(now: Snapshot, leaving: Collection[FileRef]) -> frozenset[str]:
    """The projects that remaining files, published on their own, need directly or indirectly."""
    by_hand = (f for p in now.projects() for f in p.files if f.build == PUBLISHED and not f.sets)
    waiting = [need for file in by_hand if file.ref not in leaving for need in file.needs]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [need for file in now.project(name).files for need in file.needs]
    return frozenset(needed)
