"""The host wheel and the device wheels of a built wheel, in the output folder of a build that asks for them.

Wheels are built, kept in the cache and built against whole: splitting one takes seconds, and how it is split
changes nothing of what is compiled. A note beside the parts says what they were split from, so that a build
with nothing to do leaves them as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from cairn import datafile, files
from cairn.build.model import BuildRequest
from cairn.errors import UsageError
from cairn.output import console
from cairn.rocm import install as rocm
from cairn.stack import Project
from cairn.wheels.split import device_wheel
from cairn.wheels.split.device_wheel import Terms
from cairn.wheels.split.split import split

_SPLITTING = 3  # counted up with each change of what comes of a split


class _Note(datafile.Value, tag_field="schema", tag="cairn.split-parts/1"):
    """The parts in the output folder.

    Attributes:
        whole: sha256 of the wheel that was split.
        terms: the text of the terms it was split by.
        parts: file name to sha256, the host wheel first.
    """

    whole: str
    terms: str
    parts: Mapping[str, str]


def is_split(project: Project, request: BuildRequest) -> bool:
    """Whether a build is to leave host and device wheels of a project."""
    return request.split and project.device_code and not request.for_cpu


def terms_of(request: BuildRequest) -> Terms:
    """The names of a build's device wheels, and their requirements."""
    words = request.stack.device_wheels
    sdk = rocm.device_packages(request.sdk.environment) if request.sdk else None
    return Terms(prefix=words.prefix, sdk=sdk, runtime=words.runtime)


def file_prefix(host: str, request: BuildRequest) -> str:
    """The beginning of the file names of device wheels, up to the processor.

    Args:
        host: the name of the host wheel as its file name has it.
        request: the build.
    """
    return device_wheel.file_prefix(host, "", Terms(prefix=request.stack.device_wheels.prefix))


def parts_of(whole: Path, sha256: str, project: Project, request: BuildRequest) -> tuple[Path, ...]:
    """The parts of a wheel in the output folder, the host wheel first; made unless they are there.

    Args:
        whole: the wheel.
        sha256: of it.
        project: whose it is.
        request: the build.

    Raises:
        WheelError: it cannot be split faithfully.
    """
    folder, terms = request.output_dir, terms_of(request)
    place = folder / f".split-{project.name}.json"
    own_terms = f"{_SPLITTING} {terms}"
    with contextlib.suppress(UsageError, OSError):
        note = datafile.read(place, _Note)
        whole_too = (note.whole, note.terms) == (sha256, own_terms)
        if whole_too and all(files.sha256_of(folder / name) == sum_ for name, sum_ in note.parts.items()):
            return tuple(folder / name for name in note.parts)
    place.unlink(missing_ok=True)
    # A build that did not split has left a link to the whole wheel here, under the name of the host wheel.
    if (link := folder / whole.name).exists() and link.samefile(whole):
        link.unlink()
    console.current().info(f"  splitting {whole.name}")
    parts = split(whole, folder, terms)
    sums = {path.name: files.sha256_of(path) for path in parts}
    datafile.write(place, _Note(whole=sha256, terms=own_terms, parts=sums))
    return parts
