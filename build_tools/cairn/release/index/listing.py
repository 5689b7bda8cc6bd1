"""Listing a set in an index: its entry, and the change that offers it with everything it needs."""

from __future__ import annotations

import collections
from collections.abc import Mapping

from msgspec import structs

from cairn.release.index.generation import Attested, FileEntry, IndexSet, now, project_of
from cairn.release.index.snapshot import Change, Snapshot, refs_of
from cairn.wheels.wheelset import WheelSet


def index_set(wheel_set: WheelSet) -> IndexSet:
    """A sealed set as an index lists it that takes it now; nothing is said of its tests."""
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
        derived_from=wheel_set.derived_from or "",
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
    entry = structs.replace(entry, installed=sum(unpacked) if all(unpacked) else 0)
    file_names = {wheel.file_name for wheel in wheel_set.wheels}
    fresh: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for ref in refs_of(wheel_set):
        name = project_of(ref.filename)
        file = target.project(name).file(ref.filename)
        new = file
        if file is None:
            new = structs.replace(
                source.entry(ref),
                upload_time=entry.added,
                sets=(),  # but its mark: what is yanked in the source stays so
                untested=entry.untested if ref.filename in file_names else None,
                failed=None,
                provenance=None,
                provenance_kind=None,
            )
        elif ref.filename in file_names and file.untested is not None:
            # What came untested with a different set may have been tested with this one.
            again = entry.untested is None or entry.set_id in file.sets
            new = structs.replace(file, untested=entry.untested) if again else file
        if new is not None and ref.filename in file_names and entry.set_id not in new.sets:
            # With a set that is not yanked, a file that it shares with a yanked one is not yanked either.
            new = structs.replace(
                new, sets=(*new.sets, entry.set_id), yanked=entry.yanked, failed=entry.failed
            )
        if new is not None and attested and ref.filename in attested:
            new = attested[ref.filename].on(new)
        if new is not None and new != file:
            fresh[name].append(new)
    return Change(
        projects={name: target.project(name).with_files(tuple(files)) for name, files in fresh.items()},
        sets={entry.set_id: entry},
    )
