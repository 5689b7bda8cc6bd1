"""Yank a set: installers skip its wheels unless a user pins the version (PEP 592).

A yank is also a ban in the whole store, kept in the ledger: the set is yanked in every index that has it, and
no other index takes it, whatever becomes of the indexes, until somebody lifts the ban by name and reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError
from cairn.output import wording
from cairn.output.safe_text import require_lines
from cairn.output.wording import short_id
from cairn.release import night_names
from cairn.release.history.difference import checked_reason
from cairn.release.index import commit, keys, marks
from cairn.release.index.generation import now, who
from cairn.release.index.marks import Marked
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import SET_FILE, Index, Snapshot, existing, read_set
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, EventKind, with_wheels
from cairn.release.provenance import dsse, evidence
from cairn.release.provenance.dsse import UntrustedKeyError
from cairn.release.trust import anchor, signers
from cairn.release.trust.signers import PublicKey
from cairn.store.protocol import MissingKeyError, Store
from cairn.wheels.wheelset import WheelSet

_WHOLE = re.compile("[0-9a-f]{64}")
_FEWEST = 4  # digits of an id that stand for it


class Yank(datafile.Value):
    """The result of a yank, or of a dry run.

    Attributes:
        subject: the id of the set, or the digest of the manifest of a night.
        reason: why; None where the ban was lifted.
        who: who says so.
        indexes: what each index says of each set.
        changed: whether anything was to be done.
    """

    subject: str
    reason: str | None
    who: str
    indexes: tuple[Marked, ...]
    changed: bool


def yank_each(
    store: Store, subjects: Iterable[str], *, by: str | None, reason: str, dry_run: bool = False
) -> tuple[Yank, ...]:
    """Yank each of these sets, or lift the bans in the name of `by`; one that fails keeps none back.

    Raises:
        CairnError: the first that failed did so for this reason.
    """
    results, errors = [], []
    for subject in subjects:
        try:
            if by is None:
                results.append(yank(store, subject, reason=reason, dry_run=dry_run))
            else:
                results.append(lift(store, subject, by=by, reason=reason, dry_run=dry_run))
        except CairnError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return tuple(results)


def yank(store: Store, subject: str, *, reason: str, dry_run: bool = False) -> Yank:
    """Ban a set, and mark it and its wheels as yanked in every index that has it.

    Args:
        store: the store.
        subject: the set, by the beginning of its id; or `manifest_of` a night, for all its sets, those that
            are yet to be staged too.
        reason: why, as every page says.
        dry_run: say what would change, and write nothing.

    Raises:
        StoreError: the store has no such set; or an index could not be changed: the ban holds all the same.
        UsageError: several sets have an id that begins so, or the reason cannot be shown.
    """
    return _note(store, subject, who(), checked_reason(reason), banned=True, dry_run=dry_run)


def lift(store: Store, subject: str, *, by: str, reason: str, dry_run: bool = False) -> Yank:
    """Lift the ban of a set or of a night, and remove the marks in every index.

    Args:
        store: the store.
        subject: as for `yank`.
        by: whom to ask.
        reason: why it may be used again.
        dry_run: say what would change, and write nothing.

    Raises:
        GateError: an untested set was let in since then on one of its targets, and would stand above it.
        StoreError, UsageError: as for `yank`; or nobody is named, or the set was yanked with another one.
    """
    requirement, tip = "a yank is taken back by name and reason", "--undo --who WHO --reason WHY"
    require_lines(by, reason, what=requirement, tip=tip)
    return _note(store, subject, by, reason, banned=False, dry_run=dry_run)


def _note(store: Store, subject: str, by: str, why: str, *, banned: bool, dry_run: bool) -> Yank:
    if not _WHOLE.fullmatch(subject):  # else it may be a night's
        subject = set_of(store, subject)
    ledger = Ledger(store)
    unread: dict[str, str] = {}
    before, sets = ledger.ban(subject), tuple(_sets_of(store, subject, unread))
    if not banned and before is None:
        _refuse_banned_with_others(ledger, subject, sets)
    kind: EventKind = "ban" if banned else "lift"
    event = Event(kind=kind, set_id=subject, who=by, when=now(), why=why)
    # A set stays yanked where its night is, when the ban of the set is lifted; and the other way round.
    others = [{wheel_set.id, wheel_set.manifest_sha256} - {subject} for wheel_set in sets]
    free = [
        wheel_set
        for wheel_set, subjects in zip(sets, others, strict=True)
        if banned or ledger.ban(*subjects) is None
    ]
    events = with_wheels(event, free)
    if not banned:
        _refuse_stepping_back(store, subject, sets, events)
    if not dry_run:
        # The ledger first: whoever is about to offer the set looks there once more after its commit.
        commit.note_events(store, events)
    places = marks.update_marks(
        store,
        subject,
        "yank" if banned else "unyank",
        why=why if banned else f"{by}: {why}",
        alike=sets,
        pending=events if dry_run else (),
        dry_run=dry_run,
    )
    if unread:
        reasons = "; ".join(f"{short_id(set_id)}: {reason}" for set_id, reason in unread.items())
        raise StoreError(
            f"{wording.count(unread, 'set')} cannot be read, and may be of {short_id(subject)}: {reasons}",
            tip="all others are done; restore these from a copy of the store, and run the same command again",
        )
    changed = (before is None or before.why != why) if banned else before is not None
    return Yank(
        subject=subject,
        reason=why if banned else None,
        who=by,
        indexes=places,
        changed=changed or any(place.changed for place in places),
    )


def _sets_of(store: Store, subject: str, unread: dict[str, str]) -> Iterator[WheelSet]:
    """The set that a subject names, or all sets of a night that the store has; note what cannot be read."""
    if store.exists(keys.set_key(subject, SET_FILE)):
        yield read_set(store, subject)
        return
    yield from (whole for whole in _sealed(store, unread) if whole.manifest_sha256 == subject)


def _sealed(store: Store, unread: dict[str, str]) -> Iterator[WheelSet]:
    """Every set in the store, including those of no index; note why others cannot be read."""
    for set_id in store.folders("sets/"):
        try:
            yield read_set(store, set_id)
        except MissingKeyError:
            continue  # its `set.json` was collected
        except CairnError as error:
            unread[set_id] = str(error)


def _refuse_banned_with_others(ledger: Ledger, subject: str, sets: Iterable[WheelSet]) -> None:
    """Refuse to lift the ban of a set that was yanked together with another set, or with its night.

    Raises:
        UsageError: it is; the message says with which.
    """
    for wheel_set in sets:
        ban = ledger.ban_of_set(wheel_set)
        if wheel_set.id != subject or ban is None or ban.set_id == subject:  # it was yanked itself just now
            continue
        if ban.set_id == wheel_set.manifest_sha256:
            offender, which = "its night", f"--night {short_id(ban.set_id)}"
        else:
            banned_by = short_id(ban.of or ban.set_id)
            offender, which = f"the set {banned_by}, whose wheels it has", banned_by
        raise UsageError(
            f"the set {short_id(subject)} was yanked with {offender}: {ban.why}",
            tip=f"take that back: cairn release yank {which} --undo --who … --reason …",
        )


def _refuse_stepping_back(
    store: Store, subject: str, sets: Sequence[WheelSet], events: Sequence[Event]
) -> None:
    """Refuse to lift a ban if an untested set would then rank above a tested one.

    Raises:
        GateError: it would.
    """
    mark = marks.marking_from_ledger(store, pending=events)
    places = marks.update_marks(store, subject, "unyank", alike=sets, pending=events, dry_run=True)
    for name in dict.fromkeys(place.index for place in places):
        lifted = {place.set_id for place in places if place.index == name and place.changed}
        after = (
            mark(wheel_set) if wheel_set.set_id in lifted else wheel_set
            for wheel_set in read_current(Index(store, name)).sets()
        )
        marks.refuse_stepping_back(name, after, lifted)


def built_by(store: Store, builder: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The ids of the sets in a store that a builder made, whether or not an index has them.

    Args:
        store: the store.
        builder: the file of its public key, or its id as `builder.json` has it: the address of a workflow
            with its ref, or without (then of any ref).

    Returns:
        The ids; and by id, why the builder of another set cannot be read. In a store without a root nobody
        need sign: there, a set without a signature was not made by the owner of a key.
    """
    key = signers.public_key(Path(builder)) if Path(builder).is_file() else None
    has_root = anchor.anchor(store) is not None
    ids, unread = [], {}
    for set_id in store.folders("sets/"):
        try:
            if _is_by(store, read_set(store, set_id), builder, key):
                ids.append(set_id)
        except MissingKeyError as error:
            if has_root:
                unread[set_id] = str(error)
        except CairnError as error:
            unread[set_id] = str(error)
    return tuple(ids), unread


def _is_by(store: Store, wheel_set: WheelSet, builder: str, key: PublicKey | None) -> bool:
    """Whether a builder made a set, by its signature where a key is given, else by its statement."""
    if key is None:
        statement = evidence.builder_statement(store, wheel_set)
        return builder in (statement.builder.id, statement.builder.id.partition("@")[0])
    name = keys.set_key(wheel_set.id, evidence.BUILDER_SIGNATURE)
    envelope = dsse.loads(store.read(name).data, dsse.Envelope, name=name)
    try:
        dsse.verify(envelope, dsse.IN_TOTO, {key.key_id: key}, name=name)
    except UntrustedKeyError:
        return False
    return True


def manifest_of(store: Store, night: str) -> str:
    """The digest of the manifest that all sets of a night share.

    Args:
        store: the store.
        night: its id, with its digest where the store has a root; or the digest of the manifest itself, which
            may be shortened where the store has a set of it.

    Raises:
        StoreError: there is no such night, or it was changed since it was frozen.
    """
    name, frozen = night_names.taken_apart(night)
    key = keys.night_key(name, "night.json")
    if keys.kind_of(key) == "night" and store.exists(key):
        night_names.refuse_unnamed(store, night)
        data = store.read(key).data
        if frozen not in ("", hashlib.sha256(data).hexdigest()):
            raise StoreError(f"{store.url}/{key} was changed since it was frozen", tip="name the manifest")
        plan = datafile.parse_json(data, name=f"{store.url}/{key}")
        digest = plan.get("manifest_sha256") if isinstance(plan, dict) else None
        if isinstance(digest, str):
            return digest
    if _WHOLE.fullmatch(night):
        return night
    manifests = {whole.manifest_sha256 for whole in _sealed(store, {})}
    for snapshot in _readable(store):
        with contextlib.suppress(StoreError):  # what it says of a set is damaged
            manifests |= {wheel_set.manifest_sha256 for wheel_set in snapshot.sets()}
    return _only(store, night, manifests, "night")


def set_of(store: Store, given: str) -> str:
    """The full id of the only set of the store whose id starts with `given`; no index need have it.

    Raises:
        StoreError: the store has no such set.
        UsageError: several sets have an id that begins so.
    """
    is_whole = _WHOLE.fullmatch(given) is not None
    if is_whole and (store.exists(keys.set_key(given, SET_FILE)) or Ledger(store).ban(given) is not None):
        return given
    in_indexes = (set_id for snapshot in _readable(store) for set_id in snapshot.set_ids)
    return _only(store, given, {*store.folders("sets/"), *in_indexes}, "set")


def _readable(store: Store) -> Iterator[Snapshot]:
    """The indexes of a store, except damaged ones, which `update_marks` reports."""
    for name in existing(store):
        with contextlib.suppress(StoreError):
            yield read_current(Index(store, name))


def _only(store: Store, given: str, every: Iterable[str], kind: str) -> str:
    matches = sorted(set_id for set_id in every if set_id.startswith(given.lower()))
    if len(given) < _FEWEST or not matches:
        lists = "`cairn ci night list` lists nights" if kind == "night" else "`cairn release log` lists sets"
        raise StoreError(
            f"{store.url} has no {kind} {given!r}", tip=f"give its id, or the first digits: {lists}"
        )
    if len(matches) > 1:
        raise UsageError(
            f"{given} is the beginning of {len(matches)} ids", tip=f"give more of it: {', '.join(matches)}"
        )
    return matches[0]
