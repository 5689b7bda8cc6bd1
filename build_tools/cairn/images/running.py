"""Running an image: with the machine's GPUs, and with a folder of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cairn import process
from cairn.images.engines import Engine

KFD = Path("/dev/kfd")
DRI = Path("/dev/dri")
WORK = "/work"  # where a folder of the machine is in the container
_GPU_GROUPS = ("video", "render")
_OPEN_FILES = 65536  # a link of torch opens some thousands; the default of an engine may be 1,024


@dataclass(frozen=True, kw_only=True)
class ImageRun:
    """What to run.

    Attributes:
        image: its name.
        engine: by which program.
        command: what to run in it; nothing for a shell.
        gpu: give it the machine's GPUs.
        gpu_groups: numbers of the groups that own the devices of the GPUs on this machine.
        folder: of this machine, to be `/work` and the working folder; None for none.
        user: number of the user and of the group to run as; None for whom the image names.
        open_files: how many files a process in it may have open.
        terminal: it is run by somebody who types.
    """

    image: str
    engine: Engine
    command: tuple[str, ...] = ()
    gpu: bool
    gpu_groups: tuple[int, ...] = ()
    folder: Path | None = None
    user: tuple[int, int] | None = None
    open_files: int = _OPEN_FILES
    terminal: bool = True


def has_gpu() -> bool:
    """Whether this machine has the devices that ROCm opens."""
    return KFD.exists() and DRI.exists()


def gpu_groups(devices: Iterable[Path] | None = None) -> tuple[int, ...]:
    """The groups that own the devices of GPUs: in the container they may have other names, or none."""
    arguments = {}
    for device in (KFD, *sorted(DRI.glob("render*"))) if devices is None else devices:
        try:
            arguments[device.stat().st_gid] = device
        except OSError:
            continue
    return tuple(gid for gid in arguments if gid != 0)


def commands(run: ImageRun, *, name: str) -> tuple[tuple[str, ...], ...]:
    """The command lines, of which the last but those that clean up is the program's own.

    Args:
        run: what to run.
        name: for the container, where it must have one: buildah makes, uses and removes it by three commands.
    """
    inside = run.command or ("/bin/bash",)
    if run.engine == "buildah":
        seat = ("--tty",) if run.terminal else ()
        where = ("--workingdir", WORK) if run.folder else ()
        who = ("--user", f"{run.user[0]}:{run.user[1]}") if run.user else ()
        volume = ("--volume", f"{run.folder}:{WORK}") if run.folder else ()
        return (
            ("buildah", "from", "--name", name, *_limits(run), run.image),
            ("buildah", "run", *seat, *volume, *where, *who, name, "--", *inside),
            ("buildah", "rm", name),
        )
    words = [run.engine, "run", "--rm", *(("-it",) if run.terminal else ()), *_limits(run)]
    if run.folder:
        words += ["--volume", f"{run.folder}:{WORK}", "--workdir", WORK]
    if run.engine == "podman":
        words += ["--userns=keep-id"] if run.user else []
    elif run.user:
        # The folder is this user's; the image may know nobody of the number, who then has no home.
        words += ["--user", f"{run.user[0]}:{run.user[1]}", "--env", "HOME=/tmp"]
    return ((*words, run.image, *run.command),)


def _limits(run: ImageRun) -> tuple[str, ...]:
    words = ["--ulimit", f"nofile={run.open_files}:{run.open_files}"]
    if not run.gpu:
        # What torch's data loaders share; an engine's default is 64 MB.
        return (*words, "--shm-size=2g")
    groups = [*_GPU_GROUPS, *map(str, run.gpu_groups)]
    return (
        f"--device={KFD}",
        f"--device={DRI}",
        "--ipc=host",  # ROCm's processes share memory, and so do torch's data loaders
        *(f"--group-add={group}" for group in groups),
        *words,
    )


def this_user() -> tuple[int, int] | None:
    """Our user and group, where the files we make should belong to somebody else than root."""
    if not hasattr(os, "getuid") or os.getuid() == 0:
        return None
    return os.getuid(), os.getgid()


def open_files(engine: Engine) -> int:
    """How many files to allow: docker's daemon may raise our limit, the other two run under it."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return _OPEN_FILES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = engine == "docker" or hard == resource.RLIM_INFINITY
    return _OPEN_FILES if unlimited else min(_OPEN_FILES, hard)


def start(run: ImageRun, *, name: str) -> int:
    """Run it with our terminal; gives the exit code of the program in it."""
    if run.engine != "buildah":
        return process.interactive(*commands(run, name=name))
    make, use, remove = commands(run, name=name)
    process.run(make)
    try:
        return process.interactive(use)
    finally:
        process.run(remove)
