"""What an index says of the wheel variants of a version, in one file that names them all (PEP 825).

The file lies under the digest of its bytes, as wheels do, and every variant of the version names it. So a
page never leads to a file of a different state; one more variant is a new file and a new generation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cairn import datafile
from cairn.errors import StoreError, WheelError
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, VariantsFile, variants_of
from cairn.release.index.snapshot import Snapshot
from cairn.wheels.metadata import variants
from cairn.wheels.metadata.variants import Variants


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Wheel variants as their index is to list them.

    Attributes:
        entries: those that come, and those of the same versions that are there.
        objects: what the store must have before a page names it, by key.
    """

    entries: tuple[FileEntry, ...]
    objects: Mapping[str, bytes]


def listed(
    snapshot: Snapshot, project: str, fresh: Sequence[FileEntry], contents: Mapping[str, Variants]
) -> Listed:
    """The variants that come to a project, each naming the file about all of its version.

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
        whole = [_known(snapshot, file) for file in variants_of(present)]
        together, *others = [*whole, *(contents[file.filename] for file in mine)]
        try:
            for other in others:
                together = variants.merged(together, other)
        except WheelError as error:
            names = ", ".join(file.filename for file in mine)
            raise StoreError(
                f"{snapshot.index.name} cannot have {names}: {error}",
                tip="make all variants of a version in one way, or build them under a new version",
            ) from error
        data = datafile.dumps(together).encode()
        made = VariantsFile(
            filename=variants.index_file_name(mine[0].filename),
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
        )
        objects[keys.file_key(made.sha256, made.filename)] = data
        for file in (*present, *mine):
            entries[file.filename] = msgspec.structs.replace(file, variants=made)
    return Listed(entries=tuple(entries.values()), objects=objects)


def _known(snapshot: Snapshot, file: VariantsFile) -> Variants:
    key = keys.file_key(file.sha256, file.filename)
    return variants.loads(snapshot.index.store.read(key).data, name=key)
