"""Taking the code for other targets out of a bundled library, as splitting a wheel does.

In a plain offload bundle the entries of other targets become entries for nobody and their code becomes zeros,
which cost next to nothing in a wheel. A compressed bundle stays whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cairn.formats.offload import code_object, strip
from cairn.formats.offload.bundle import Bundle, Entry
from cairn.formats.offload.strip import Patch
from cairn.formats.view import BytesView
from cairn.targets import TargetId
from cairn.wheels.fat import target_names
from cairn.wheels.fat.binaries import Binary

_MOST_ZEROS = 40  # times what is left of a library


def trimmed(binary: Binary, wanted: Sequence[TargetId]) -> Binary:
    """What is left of a library's code once that for other targets is taken out.

    Where next to nothing of the library would be left, it stays as it is: a file of zeros unpacks to so many
    times its size that readers of wheels take it for a bomb.
    """
    kept = tuple(c for c in binary.codes if c.compressed or target_names.serves((c.target,), wanted))
    gone = tuple(code for code in binary.codes if code not in kept)
    left = binary.size - sum(code.size for code in gone)
    if left * _MOST_ZEROS < binary.size:
        return binary
    return replace(binary, codes=kept, trimmed=gone)


def trim(path: Path, wanted: Sequence[TargetId]) -> None:
    """Take it out of the file at `path`, which must be the caller's own copy.

    Raises:
        WheelError: a bundle is malformed.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = BytesView(data)
        found = list(strip.bundles_of(view))
    strip.apply(path, [patch for bundle in found for patch in _patches(bundle, wanted)])


def _patches(bundle: Bundle, wanted: Sequence[TargetId]) -> Iterator[Patch]:
    if bundle.packing is not None:
        return
    others = [
        e
        for e in bundle.device_entries
        if not target_names.serves((code_object.target_of_entry(e.id),), wanted)
    ]
    kept = [entry for entry in bundle.entries if entry not in others]
    for entry in others:
        yield Patch(at=bundle.at + entry.id_at, size=len(strip.INERT_PREFIX), data=strip.INERT_PREFIX)
        if entry.offset >= bundle.table_size and not any(_overlap(entry, other) for other in kept):
            yield Patch(at=bundle.at + entry.offset, size=entry.size)


def _overlap(one: Entry, other: Entry) -> bool:
    return one.offset < other.offset + other.size and other.offset < one.offset + one.size
