"""Stage a set: resolve its closure, seal it, and give it an index of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from cairn.errors import StoreError
from cairn.output import Progress, silent
from cairn.output.wording import short_id
from cairn.release import recipes
from cairn.release.index import marks, write
from cairn.release.index.generation import MIRRORED, FileRef, project_of
from cairn.release.index.listing import index_set
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.ledger import Ledger
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import Attester, attest
from cairn.release.publish import distribution, locks, mirror_lock, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.release.publish.files import offer_of
from cairn.release.publish.resolve import closure
from cairn.release.trust import anchor
from cairn.stack import Stack
from cairn.store.protocol import Store
from cairn.wheels import build_statement, wheelset
from cairn.wheels.wheelset import BUILDER_FILE, ClosureFile, WheelSet


def stage_set(  # noqa: PLR0913 - each is one independent part of the request
    store: Store,
    index: str,
    wheel_set: WheelSet,
    wheels: Sequence[Path],
    *,
    manifest: bytes,
    statement: bytes,
    requirements: Sequence[str] = (),
    stack: Stack | None = None,
    attester: Attester | None = None,
    dry_run: bool = False,
    on_step: Progress = silent,
) -> WheelSet:
    """Seal a set with everything it needs, publish it, and return it as it is now.

    Args:
        store: where the index lives.
        index: its name; what the set needs must be in it already.
        wheel_set: the set; one that is sealed already must get the same closure.
        wheels: its files, wherever they lie.
        manifest: what it was built from, in the spelling whose sha256 the set names.
        statement: the builder's, which lies beside set.json as `builder.json`.
        requirements: what the set needs besides what it names itself.
        stack: whose recipe the store gets, and whose lock counts where it has a root; None for neither.
        attester: vouches for where the wheels come from, and by a key for the builder's statement.
        dry_run: refuse what would be refused, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: sets come into the index through the gate alone, or it is of a different family.
        StoreError: the files are not those of the set, not those that the builder says it made, not of the
            manifest's commits, or not all that was split from one; the manifest is a different one; what they
            need is not in the index, or nobody vouches for it; or a sealed set would get another closure.
        SourceError: the stack has moved on since the manifest was frozen.
    """
    rules.refuse_gated(index)
    rules.refuse_other_family(index, wheel_set)
    Ledger(store).refuse_banned([wheel_set])
    recipes.require_in(store, manifest, stack)
    dists = _as_built(wheel_set, wheels, manifest, statement)
    sealed = _sealed(wheel_set, requirements, dists, read_current(target := Index(store, index)))
    if anchor.anchor(store) is not None:
        _refuse_unvouched(sealed, stack, statement, index)
    on_step("comparing the device wheels with what was split")
    _refuse_incomplete(sealed, wheels, dists)
    offer = offer_of(dists, build=sealed.manifest_sha256, entry=(entry := index_set(sealed)))
    offer.checked(target)
    if dry_run:
        return sealed
    recipes.put(store, stack)  # bytes before the set, and the set before the pages that name it
    offer.put(store, on_step)
    set_locks = locks.of_set(sealed, locks.metadata_of(store, sealed))
    write.write_set(store, sealed, manifest, statement, set_locks)
    if attester is not None and attester.signer is not None:
        evidence.sign_builder(store, sealed.id, statement, attester.signer)
    attested = attest(store, sealed, entry, attester, snapshot=read_current(target)) if attester else {}
    offer.commit(target, "stage", attested=attested)
    marks.update_marks(store, sealed.id, "record", indexes=[index])  # staged again, it is what is known of it
    return sealed


def _sealed(
    wheel_set: WheelSet, requirements: Sequence[str], dists: Sequence[Dist], snapshot: Snapshot
) -> WheelSet:
    """Seal a set with its closure from an index; one that was sealed before must get the same closure."""
    platform = Platform(python=wheel_set.python, tag=wheel_set.platform)
    open_set = wheelset.with_requirements(wheel_set, requirements)
    resolved = closure(snapshot, roots=dists, requirements=open_set.requirements, platform=platform)
    if resolved.missing:
        raise StoreError(
            f"{snapshot.index.name} lacks what the set needs: {'; '.join(map(str, resolved.missing))}",
            tip="publish it, or fetch it with cairn index mirror",
        )
    sealed = wheelset.seal(open_set, tuple(_closure_file(snapshot, ref) for ref in resolved.files))
    if wheel_set.set_id not in (None, sealed.set_id):
        raise StoreError(
            f"{snapshot.index.name} would give the set {short_id(wheel_set.id)} a different closure than it "
            "was sealed with",
            tip="build it again, or publish what it was sealed with",
        )
    return sealed


def _refuse_unvouched(sealed: WheelSet, stack: Stack | None, statement: bytes, index: str) -> None:
    """Refuse a set that an index, to which others may write, has given a file that nobody vouches for."""
    built_with = build_statement.decode(statement, name=BUILDER_FILE).sdk
    lock = mirror_lock.of(stack) if stack else None
    believed = stack is None or stack.makes_sdk  # the gate asks again, of the stack
    if problems := tuple(mirror_lock.unvouched(sealed.closure, lock, built_with, believed=believed)):
        first = "" if stack else "name the stack that has the lock, with --stack; "
        raise StoreError(
            f"{index} gives the set what nobody vouches for: {'; '.join(problems)}",
            tip=f"{first}find out who published it before you lock it",
        )


def _refuse_incomplete(sealed: WheelSet, wheels: Sequence[Path], dists: Sequence[Dist]) -> None:
    """Refuse a set whose device wheels are not all those that its wheels need."""
    needs = {dist.name: dist.needs for dist in dists}
    if problems := (*rules.split_problems(sealed, wheels), *locks.absent_devices(sealed, needs)):
        raise StoreError(
            f"the device code of the set is not whole: {'; '.join(dict.fromkeys(problems))}",
            tip="give every wheel of the split with the set, or make a set of the targets that have theirs",
        )


def _closure_file(snapshot: Snapshot, ref: FileRef) -> ClosureFile:
    entry = snapshot.entry(ref)
    of_sdk = mirror_lock.is_of_sdk(project_of(ref.filename))
    return ClosureFile(
        file_name=ref.filename,
        sha256=ref.sha256,
        size=entry.size,
        origin="rocm-sdk" if of_sdk else "mirrored" if entry.build == MIRRORED else "published",
        metadata_sha256=entry.metadata_sha256,
        requires_python=entry.requires_python,
    )


def _as_built(
    wheel_set: WheelSet, wheels: Sequence[Path], manifest: bytes, statement: bytes
) -> tuple[Dist, ...]:
    """Read the set's files; they must match the manifest, and be all that its builder says it made."""
    if hashlib.sha256(manifest).hexdigest() != wheel_set.manifest_sha256:
        raise StoreError(
            "the set was built from a different manifest",
            tip="give the manifest.json that is beside set.json",
        )
    dists = tuple(distribution.read(path) for path in wheels)
    given = {(item.path.name, item.sha256) for item in dists}  # by both: a name may be given twice
    stated = {(wheel.file_name, wheel.sha256) for wheel in wheel_set.wheels}
    if wrong := sorted({name for name, _ in given ^ stated}):
        raise StoreError(
            f"these files are not those of the set: {', '.join(wrong)}",
            tip="give the very files set.json was made of",
        )
    if problems := tuple(build_statement.problems(wheel_set, wheels, manifest=manifest, statement=statement)):
        raise StoreError(
            f"the set is not what its builder says: {'; '.join(problems)}",
            tip="publish what the build has left, unchanged, or build it again",
        )
    return dists
