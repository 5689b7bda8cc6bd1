"""Publish wheels and sdists in an index: check them, put their bytes, then commit.

Of the wheel variants of a version, one file says what each is for (PEP 825). It lies under the digest of its
bytes, as wheels do, and every variant of the version names it. So a page never leads to a file of a different
state; one more variant is a new file and a new generation.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import StoreError, WheelError
from cairn.output import Progress, silent
from cairn.release.index import keys
from cairn.release.index.commit import attempts
from cairn.release.index.generation import (
    MIRRORED,
    PUBLISHED,
    Action,
    Attested,
    FileEntry,
    IndexSet,
    VariantsFile,
    now,
    variants_of,
)
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.ledger import Ledger, NameTakenError
from cairn.release.publish import distribution, rules
from cairn.release.publish.distribution import Dist
from cairn.store import transfer
from cairn.store.protocol import Store, keep_young, write_young
from cairn.wheels.metadata import variants as variant_files
from cairn.wheels.metadata.variants import Variants


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The result of publishing.

    Attributes:
        added: the files that are new in the index.
        already: names of those that were there, with the same bytes.
        unserved: extras for GPUs of new files that cannot be installed, each with the wheels that it lacks.
    """

    added: tuple[FileEntry, ...]
    already: tuple[str, ...] = ()
    unserved: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


def publish(
    store: Store,
    index: str,
    files: Sequence[Path],
    *,
    dry_run: bool = False,
    on_step: Progress = silent,
) -> Published:
    """Offer wheels and sdists in an index.

    Args:
        store: where the index lives.
        index: its name.
        files: the distributions; those that are there with the same bytes are left as they are.
        dry_run: say what would be added, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: sets come into the index through the gate alone.
        NameTakenError: a name is taken by other bytes, or a version by a different build.
        StoreError: a file is neither a wheel nor an sdist, or `rules` refuses its name or metadata.
        WheelError: a wheel is malformed.
    """
    rules.refuse_gated(index)
    dists = tuple(distribution.read(path) for path in files)
    return publish_dists(Index(store, index), dists, "publish", dry_run=dry_run, on_step=on_step)


def publish_dists(
    index: Index,
    dists: Sequence[Dist],
    action: Action,
    *,
    build: str = PUBLISHED,
    dry_run: bool = False,
    on_step: Progress = silent,
) -> Published:
    """Like `publish`, for distributions that were read already, and for any index.

    Args:
        index: the index.
        dists: what it is to offer.
        action: which command asks.
        build: what the versions of the files belong to (`FileEntry.build`).
        dry_run: say what would be added, and write nothing.
        on_step: called with what is being done.
    """
    offer = offer_of(dists, build=build)
    published = offer.checked(index)
    if dry_run:
        return published
    offer.put(index.store, on_step)
    return offer.commit(index, action)


def offer_of(dists: Sequence[Dist], *, build: str = PUBLISHED, entry: IndexSet | None = None) -> Offer:
    """An offer of these distributions, with the `entry` of the set that they are; else as `publish_dists`.

    Raises:
        NameTakenError: one name is given with different bytes.
        StoreError: no index takes one of them.
    """
    offer = Offer(dists=_each_once(dists), build=build, entry=entry)
    _check(offer.dists, build)
    return offer


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Distributions to publish in an index, all of them or none.

    Attributes:
        dists: each once.
        build: what their versions belong to (`FileEntry.build`).
        entry: the set that they are, where they are one.
        taken: when they came, RFC 3339 in UTC.
    """

    dists: tuple[Dist, ...]
    build: str
    entry: IndexSet | None
    taken: str = msgspec.field(default_factory=now)

    def checked(self, index: Index) -> Published:
        """Check the offer against an index; return what it would add. Nothing is written.

        Raises:
            GateError: the set was yanked.
            NameTakenError: a name is taken by other bytes, or had other bytes once, or a version is of a
                different build.
            StoreError: wheel variants of one version contradict each other.
        """
        _, published, _ = self._proposed(read_current(index), {})
        self._refuse_remembered(index)
        return published

    def put(self, store: Store, on_step: Progress = silent) -> None:
        """Put the files with their metadata, before any page names them; a second call repairs damage."""
        sources = {keys.file_key(item.sha256, item.path.name): item.path for item in self.dists}
        # A file that somebody has written to since it was checked is refused: its key says what was checked.
        sha256s = {keys.file_key(item.sha256, item.path.name): item.sha256 for item in self.dists}
        # Before it is found to be there, so that it is not collected while the others are sent.
        side_by_side(lambda key: keep_young(store, key), sources)
        transfer.put_files(
            store, sources, sha256s=sha256s, on_progress=lambda progress: on_step(str(progress))
        )
        sidecars = {keys.sidecar_key(item.sha256, item.path.name): item.metadata for item in self.dists}
        side_by_side(lambda item: write_young(store, *item), sidecars.items())

    def commit(
        self, index: Index, action: Action, *, attested: Mapping[str, Attested] | None = None
    ) -> Published:
        """Commit the files that were put to an index.

        Args:
            index: the index.
            action: which command asks.
            attested: the provenance of files, by file name, where somebody vouches for them.

        Raises:
            GateError, NameTakenError, StoreError: as for `checked`, by what the index has by now.
        """
        for attempt in attempts(index):
            change, published, objects = self._proposed(attempt.before, attested or {})
            for key, data in objects.items():
                write_young(index.store, key, data)
            if attempt.commit(change, action):
                break
        return published

    def _proposed(
        self, snapshot: Snapshot, attested: Mapping[str, Attested]
    ) -> tuple[Change, Published, Mapping[str, bytes]]:
        """The change that publishes the offer, its result, and the descriptions of wheel variants by key.

        Raises:
            NameTakenError: a name is taken by other bytes, or a version by a different build.
            StoreError: wheel variants of one version contradict each other, or a wheel comes without those
                that its extras for GPUs name.
        """
        fresh: dict[str, list[FileEntry]] = collections.defaultdict(list)
        already, taken_names, entry = [], [], self.entry
        for item in self.dists:
            present = snapshot.project(item.name).file(item.path.name)
            if present is not None and present.sha256 != item.sha256:
                taken_names.append(item.path.name)
            file = present or _entry(item, self.taken, self.build)
            offered = _with_set(file, entry, attested.get(item.path.name))
            if offered != present:
                fresh[item.name].append(offered)
            else:
                already.append(item.path.name)
        if taken_names:
            raise NameTakenError(
                f"{snapshot.index.name} has other bytes under {', '.join(sorted(taken_names))}",
                tip="a published name never changes its bytes: build it again under a new version",
            )
        if second := rules.second_builds(snapshot, [file for files in fresh.values() for file in files]):
            raise NameTakenError(
                f"{snapshot.index.name} cannot have these too: {'; '.join(second)}",
                tip="build it again under a new version: pip would mix what was tested apart",
            )
        variants = {item.path.name: item.variant for item in self.dists if item.variant is not None}
        by_project = {name: _list_variants(snapshot, name, fresh[name], variants) for name in fresh}
        objects = {key: data for _, needed in by_project.values() for key, data in needed.items()}
        change = Change(
            projects={
                name: snapshot.project(name).with_files((*fresh[name], *by_project[name][0]))
                for name in fresh
            },
            sets={entry.set_id: entry} if entry is not None and not snapshot.has_set(entry.set_id) else {},
        )
        added = tuple(file for name in sorted(fresh) for file in fresh[name])
        unserved = self._unserved(snapshot, {file.filename for file in added})
        return change, Published(added=added, already=tuple(already), unserved=unserved), objects

    def _unserved(self, snapshot: Snapshot, added: Collection[str]) -> Mapping[str, Sequence[str]]:
        """The extras that cannot be installed; of sets the gate asks, and of mirrored files the lock."""

        def has(requirement: Requirement) -> bool:
            name = canonicalize_name(requirement.name)
            versions = [item.version for item in self.dists if item.name == name]
            versions += [file.version for file in snapshot.project(name).files if file.yanked is None]
            return any(requirement.specifier.contains(version, prereleases=True) for version in versions)

        if self.entry is not None or self.build != PUBLISHED:
            return {}
        unserved, problems = rules.unserved(
            ((item.path.name, item.needs) for item in self.dists if item.path.name in added), has
        )
        if problems:
            raise StoreError(
                f"not published: {'; '.join(problems)}",
                tip="give the wheels that it lacks to the same command, or publish them first: cairn index "
                f"publish FILE … --index {snapshot.index.name}",
            )
        return unserved

    def _refuse_remembered(self, index: Index) -> None:
        """Refuse the offer if the ledger bans it, before the commit would.

        Raises:
            GateError: the set was yanked.
            NameTakenError: a name had other bytes once.
        """
        ledger = Ledger(index.store)
        ledger.refuse_banned([self.entry] if self.entry is not None else ())
        here, sha256_by_set, others = read_current(index), {}, []
        if self.entry is None:
            new = (item for item in self.dists if here.project(item.name).file(item.path.name) is None)
            others = [item.sha256 for item in new]
        elif not here.has_set(self.entry.set_id):
            sha256_by_set = {self.entry.set_id: [item.sha256 for item in self.dists]}
        taken = {index.name: [item.ref for item in self.dists]}
        ledger.refuse_banned_files(sha256_by_set, others, files_by_index=taken)


def _each_once(dists: Sequence[Dist]) -> tuple[Dist, ...]:
    """The distributions without repetitions.

    Raises:
        NameTakenError: one name has different bytes, of which an installer would take either.
    """
    by_name: dict[str, Dist] = {}
    for item in dists:
        first = by_name.setdefault(item.path.name, item)
        if first.sha256 != item.sha256:
            raise NameTakenError(
                f"{item.path.name} is given more than once, with different bytes: {first.path}, {item.path}",
                tip="give the one that is meant",
            )
    return tuple(by_name.values())


def _check(dists: Sequence[Dist], build: str) -> None:
    """Refuse distributions that no index takes; the error names all of them."""
    problems = [
        problem
        for item in dists
        for problem in (
            *rules.name_problems(item.path.name, build=build),
            *rules.metadata_problems(item.path.name, item.metadata, build=build),
        )
    ]
    if problems:
        raise StoreError(
            f"not published: {'; '.join(problems)}",
            tip="mirror a different version: --require 'NAME!=VERSION'"
            if build == MIRRORED
            else "build it again under a new version, with a name and metadata that are plain",
        )
    # No gate will look at wheel variants, which may lack something of what was split.
    for path in (item.path for item in dists if item.variant is not None):
        from cairn.wheels.split import completeness  # noqa: PLC0415 - a third of the start, for few wheels

        problems += completeness.variant_problems(path)
    if problems:
        raise StoreError(
            f"not published: {'; '.join(problems)}", tip="split the whole wheel again, with --variants"
        )


def _with_set(file: FileEntry, entry: IndexSet | None, attested: Attested | None) -> FileEntry:
    if entry is not None and entry.set_id not in file.sets:
        sets = (*file.sets, entry.set_id)
        file = structs.replace(file, sets=sets, yanked=entry.yanked, failed=entry.failed)
    return attested.on(file) if attested else file


def _entry(item: Dist, taken: str, build: str) -> FileEntry:
    return FileEntry(
        filename=item.path.name,
        sha256=item.sha256,
        size=item.size,
        unpacked=item.unpacked,
        version=item.version,
        upload_time=taken,
        build=build,
        needs=tuple(sorted({str(canonicalize_name(r.name)) for r in item.needs.requires})),
        requires_python=item.requires_python,
        # An sdist that decides late must be built to be known: its PKG-INFO would mislead a resolver.
        metadata_sha256=hashlib.sha256(item.metadata).hexdigest() if item.needs.reliable else None,
    )


def _list_variants(
    snapshot: Snapshot, project: str, fresh: Sequence[FileEntry], contents: Mapping[str, Variants]
) -> tuple[tuple[FileEntry, ...], Mapping[str, bytes]]:
    """The variants that come to a project, each naming the file about all of its version.

    Returned are their entries, with those of the same versions that are there, and by key what the store must
    have before a page names it.

    Args:
        snapshot: the index that they come to.
        project: their project.
        fresh: the files that come; those that are not variants are passed over.
        contents: what each variant says of itself, by file name.

    Raises:
        StoreError: variants of one version contradict each other, or what the index says of them is lost.
    """
    coming = [file for file in fresh if file.filename in contents]
    entries: dict[str, FileEntry] = {}
    objects: dict[str, bytes] = {}
    for version in dict.fromkeys(file.version for file in coming):
        present = [f for f in snapshot.project(project).files if f.version == version and f.variants]
        mine = [file for file in coming if file.version == version]
        stored = [keys.file_key(variant.sha256, variant.filename) for variant in variants_of(present)]
        whole = [variant_files.loads(snapshot.index.store.read(key).data, name=key) for key in stored]
        together, *others = [*whole, *(contents[file.filename] for file in mine)]
        try:
            for labelled in others:
                together = variant_files.merged(together, labelled)
        except WheelError as error:
            names = ", ".join(file.filename for file in mine)
            raise StoreError(
                f"{snapshot.index.name} cannot have {names}: {error}",
                tip="make all variants of a version in one way, or build them under a new version",
            ) from error
        data = datafile.dumps(together).encode()
        made = VariantsFile(
            filename=variant_files.index_file_name(mine[0].filename),
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
        )
        objects[keys.file_key(made.sha256, made.filename)] = data
        for file in (*present, *mine):
            entries[file.filename] = structs.replace(file, variants=made)
    return tuple(entries.values()), objects
