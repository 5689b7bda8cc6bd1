"""Device code in separate packages: for the wheels of a build, and for the libraries of a ROCm SDK.

Wheels are built, kept in the cache and built against whole: splitting one takes seconds, and how it is split
changes nothing of what is compiled. A note beside the parts says what they were split from, so that a build
with nothing to do leaves them as they are.

Of an SDK, `rocm-sdk-libraries` then serves all targets, and `rocm-sdk-device-<processor>` has what only one
needs: the code of the libraries as kpack archives, and the databases of rocBLAS, hipBLASLt and MIOpen.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from cairn import datafile, files
from cairn.build.model import BuildRequest
from cairn.errors import UsageError, WheelError
from cairn.output import Progress, console, silent
from cairn.rocm import install as rocm
from cairn.rocm import package as sdk
from cairn.rocm.package import PackageRequest, WrittenPackage
from cairn.stack import Project
from cairn.wheels.metadata import wheel_info
from cairn.wheels.split import device_wheel
from cairn.wheels.split.device_wheel import SDK, Terms
from cairn.wheels.split.split import split

_LIBRARIES = "rocm-sdk-libraries"

_SPLITTING = 4  # counted up with each change of what comes of a split


class _Note(datafile.Value, tag_field="schema", tag="cairn.split-parts/1"):
    """The note on the parts in the output folder.

    Attributes:
        whole: sha256 of the wheel that was split.
        terms: the text of the terms it was split by.
        parts: file name to sha256, the host wheel first.
    """

    whole: str
    terms: str
    parts: Mapping[str, str]


def is_split(project: Project, request: BuildRequest) -> bool:
    """Whether a build splits a project's wheel into host and device wheels."""
    return request.split and project.device_code and not request.for_cpu


def terms_of(request: BuildRequest) -> Terms:
    """Return the naming and the requirements of a build's device wheels."""
    words = request.stack.device_wheels
    sdk = rocm.device_packages(request.sdk.environment) if request.sdk else None
    return Terms(prefix=words.prefix, sdk=sdk, runtime=words.runtime)


def file_prefix(host: str, request: BuildRequest) -> str:
    """Return the beginning of the file names of device wheels, up to the processor.

    Args:
        host: the name of the host wheel as its file name has it.
        request: the build.
    """
    return device_wheel.file_prefix(host, "", Terms(prefix=request.stack.device_wheels.prefix))


def parts_of(whole: Path, sha256: str, project: Project, request: BuildRequest) -> tuple[Path, ...]:
    """Split a wheel into the output folder, unless already done; return its parts, the host wheel first.

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


def package_sdk(request: PackageRequest, *, say: Progress = silent) -> tuple[WrittenPackage, ...]:
    """Make the packages of an SDK, with the device code of its libraries in separate packages.

    Args:
        request: with `libraries_for_all`.
        say: progress callback.

    Raises:
        UsageError: the tree, its description, the version or the targets make no sense.
        WheelError: a file needs a library that nothing provides, or the libraries lack the code for a target.
    """
    # An SDK that lacks a part is none, and what an earlier run has left stays whole.
    with (
        files.filling(request.output_dir) as made,
        tempfile.TemporaryDirectory(prefix=".split.", dir=made) as scratch,
    ):
        packages: list[WrittenPackage] = []
        whole = sdk.package(structs.replace(request, output_dir=Path(scratch)), say=say)
        for item in whole:
            if item.distribution != _LIBRARIES:
                packages.append(item)
                continue
            say(f"split {item.path.name}")
            host, *devices = split(item.path, Path(scratch, "parts"), SDK)
            _require_all(host, whole[-1].path)
            parts = [
                sdk.written(path, wheel_info.read(path).name, 0, dry_run=False) for path in (host, *devices)
            ]
            packages += [structs.replace(parts[0], files=item.files, lacks=item.lacks), *parts[1:]]
        for item in packages:
            item.path.replace(made / item.path.name)
    return tuple(structs.replace(item, path=request.output_dir / item.path.name) for item in packages)


def _require_all(host: Path, sdist: Path) -> None:
    """Require a device wheel for each target, since the package `rocm` offers an extra for each."""
    with tarfile.open(sdist) as archive:
        name = next(name for name in archive.getnames() if name.endswith("/rocm_sdk/_dist.json"))
        described = archive.extractfile(name)
        assert described is not None  # noqa: S101 - it is a file
        targets = json.load(described)["devices"].keys()
    if missing := sorted(targets - set(wheel_info.read(host).extras)):
        raise WheelError(
            f"the ROCm libraries have no code for {', '.join(missing)}",
            tip="name the targets that they were compiled for: --targets",
        )
