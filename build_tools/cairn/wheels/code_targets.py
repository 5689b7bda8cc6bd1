"""Which targets a wheel has device code for, wherever in it that lies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cairn.targets import in_order
from cairn.wheels import device, inspect, offload, pe_inspect
from cairn.wheels.archive import Archive
from cairn.wheels.inspect import Library
from cairn.wheels.pe_inspect import PeLibrary
from cairn.wheels.unpacking import ViewReader
from cairn.wheels.views import MemberView


def targets_of(wheel: Path) -> tuple[str, ...]:
    """The targets that a wheel has device code for, sorted; none when it has no device code.

    Raises:
        WheelError: the archive or a binary is malformed.
    """
    with Archive.open(wheel) as archive:
        return all_targets(archive, (*inspect.read_libraries(archive), *pe_inspect.read_libraries(archive)))


def all_targets(archive: Archive, libraries: Iterable[Library | PeLibrary]) -> tuple[str, ...]:
    """The targets of a wheel whose binaries have been read: theirs and those of containers.

    Raises:
        WheelError: a container is malformed.
    """
    found = {target for library in libraries for target in library.targets}
    for member in archive.members:
        if member.name.endswith(device.SUFFIX):
            view = MemberView(archive, member)
            container = device.parse(ViewReader(view, 0, view.size), member.name)
            ids = (code.id for part in container.parts for code in part.codes)
            found |= {str(offload.target_of(name)) for name in ids}
    return in_order(found)
