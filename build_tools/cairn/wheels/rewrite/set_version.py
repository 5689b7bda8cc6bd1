"""Giving wheels new versions, so that those that are changed together still fit each other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from cairn.errors import WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.wheels.metadata import rocm_version as metadata_rocm_version
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import repin, version_files, wheel
from cairn.wheels.rewrite.options import NewVersion
from cairn.wheels.rewrite.repin import RenamedWheel, RocmChange
from cairn.wheels.rewrite.wheel import Edit


@dataclass(frozen=True, kw_only=True)
class Change:
    """What changes in one wheel.

    Attributes:
        source: the wheel.
        target: where the new one is.
        old: its version so far.
        new: its new version.
        requirements: those that follow, as they were written and as they are now.
        files: files inside that state the new version.
    """

    source: Path
    target: Path
    old: str
    new: str
    requirements: Mapping[str, str]
    files: tuple[str, ...]


def set_versions(
    wheels: Sequence[Path], request: NewVersion, output_dir: Path, *, dry_run: bool = False
) -> tuple[Change, ...]:
    """Write wheels under their new versions into `output_dir`, all of them or none.

    METADATA, WHEEL, RECORD, folder and file names change together, the exact pins among the wheels and on the
    ROCm SDK follow, and so do the files inside that state a version. The bill of materials still says with
    which ROCm a wheel was built.

    Raises:
        WheelError: a wheel cannot be read, or has a pin or a file that cannot follow (the message names it).
    """
    for path in wheels:
        wheel_info.parse_file_name(path.name)
    with ExitStack() as stack, collector_paused():
        archives = [stack.enter_context(Archive.open(path)) for path in wheels]
        infos = list(map(wheel_info.read_archive, archives))
        versions = [_new_version(info, request) for info in infos]
        siblings: dict[str, dict[str, str]] = {}
        for info, new in zip(infos, versions, strict=True):
            siblings.setdefault(info.distribution, {})[info.version] = new
        edits = [
            _edit(archive, _renamed(info, new, request, siblings), info, request)
            for archive, info, new in zip(archives, infos, versions, strict=True)
        ]
        targets = [output_dir / wheel.new_name(info, e) for info, e in zip(infos, edits, strict=True)]
        _check_targets(wheels, targets)
        if not dry_run:
            output_dir.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".edit.", dir=output_dir)))
            changes = [
                wheel.apply_to(archive, info, e, folder)
                for archive, info, e in zip(archives, infos, edits, strict=True)
            ]
            # All are made before one is moved into place.
            for path, target in zip(changes, targets, strict=True):
                path.replace(target)
        return tuple(
            Change(
                source=info.path,
                target=target,
                old=info.version,
                new=new,
                requirements=dict(edited.rewrite_requirements),
                files=tuple(sorted(edited.replace_files)),
            )
            for info, target, new, edited in zip(infos, targets, versions, edits, strict=True)
        )


def _new_version(info: WheelInfo, request: NewVersion) -> str:
    if request.stage is not None:
        return metadata_rocm_version.promote(info.version, request.stage)
    if request.rocm_version is None:
        return str(wheel_info.parsed_version(request.version or ""))
    if repin.is_sdk(info.distribution):
        metadata_rocm_version.channel_of(request.rocm_version)
        return str(Version(request.rocm_version))
    return metadata_rocm_version.with_rocm(info.version, request.rocm_version)


def _renamed(
    info: WheelInfo, new: str, request: NewVersion, siblings: Mapping[str, Mapping[str, str]]
) -> RenamedWheel:
    if repin.is_sdk(info.distribution):
        old_rocm, new_rocm = info.version, new
    else:
        old_rocm, new_rocm = (
            metadata_rocm_version.rocm_version_of(info.version) or "",
            metadata_rocm_version.rocm_version_of(new) or "",
        )
    changes = bool(new_rocm) and (request.rocm_version is not None or old_rocm != new_rocm)
    return RenamedWheel(
        file_name=info.file_name,
        distribution=info.distribution,
        old=info.version,
        new=new,
        rocm=RocmChange(old=old_rocm or None, new=new_rocm) if changes else None,
        siblings=siblings,
        required={wheel_info.required_name(text) for text in request.requires},
    )


def _edit(archive: Archive, renamed: RenamedWheel, info: WheelInfo, request: NewVersion) -> Edit:
    requires = parse_headers(info.metadata, name="METADATA").all("Requires-Dist")
    own = set(map(wheel_info.required_name, requires))
    # Requirements are given for all wheels at once; the wheel that one names does not require itself.
    requirements: dict[str, list[str]] = {}
    for text in request.requires:
        if (name := wheel_info.required_name(text)) != info.distribution:
            requirements.setdefault(name, []).append(text)
    replaced = {name: texts.pop(0) for name, texts in requirements.items() if name in own}
    return Edit(
        version=renamed.new,
        build=request.build,
        rewrite_requirements=repin.repinned(requires, renamed),
        replace_requirements=replaced,
        add_requirements=tuple(text for texts in requirements.values() for text in texts),
        replace_files=version_files.rewritten(
            archive, info.distribution, renamed.old, renamed.new, renamed.rocm
        ),
    )


def _check_targets(wheels: Sequence[Path], targets: Sequence[Path]) -> None:
    for target in targets:
        if targets.count(target) > 1:
            raise WheelError(
                f"two wheels would both be named {target.name}", tip="give one version to one wheel at a time"
            )
        writer.refuse_source(target, wheels)
