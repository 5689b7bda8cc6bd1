"""The promoter's signatures: what a commit of an index adds to TUF's metadata.

    step                                        what a client of TUF sees after it
    1 <n>.<index>.json names the generation     the old state: no snapshot leads to it
    2 state.json, if it is unchanged            the old state
    3 bins of the files that differ             the old state
    4 snapshot, then timestamp.json, if it is   the new state, all of it
      unchanged

A writer that dies between 2 and 4 leaves a generation that is current and that no timestamp leads to. The
next writer finishes it: step 1 shows that a promoter meant it. A promotion is taken back instead where the
set was banned since, a test of it failed, or another root follows: `state.json` names the signed generation
again. So nobody who can write to the store can have a promotion that died finished after a yank, after a
test that failed, or after a builder's or tester's key was stolen. A generation that no promoter meant was
put there by somebody without a key of the root's; nothing is built on it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import StoreError, UsageError
from cairn.release.index.generation import FileEntry, Generation, ProjectState, digest_of
from cairn.release.index.names import differing
from cairn.release.index.reach import stored_bytes
from cairn.release.index.snapshot import Change, Snapshot, empty
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event
from cairn.release.trust import anchor as anchors
from cairn.release.trust import clock, metadata, signers
from cairn.release.trust import current as signed_now
from cairn.release.trust.anchor import Anchor, Seen, sign_key
from cairn.release.trust.current import (
    DECISIONS,
    LEDGER,
    MARKS,
    STATE,
    Current,
    SignedMetadata,
    vouched,
)
from cairn.release.trust.metadata import (
    BINS,
    FRESH,
    SLOW,
    TIMESTAMP,
    Bins,
    Delegated,
    Delegations,
    File,
    Key,
    MetadataError,
    Targets,
    Timestamp,
    Version,
    expiry,
    key_of,
    role_of,
    sealed,
)
from cairn.release.trust.signers import Signer
from cairn.store.protocol import Store, attempts_at, read_or_none

IN_A_BIN = 128
"""So many files a bin has at most, on average: for 100,000, a snapshot of 40 KB and a bin of 40 KB."""

_AT_ONCE = 16  # requests side by side


class Promoter(SignedMetadata):
    """Signs the states of a store's indexes and the decisions of its promoters, or refuses to."""

    def __init__(self, store: Store, anchor: Anchor, *, former: bool = False) -> None:
        """Have the keys of a root sign; see `SignedMetadata`."""
        super().__init__(store, anchor, former=former)
        self._sign_key = sign_key()  # which threads do not see

    def _to_sign(self, role: str = "targets", *, late: bool = False) -> Current:
        """Read what something is to be built on, with the key of a role."""
        self.require_key(role)
        now = self.current(late=late)
        self.anchor.remember(now.version)
        return now

    def settle(self, current: Snapshot, *, may_sign: Callable[[Snapshot, bool], bool]) -> bool:
        """Sign the current generation of an index, if a promoter meant it and that is still to be done.

        Args:
            current: the index, as `state.json` has it.
            may_sign: takes the signed state, and whether a promotion was judged by this root; returns whether
                the ledger allows what is new since.

        Returns:
            False if the ledger does not allow it; then nothing was signed.

        Raises:
            MetadataError: somebody without a promoter's key changed the index, or the metadata.
            UsageError: something is to be signed, and there is no key to do it.
        """
        if self._is_promoters(self._key):  # before anything is judged, or written
            self.require_key()
        for _ in attempts_at(TIMESTAMP):
            now = self.current()
            role = self.role(now, current.index.name)
            signed = vouched(role.targets, current.index.name) if role else None
            self.require_entry(signed.ledger if signed else None)
            if (signed.digest if signed else None) == (current.digest if current.generation.number else None):
                return True
            promised = self.promised(current, role, signed)
            old = current.index.at(
                current.index.generation(signed.number, signed.digest)
                if signed
                else empty(current.index.name),
                signed.digest if signed else "",
            )
            judged_by = promised.targets[f"{current.index.name}/{STATE}"].about.root
            if not may_sign(old, judged_by in (0, self.anchor.root.version)):
                return False
            meta = self._write_index(now, promised, old, current)
            if self._lead_to(now, meta, [] if role else [current.index.name]):
                return True
        raise AssertionError  # `attempts_at` raises

    def promise(self, before: Snapshot, change: Change, made: Generation, data: bytes) -> None:
        """Sign that a generation is meant to be current, before it is (step 1)."""
        now = self._to_sign()
        role = self.role(now, made.index)
        signed = vouched(role.targets, made.index) if role else None
        more = sum(
            (len(project.files) if project else 0) - len(before.project(name).files)
            for name, project in change.projects.items()
        )
        count = (signed.files if signed else 0) + more
        state = self._state(made, data, count, role)
        self._put(role_of(made.index), state, role.version if role else 0)

    def decide(self, events: Sequence[Event], *, noted: bool = False) -> None:
        """Sign decisions, which count from then on; what was signed already is not signed twice.

        Args:
            events: the decisions.
            noted: they are in the ledger by now: sign up to where it goes, so that it cannot be cut back.
        """
        for _ in attempts_at(TIMESTAMP):
            now = self._to_sign()
            role, decided = self._decisions(now)
            new = tuple(event for event in events if event not in decided)
            if role is not None and not new and not noted:
                return
            made = self._put_decisions((*decided, *new), role)
            if self._lead_to(
                now, {f"{LEDGER}.json": Version(version=made.version)}, [] if role else [LEDGER]
            ):
                return

    def _decisions(self, now: Current) -> tuple[Targets | None, tuple[Event, ...]]:
        """The role of the decisions with what it holds; before there was one, what the ledger says."""
        role = self.role(now, LEDGER)
        if role is not None:
            return role, signed_now.decisions_of(role)
        every = Ledger(self.store).events()
        return None, tuple(e for e in every if e.kind in DECISIONS or e.kind == "stand" or e.is_bad)

    def _put_decisions(self, events: Sequence[Event], before: Targets | None) -> Targets:
        targets = signed_now.decided(events, Ledger(self.store).last())
        made = Targets(version=1, expires=expiry(SLOW), targets=targets)
        return self._put(LEDGER, made, before.version if before else 0)

    def adopt(self, states: Sequence[Snapshot], confirmed: Mapping[str, str]) -> None:
        """Sign states of indexes as they are, and all decisions; see `require_named`.

        All of their metadata is signed anew, so that keys which the root names no more do not count.
        """
        for _ in attempts_at(TIMESTAMP):
            now = self._to_sign(late=True)
            self.require_named(states, confirmed)
            role, decisions = self._decisions(now)
            meta = {f"{LEDGER}.json": Version(version=self._put_decisions(decisions, role).version)}
            for current in states:
                index = current.index.name
                entry = now.meta.get(f"{role_of(index)}.json")
                count = sum(len(project.files) for project in current.projects())
                made = self._state(current.generation, stored_bytes(current), count, None)
                state = self._put(role_of(index), made, entry.version if entry else 0)
                nothing = current.index.at(empty(index), "")
                meta |= self._write_index(now, state, nothing, current)
            if self._lead_to(now, meta, [LEDGER, *(current.index.name for current in states)]):
                return

    def require_named(self, states: Sequence[Snapshot], confirmed: Mapping[str, str]) -> None:
        """Ask for the names of what no promoter of today has signed, by which somebody has looked at it.

        Args:
            states: those of indexes that are to be signed anew, with all decisions.
            confirmed: the names, or their first digits, by index and `LEDGER`: see `unsigned`.

        Raises:
            UsageError: one is not named.
        """
        lacking = {
            name: (signed_now.short_label(label), text)
            for name, (label, text) in self.unsigned(states).items()
            if not label.startswith(given := confirmed.get(name, ""))
            or not given.startswith(signed_now.short_label(label))
        }
        if lacking:
            raise UsageError(
                "no promoter of today has signed "
                + "; ".join(f"{name} {label} ({text})" for name, (label, text) in lacking.items()),
                tip="look at it (cairn release log, cairn index check --hashes); to vouch for it: "
                + " ".join(f"--adopt {name}={label}" for name, (label, _) in lacking.items()),
            )

    def unsigned(self, states: Sequence[Snapshot]) -> dict[str, tuple[str, str]]:
        """What no promoter of today has signed, by index and `LEDGER`; nothing where none ever signed.

        Each has a name, `<number>-<digest>`, and what to know of it; the number is that of the generation, or
        of the decisions that there are.
        """
        now = self.current(late=True)
        if now.timestamp is None:
            return {}
        unsigned = {}
        for state in states:
            made, name = state.generation, state.index.name
            role = self._signed_today(now, name)
            if made.number and (role is None or vouched(role.targets, name).digest != state.digest):
                unsigned[name] = (
                    f"{made.number}-{state.digest}",
                    f"{made.action} by {made.who}, {made.when[:16]}",
                )
        _, decisions = self._decisions(now)
        if decisions and self._signed_today(now, LEDGER) is None:
            (target,) = signed_now.decided(decisions, None).values()
            last = decisions[-1]
            text = f"the last is the {last.kind} of {last.set_id[:12]} by {last.who}: {last.why}"
            unsigned[LEDGER] = f"{len(decisions)}-{target.hashes['sha256']}", text
        return unsigned

    def _signed_today(self, now: Current, name: str) -> Targets | None:
        """The role of an index, or `LEDGER`, if a key that the root names has signed it."""
        entry = now.meta.get(f"{role_of(name)}.json")
        blob = read_or_none(self.store, key_of(role_of(name), entry.version)) if entry else None
        try:
            return self._opened(blob.data, Targets, self._own, name=name) if blob else None
        except MetadataError:
            return None

    def refresh(self) -> str:
        """Sign the timestamp again, so that it goes on counting; return until when it does.

        A promoter's key also signs again what counts no more soon of all below it.
        """
        for _ in attempts_at(TIMESTAMP):
            now = self._to_sign("timestamp", late=True)
            if now.timestamp is None:
                raise StoreError(f"{self.store.url} has nothing signed yet", tip="cairn trust init")
            made = None
            with contextlib.suppress(MetadataError):  # which `index check` tells
                made = self._renewed(now) if self.can_sign else None
            if made := made or self._stamp(now, now.timestamp.meta["snapshot.json"].version):
                return made.expires
        raise AssertionError  # `attempts_at` raises

    def _renewed(self, now: Current) -> Timestamp | None:
        """Sign again what counts no more soon; None where nothing does, or another writer was first."""
        ending = self.ending(now)
        meta = {}
        for name, old in ending.items():
            if isinstance(old, Targets):
                life = BINS if name == "targets.json" or ".bin-" in name else SLOW
                new = structs.replace(old, expires=expiry(life))
                meta[name] = Version(version=self._put(name.removesuffix(".json"), new, old.version).version)
        return self._lead_to(now, meta, []) if ending else None

    def _state(self, made: Generation, data: bytes, count: int, before: Targets | None) -> Targets:
        """What is signed of an index, with its bins as they are."""
        last = Ledger(self.store).last()
        custom = {"number": made.number, "files": count, **({"ledger": list(last)} if last else {})}
        custom |= {"root": self.anchor.root.version} if made.action == "promote" else {}
        target = File(length=len(data), hashes={"sha256": digest_of(data)}, custom=custom)
        old = before.delegations.succinct_roles if before and before.delegations else None
        return Targets(
            version=1,
            expires=expiry(SLOW),
            targets={f"{made.index}/{STATE}": target},
            delegations=self._bins(made.index, old.bit_length if old else _bits(count)),
        )

    def _bins(self, index: str, bits: int) -> Delegations:
        bins = Bins(keyids=tuple(self._own), bit_length=bits, name_prefix=f"{role_of(index)}.bin")
        return Delegations(keys=self._public(), succinct_roles=bins)

    def _public(self) -> dict[str, Key]:
        return {key_id: self.anchor.root.keys[key_id] for key_id in self._own}

    def _write_index(self, now: Current, state: Targets, old: Snapshot, new: Snapshot) -> dict[str, Version]:
        """Step 3; return the version of everything that the snapshot must lead to."""
        index, count = new.index.name, vouched(state.targets, new.index.name).files
        bins = state.delegations.succinct_roles if state.delegations else None
        if bins is None or _bits(count) > bins.bit_length:
            more = structs.replace(state, delegations=self._bins(index, _bits(count)))
            return self._write_index(
                now, self._put(role_of(index), more, state.version), new.index.at(empty(index), ""), new
            )
        changes = _differences(index, old, new, bins)
        fresh = old.generation.number == 0
        if fresh:  # names of fewer bits stay in the snapshot: clients refuse one that has lost any
            for number in range(2**bins.bit_length):
                changes.setdefault(_name(bins, number), {})
        written = side_by_side(
            lambda name: self._write_bin(name, changes[name], now.meta, fresh=fresh), changes, jobs=_AT_ONCE
        )
        return {
            f"{role_of(index)}.json": Version(version=state.version),
            **{
                f"{name}.json": Version(version=version)
                for name, version in zip(changes, written, strict=True)
            },
        }

    def _lead_to(self, now: Current, meta: Mapping[str, Version], indexes: Sequence[str]) -> Timestamp | None:
        """Step 4; return the timestamp that leads to it, or None if another writer was first.

        Args:
            now: what there is.
            meta: what is new.
            indexes: those that are delegated to the promoters of today.
        """
        whole = {**now.meta, **meta}
        if indexes or "targets.json" not in whole:
            top = self._put("targets", self._delegating(now.top, indexes), now.top.version)
            whole["targets.json"] = Version(version=top.version)
        above = now.timestamp.meta["snapshot.json"].version if now.timestamp else 0
        shot = self._put("snapshot", metadata.Snapshot(version=1, expires=expiry(SLOW), meta=whole), above)
        return self._stamp(now, shot.version)

    def _write_bin(
        self, name: str, changes: Mapping[str, File | None], meta: Mapping[str, Version], *, fresh: bool
    ) -> int:
        entry = meta.get(f"{name}.json")
        targets = {}
        if entry is not None and not fresh:
            targets = dict(self.read(name, entry.version, Targets).targets)
        targets |= {path: file for path, file in changes.items() if file is not None}
        left = {path: file for path, file in targets.items() if changes.get(path, file) is not None}
        made = Targets(version=0, expires=expiry(BINS), targets=left)
        return self._put(name, made, entry.version if entry else 0).version

    def _delegating(self, top: Targets, indexes: Sequence[str]) -> Targets:
        old = top.delegations or Delegations(keys={}, roles=())
        new = [
            Delegated(keyids=tuple(self._own), name=role_of(index), paths=(f"{index}/*",))
            for index in indexes
        ]
        others = [present for present in old.roles or () if present.name not in {role.name for role in new}]
        used = {key_id for role in others for key_id in role.keyids}
        left = {key_id: key for key_id, key in old.keys.items() if key_id in used}
        delegations = Delegations(keys={**left, **self._public()}, roles=(*others, *new))
        return structs.replace(top, delegations=delegations, expires=expiry(BINS))

    def _stamp(self, now: Current, snapshot: int) -> Timestamp | None:
        stamp = Timestamp(
            store=self.anchor.fingerprint,
            version=now.timestamp.version + 1 if now.timestamp else 1,
            expires=expiry(FRESH),
            meta={"snapshot.json": Version(version=snapshot)},
        )
        data = sealed(stamp, self._signer("timestamp"))
        if (
            not self.store.write_if(TIMESTAMP, data, etag=now.etag)
            and self.store.read(TIMESTAMP).data != data
        ):
            return None
        self.anchor.remember(Seen(stamp.version, snapshot))
        return stamp

    def _put(self, role: str, made: metadata.M, above: int) -> metadata.M:
        """Write metadata under the next version that nobody has taken; return it."""
        signer = self._signer("targets")
        for version in itertools.count(above + 1):
            numbered = structs.replace(made, version=version, store=self.anchor.fingerprint)
            if self.store.write_if(key_of(role, version), sealed(numbered, signer), etag=None):
                return numbered
        raise AssertionError  # it counts without end

    @functools.cached_property
    def _key(self) -> Signer | None:
        return signers.chosen_signer(self._sign_key)

    @property
    def can_sign(self) -> bool:
        """Whether there is a promoter's key, on a machine that knows what was signed before."""
        return self._is_promoters(self._key) and self.anchor.seen() is not None

    def require_key(self, role: str = "targets") -> None:
        """Ask for a key of a role, on a machine that can tell an old copy of the store.

        Raises:
            UsageError: there is none, or the machine has not seen the store.
            StoreError: the clock is wrong.
        """
        self._signer(role)
        self._require_seen()
        clock.require(self.store, self.anchor.root)

    def _is_promoters(self, signer: Signer | None) -> bool:
        return signer is not None and signer.key_id in self._own

    def _require_seen(self) -> None:
        if self.anchor.seen() is None:
            raise UsageError(
                f"this machine has not seen {self.store.url} before: it cannot tell whether somebody has put "
                "an old copy there, and signs nothing",
                tip=f"name in {anchors.MEMORY} where the machines that sign remember it; or see on one of "
                "them which version it has, and tell this one: cairn trust show --seen VERSION",
            )

    def _signer(self, role: str) -> Signer:
        signer = self._key
        if signer is None:
            raise UsageError(
                f"{self.store.url} is signed: only a promoter's key changes what users install",
                tip=f"give the promoter's key: --sign-key, or {signers.VARIABLE}",
            )
        if signer.key_id not in self.anchor.root.of(role):
            raise UsageError(
                f"the key {signer.key_id[:16]} is not the promoter's by the root of {self.store.url}",
                tip="see whose keys it names: cairn trust show",
            )
        return signer


def _bits(count: int) -> int:
    """Of how many bits the names of the bins are, for so many files."""
    return max(1, (max(count, 1) - 1) // IN_A_BIN).bit_length()


def _name(bins: Bins, number: int) -> str:
    digits = len(f"{2**bins.bit_length - 1:x}")
    return f"{bins.name_prefix}-{number:0{digits}x}"


def _bin_of(path: str, bins: Bins) -> str:
    return _name(bins, int(digest_of(path.encode())[:8], 16) >> (32 - bins.bit_length))


def _differences(index: str, old: Snapshot, new: Snapshot, bins: Bins) -> dict[str, dict[str, File | None]]:
    """What is to be written into each bin: files that are new or different, None for those that are gone."""
    changes: dict[str, dict[str, File | None]] = defaultdict(dict)
    moved = {i for i in differing(old.set_entries, new.set_entries) if old.has_set(i) != new.has_set(i)}
    for name in sorted(differing(old.project_parts, new.project_parts)):
        states = [
            snapshot.project(name) if name in snapshot.project_parts else ProjectState(name=name, files=())
            for snapshot in (old, new)
        ]
        files_before, files_after = ({file.filename: file for file in state.files} for state in states)
        around = [(state.status, state.status_reason) for state in states]
        for filename in files_before.keys() | files_after.keys():
            before, after = files_before.get(filename), files_after.get(filename)
            if before == after and around[0] == around[1] and after and moved.isdisjoint(after.sets):
                continue
            target = _target(after, new, states[1])
            if target != _target(before, old, states[0]):
                path = f"{index}/{filename}"
                changes[_bin_of(path, bins)][path] = target
    return changes


def _target(file: FileEntry | None, snapshot: Snapshot, state: ProjectState) -> File | None:
    if file is None:
        return None
    marks: dict[str, Any] = {name: getattr(file, name) for name in MARKS[:3]}
    if file.provenance is not None and file.provenance_kind is not None:
        # All that verifying it asks of the index, so that nobody has to read a whole generation for it.
        marks |= {"provenance": file.provenance, "kind": file.provenance_kind}
        marks["sets"] = [set_id for set_id in file.sets if snapshot.has_set(set_id)]
    if state.status != "active":
        reason = f": {state.status_reason}" if state.status_reason else ""
        marks["status"] = f"the project {state.name} is {state.status}{reason}"
    # Canonical JSON does not escape control characters, and others encode it by themselves.
    custom = {name: signed_now.printable(value) for name, value in marks.items() if value is not None}
    return File(length=file.size, hashes={"sha256": file.sha256}, custom=custom)
