"""Finding out which GPU targets the libraries of an SDK have no device code for."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping

from cairn.errors import WheelError
from cairn.formats.offload import code_object, databases
from cairn.formats.view import opening
from cairn.rocm.assign_files import Package, PackageMember
from cairn.targets import known_targets, that_run, unbuilt_targets


def missing(package: Package, targets: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """The parts of a package without code for some of its targets, and these.

    A part is a library with device code, or a folder of kernels such as `rocblas/4.4.1/library`. A library
    without any, such as hipBLAS, needs none.

    Args:
        package: the libraries.
        targets: what they are for; features do not count.

    Raises:
        WheelError: the device code of a library is malformed.
    """
    compiled: dict[str, set[str]] = {}
    known = (*known_targets(), *unbuilt_targets())
    for member in package.members:
        if folder := databases.folder_of(member.path):
            if processor := databases.named_processor(member.path, known):
                compiled.setdefault(folder, set()).add(processor)
        elif processors := set(_processors(member)):
            compiled[posixpath.basename(member.path)] = processors
    names = dict.fromkeys(name.partition(":")[0] for name in targets)
    lacks = {}
    for part, processors in compiled.items():
        runs = {each for processor in processors for each in that_run(processor)}
        if absent := tuple(name for name in names if name not in runs):
            lacks[part] = absent
    return lacks


def _processors(member: PackageMember) -> Iterator[str]:
    """What the code in a library is compiled for."""
    if member.binary is None or member.binary.section(code_object.SECTION) is None:
        return
    try:
        with opening(member.source) as view:
            for bundle in code_object.bundles_of(view):
                for entry in bundle.device_entries:
                    yield code_object.target_of_entry(entry.id).processor
    except WheelError as error:
        raise WheelError(f"{member.path}: {error}") from error
