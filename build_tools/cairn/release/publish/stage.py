"""Stage a set: resolve its closure, seal it, and give it an index of its own."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cairn.errors import StoreError
from cairn.output import Progress, silent
from cairn.output.wording import short_id
from cairn.release.index import marks, write
from cairn.release.index.generation import MIRRORED, Attested, FileEntry, FileRef, IndexSet, now, project_of
from cairn.release.index.snapshot import Change, Index, Snapshot, refs_of
from cairn.release.ledger import Ledger
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import Attester, attest
from cairn.release.publish import distribution, locks, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.release.publish.files import offer_of
from cairn.release.publish.mirror_lock import is_of_sdk
from cairn.release.publish.resolve import closure
from cairn.store.protocol import Store
from cairn.wheels import build_statement, wheelset
from cairn.wheels.wheelset import ClosureFile, WheelSet


def stage_set(  # noqa: PLR0913 - each is one independent part of the request
    store: Store,
    index: str,
    wheel_set: WheelSet,
    wheels: Sequence[Path],
    *,
    manifest: bytes,
    statement: bytes,
    requirements: Sequence[str] = (),
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
        attester: who vouches for where the wheels come from, and by a key for the builder's statement; None
            for nobody.
        dry_run: refuse what would be refused, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: sets come into the index through the gate alone, or it is of a different family.
        StoreError: the files are not those of the set, not those that the builder says it made, not of the
            manifest's commits, or not all that was split from one; the manifest is a different one; what they
            need is not in the index; or a sealed set would get another closure.
    """
    rules.refuse_gated(index)
    rules.refuse_other_family(index, wheel_set)
    Ledger(store).refuse_banned([wheel_set])
    dists = _as_built(wheel_set, wheels, manifest, statement)
    sealed = _sealed(wheel_set, requirements, dists, (target := Index(store, index)).load())
    on_step("comparing the device wheels with what was split")
    rules.refuse_incomplete_split(sealed, wheels)
    entry = index_set(sealed)
    offer = offer_of(dists, build=sealed.manifest_sha256, entry=entry)
    offer.checked(target)
    if dry_run:
        return sealed
    # Bytes before the set, and the set before the pages that name it.
    offer.put(store, on_step)
    set_locks = locks.of_set(sealed, locks.metadata_of(store, sealed))
    write.write_set(store, sealed, manifest, statement, set_locks)
    if attester is not None and attester.signer is not None:
        evidence.sign_builder(store, sealed.id, statement, attester.signer)
    attested = attest(store, sealed, entry, attester, snapshot=target.load()) if attester else {}
    offer.commit(target, "stage", attested=attested)
    marks.update_marks(store, sealed.id, "record", indexes=[index])  # staged again, it is what is known of it
    return sealed


def index_set(wheel_set: WheelSet) -> IndexSet:
    """The index entry of a sealed set that was just staged, as untested."""
    return IndexSet(
        set_id=wheel_set.id,
        stack=wheel_set.stack,
        line=wheel_set.line,
        python=wheel_set.python,
        platform=wheel_set.platform,
        family=wheel_set.family,
        targets=wheel_set.targets,
        manifest_sha256=wheel_set.manifest_sha256,
        projects={wheel.distribution: wheel.version for wheel in wheel_set.wheels},
        added=now(),
        download=sum(file.size for file in wheel_set.files),
    )


def change_to_promote(
    source: Snapshot,
    target: Snapshot,
    wheel_set: WheelSet,
    *,
    entry: IndexSet,
    attested: Mapping[str, Attested] | None = None,
) -> Change:
    """The change that offers a set of `source` in `target`, with everything it needs.

    Args:
        source: the index that has it.
        target: the index that is to have it.
        wheel_set: the set.
        entry: the set as `target` is to list it.
        attested: the provenance of the set's own wheels, by file name, where somebody vouches for them.
    """
    unpacked = [source.entry(ref).unpacked for ref in refs_of(wheel_set)]
    entry = msgspec.structs.replace(entry, installed=sum(unpacked) if all(unpacked) else 0)
    own = {wheel.file_name for wheel in wheel_set.wheels}
    fresh: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for ref in refs_of(wheel_set):
        name = project_of(ref.filename)
        listed = target.project(name).file(ref.filename)
        new = listed
        if listed is None:
            new = msgspec.structs.replace(
                source.entry(ref),
                upload_time=entry.added,
                sets=(),  # but its mark: what is yanked in the source stays so
                untested=entry.untested if ref.filename in own else None,
                failed=None,
                provenance=None,
                provenance_kind=None,
            )
        elif ref.filename in own and listed.untested is not None and entry.untested is None:
            # What came untested with a different set has been tested with this one.
            new = msgspec.structs.replace(listed, untested=None)
        if new is not None and ref.filename in own and entry.set_id not in new.sets:
            # With a set that is not yanked, a file that it shares with a yanked one is not yanked either.
            new = msgspec.structs.replace(
                new, sets=(*new.sets, entry.set_id), yanked=entry.yanked, failed=entry.failed
            )
        if new is not None and attested and ref.filename in attested:
            new = attested[ref.filename].on(new)
        if new is not None and new != listed:
            fresh[name].append(new)
    return Change(
        projects={name: target.project(name).with_files(tuple(files)) for name, files in fresh.items()},
        sets={entry.set_id: entry},
    )


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


def _closure_file(snapshot: Snapshot, ref: FileRef) -> ClosureFile:
    entry = snapshot.entry(ref)
    of_sdk = is_of_sdk(project_of(ref.filename))
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
    listed = {(wheel.file_name, wheel.sha256) for wheel in wheel_set.wheels}
    if wrong := sorted({name for name, _ in given ^ listed}):
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
