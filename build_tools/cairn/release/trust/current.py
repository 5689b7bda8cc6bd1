"""What a store has signed by now: the metadata that its timestamp leads to, by the keys that its root names.

Of the ledger, the decisions of promoters are signed too: bans and lifts, answers to failures, what a rollback
took off an index and what came back, and accepted losses. They are the target `ledger/decisions.json` of the
role `ledger`. In a store with a root they alone count: what somebody with write access adds to the chain of
entries, or takes away from its end, decides nothing. Records and rebuilds are signed by whoever made them;
that a test failed is believed without, since it lets nothing in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import digest_of
from cairn.release.ledger_entries import Event, has_entry
from cairn.release.trust import anchor, metadata
from cairn.release.trust.anchor import Anchor, Seen
from cairn.release.trust.metadata import (
    TIMESTAMP,
    File,
    MetadataError,
    Targets,
    Timestamp,
    Version,
    key_of,
    opened,
    role_of,
)
from cairn.store.protocol import MissingKeyError, Store, read_or_none

if TYPE_CHECKING:
    from cairn.release.index.snapshot import Snapshot
    from cairn.release.trust.signers import PublicKey

MARKS = ("yanked", "failed", "untested", "status")
"""What is signed of a file for people: why it was yanked, what failed of it, on what it is untested, and what
is said of its project (PEP 792); each where there is anything to say."""

LEDGER = "ledger"
"""The role, and the folder of its target."""

STATE = "generation.json"
"""The target below an index that stands for its generation."""

DECISIONS = frozenset({"ban", "lift", "withdraw", "readmit", "answer", "end"})
"""The events that a promoter alone may note."""

_AT_ONCE = 16  # requests side by side

_DECISIONS = f"{LEDGER}/decisions.json"


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed of an index: which generation, how many files it has, up to where the ledger went."""

    number: int
    digest: str
    files: int
    ledger: tuple[int, str] | None


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata that the timestamp leads to.

    Attributes:
        timestamp: None before anything was signed.
        etag: of its object.
        meta: the version of every role, by file name.
        top: the roles of the indexes.
    """

    timestamp: Timestamp | None
    etag: str | None
    meta: Mapping[str, Version]
    top: Targets

    @property
    def version(self) -> Seen:
        """That of the timestamp and of its snapshot."""
        if self.timestamp is None:
            return Seen(0, 0)
        return Seen(self.timestamp.version, self.timestamp.meta["snapshot.json"].version)

    @property
    def versions(self) -> dict[str, int]:
        """That of each role by file name, but for root and timestamp."""
        return {"snapshot.json": self.version.snapshot} | {n: v.version for n, v in self.meta.items()}


class SignedMetadata:
    """Reads what promoters have signed.

    Attributes:
        store: which.
        anchor: the root that says who may.
    """

    def __init__(self, store: Store, anchor: Anchor, *, former: bool = False) -> None:
        """Believe the keys of a root; those it named once too, where somebody vouches for all anew."""
        self.store, self.anchor, root = store, anchor, anchor.root
        self._own = root.of("targets")
        self._keys = {**(root.of("former promoter") if former else {}), **self._own}
        old = {**root.of("former promoter"), **root.of("former timestamp")} if former else {}
        self._stamps = {**old, **root.of("timestamp")}

    def _stamp_of(self, data: bytes, where: str) -> Timestamp:
        """Read a timestamp; one by a former key may stand where a change of the root was interrupted."""
        try:
            return self._opened(data, Timestamp, self._stamps, name=where)
        except MetadataError as error:
            root = self.anchor.root
            former = {**root.of("former promoter"), **root.of("former timestamp")}
            try:
                self._opened(data, Timestamp, former, name=where)
            except MetadataError:
                raise error from None
            raise MetadataError(
                f"{where} is signed by a key that the root names no more",
                tip="if `cairn trust change` was interrupted, type it again, and it finishes; "
                "else restore metadata/ from a copy of the store",
            ) from error

    def current(self, *, late: bool = False) -> Current:
        """Read timestamp, snapshot and the top of the targets, each by the keys that the root names.

        Args:
            late: believe a timestamp that has expired, too.

        Raises:
            MetadataError: one is not signed, older than what this machine has seen, or too old to build on.
        """
        seen = self.anchor.seen() or Seen(0, 0)  # first: others may sign a newer one at any time
        blob = read_or_none(self.store, TIMESTAMP)
        if blob is None:
            if seen.timestamp:
                raise MetadataError(
                    f"{self.store.url}/{TIMESTAMP} is lost", tip="restore metadata/ from a copy"
                )
            empty = Targets(version=0, expires=metadata.expiry(metadata.BINS), targets={})
            return Current(timestamp=None, etag=None, meta={}, top=empty)
        where = f"{self.store.url}/{TIMESTAMP}"
        stamp = self._stamp_of(blob.data, where)
        version = Seen(stamp.version, stamp.meta["snapshot.json"].version)
        self.require_version(version, seen)
        if metadata.expired(stamp) and not late:
            raise MetadataError(
                f"{where} counts no more since {stamp.expires}: the store may be an old copy",
                tip="if it is not, sign it again: cairn trust refresh",
            )
        shot = self.read("snapshot", version.snapshot, metadata.Snapshot)
        top = self.read("targets", shot.meta["targets.json"].version, Targets)
        return Current(timestamp=stamp, etag=blob.etag, meta=shot.meta, top=top)

    def meet(self, seen: Seen) -> None:
        """Remember a store that this machine has not seen, and that others saw in this version.

        Raises:
            MetadataError: it has an older one.
        """
        version = self.current(late=True).version
        self.require_version(version, seen)
        self.anchor.remember(version)

    def require_version(self, version: Seen, seen: Seen) -> None:
        """Refuse metadata that is older than what was seen of it.

        Raises:
            MetadataError: it is.
        """
        if version.timestamp < seen.timestamp or version.snapshot < seen.snapshot:
            raise MetadataError(
                f"{self.store.url}/{TIMESTAMP} was set back: it is version {version}, and {seen} was seen",
                tip="restore metadata/ and the indexes from a copy of the store",
            )

    def read(self, role: str, version: int, kind: type[metadata.M]) -> metadata.M:
        """Read a version of a role that is not the timestamp.

        Raises:
            MetadataError: it is lost, or no promoter signed it.
        """
        key = key_of(role, version)
        try:
            data = self.store.read(key).data
        except MissingKeyError as error:
            raise MetadataError(
                f"{self.store.url}/{key} is lost", tip="restore metadata/ from a copy of the store"
            ) from error
        made = self._opened(data, kind, self._keys, name=f"{self.store.url}/{key}")
        if made.version != version:
            raise MetadataError(f"{self.store.url}/{key} is version {made.version} of {role}")
        return made

    def _opened(
        self, data: bytes, kind: type[metadata.M], trusted: Mapping[str, PublicKey], *, name: str
    ) -> metadata.M:
        """Metadata of this very store, by one of these keys."""
        return opened(metadata.require_of(data, self.anchor.fingerprint, name=name), kind, trusted, name=name)

    def role(self, now: Current, name: str) -> Targets | None:
        """The current metadata of an index, or of `LEDGER`; None where nothing of it is signed."""
        entry = now.meta.get(f"{role_of(name)}.json")
        return self.read(role_of(name), entry.version, Targets) if entry else None

    def signed(self, index: str) -> Vouched | None:
        """What is signed of an index; None where nothing is."""
        role = self.role(self.current(late=True), index)
        return vouched(role.targets, index) if role else None

    def has_promised(self, current: Snapshot) -> bool:
        """Whether a promoter meant the current generation to follow the signed one."""
        role = self.role(self.current(late=True), current.index.name)
        try:
            self.promised(current, role, vouched(role.targets, current.index.name) if role else None)
        except MetadataError:
            return False
        return True

    def promised(self, current: Snapshot, role: Targets | None, signed: Vouched | None) -> Targets:
        """The metadata by which a promoter meant the current generation to be current."""
        index, made = current.index.name, f"{current.generation.number}-{current.digest}"
        if signed and not current.generation.number:
            raise MetadataError(
                f"{index} is signed at generation {signed.number}, and nothing of it is left: it cannot "
                "begin anew, since clients would not know that from an attack",
                tip=f"restore {index} from a copy of the store, or use another index",
            )
        links = (current.digest, signed.digest if signed else None)
        for version in itertools.count((role.version if role else 0) + 1):
            try:
                meant = self.read(role_of(index), version, Targets)
            except MetadataError:
                if not self.store.exists(key_of(role_of(index), version)):
                    break
                continue  # somebody's litter
            if (vouched(meant.targets, index).digest, current.generation.parent) == links:
                return meant
        raise MetadataError(
            f"generation {current.generation.number} of {index} is not signed, and nothing is built on it: "
            "somebody without a promoter's key changed state.json, or it was made before there was a root",
            tip=f"look at it (cairn release log --index {index}); if it is good, vouch for it: "
            f"cairn trust refresh --adopt {index}={short_label(made)}",
        )

    def ending(self, now: Current) -> dict[str, metadata.Signed]:
        """What of the snapshot and all below it counts no more soon, by file name.

        Raises:
            MetadataError: something is lost, or nobody who may has signed it.
        """

        def read(name: str) -> metadata.Signed:
            kind = metadata.Snapshot if name == "snapshot.json" else Targets
            return self.read(name.removesuffix(".json"), now.versions[name], kind)

        names = list(now.versions) if now.timestamp else []
        every = zip(names, side_by_side(read, names, jobs=_AT_ONCE), strict=True)
        return {name: made for name, made in every if metadata.expired(made, metadata.SOON)}

    def require_entry(self, last: tuple[int, str] | None) -> None:
        """Refuse a ledger that has lost its entry of this number and digest, or any before it.

        Raises:
            MetadataError: it has.
        """
        if last and not has_entry(self.store, last):
            where = f"{self.store.url}/{keys.ledger_entry_key(last[0])}"
            raise MetadataError(
                f"{where} is not what was signed: the ledger was cut back or changed",
                tip="restore ledger/ from a copy of the store",
            )


class Decisions:
    """The decisions that promoters have signed in a store, read again whenever something was signed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._signed: SignedMetadata | None = None
        self._stamp, self._version = b"", -1
        self._events: tuple[Event, ...] | None = None

    def read(self) -> tuple[Event, ...] | None:
        """All of them, oldest first; None where nobody signs, so that the entries of the ledger count.

        Raises:
            MetadataError: what was signed is lost, or was changed.
        """
        if self._signed is None:
            trusted = anchor.anchor(self._store)
            if trusted is None:
                return None
            self._signed = SignedMetadata(self._store, trusted)
        blob = read_or_none(self._store, TIMESTAMP)
        if blob is not None and blob.data == self._stamp:
            return self._events
        # A change of what users install asks for a fresh timestamp; what is staged need not wait for one.
        now = self._signed.current(late=True)
        entry = now.meta.get(f"{LEDGER}.json")
        if entry is not None and entry.version != self._version:
            role = self._signed.read(LEDGER, entry.version, Targets)
            self._signed.require_entry(role.targets[_DECISIONS].about.ledger)
            self._events, self._version = decisions_of(role), entry.version
        self._stamp = blob.data if blob else b""
        return self._events


def decided(events: Iterable[Event], last: tuple[int, str] | None) -> dict[str, File]:
    """The target that holds decisions, with the last entry that the ledger has."""
    plain = [{name: printable(value) for name, value in datafile.to_plain(event).items()} for event in events]
    data = msgspec.json.encode(plain, order="sorted")
    custom: dict[str, Any] = {"events": plain, **({"ledger": list(last)} if last else {})}
    return {_DECISIONS: File(length=len(data), hashes={"sha256": digest_of(data)}, custom=custom)}


def decisions_of(role: Targets) -> tuple[Event, ...]:
    """The decisions that the metadata of `LEDGER` holds.

    Raises:
        StoreError: they cannot be read.
    """
    try:
        return tuple(
            datafile.convert(decision, Event) for decision in role.targets[_DECISIONS].custom["events"]
        )
    except (KeyError, msgspec.ValidationError) as error:
        raise StoreError(f"the decisions that were signed cannot be read: {error}") from error


def vouched(targets: Mapping[str, File], index: str) -> Vouched:
    """What the targets of a role say of its index.

    Raises:
        MetadataError: nothing.
    """
    target = targets.get(f"{index}/{STATE}")
    if target is None or target.about.number < 1:
        raise MetadataError(f"the metadata of {index} names no generation")
    return Vouched(
        number=target.about.number,
        digest=target.hashes["sha256"],
        files=target.about.files,
        ledger=target.about.ledger,
    )


def believed(
    signed: tuple[Event, ...], others: Iterable[Event], set_id: str, pending: Iterable[Event]
) -> tuple[Event, ...]:
    """The history of a set in a store with a root.

    Args:
        signed: the decisions of its promoters.
        others: the events of the set in the entries of the ledger, which anybody may have written.
        set_id: the set.
        pending: events to count as if they were signed.
    """
    decisions = [event for event in signed if event.set_id == set_id]
    stands = {event.of: event.when for event in decisions if event.kind == "stand"}
    return (
        *decisions,
        *(
            event
            for event in others
            if event not in decisions
            and (
                event.kind in ("record", "rebuild", "begin")
                # That something failed; that it did no more is for a promoter to see.
                or (event.kind == "stand" and event.why and event.when > stands.get(event.of, ""))
            )
        ),
        *(event for event in pending if event.set_id == set_id),
    )


def short_label(label: str) -> str:
    """Return a name `<number>-<digest>` with so much of the digest that nobody can make two of one name."""
    return label[: label.index("-") + 33]


def printable(value: object) -> object:
    """A value as canonical JSON can hold it, which does not escape control characters."""
    return "".join(max(c, " ") for c in value) if isinstance(value, str) else value
