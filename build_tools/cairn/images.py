"""Container images: the Dockerfiles of `dockerfiles/`, and the commands that build, push and run them.

It takes the name of an image and gives command lines for docker, podman or buildah, whichever is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from cairn import process, shipped
from cairn.errors import PrerequisiteError, ProcessError, StoreError, UsageError
from cairn.image_engines import ENGINES, Engine
from cairn.output import Progress, wording

SUFFIX = ".Dockerfile"
FOLDER = "dockerfiles"
SECRET = "pip.conf"  # noqa: S105 - the name under which a Dockerfile finds pip's configuration
_REVISION = "org.opencontainers.image.revision"
_SOURCE = "org.opencontainers.image.source"
_ARGUMENT = re.compile(r"^ARG ([A-Za-z_][A-Za-z0-9_]*)(?:=(\S*))?\s*$", re.MULTILINE)
KFD = Path("/dev/kfd")
DRI = Path("/dev/dri")
WORK = "/work"  # where a folder of the machine is in the container
_GPU_GROUPS = ("video", "render")
_OPEN_FILES = 65536  # a link of torch opens some thousands; the default of an engine may be 1,024
_UNPRIVILEGED = ("--security-opt", "no-new-privileges")
_TIMEOUT = 20  # seconds that an engine may take to say its version; docker asks its daemon


def choose_engine(chosen: Engine | None) -> Engine:
    """The engine to use: the one named, else the first on this machine that answers.

    Raises:
        PrerequisiteError: it is not here, or none of them is.
    """
    if chosen is not None:
        if shutil.which(chosen) is None:
            raise PrerequisiteError(f"{chosen} is not on this machine", tip=install_line(chosen))
        return chosen
    present = [name for name in ENGINES if shutil.which(name)]
    for name in present:
        if _answers(name):
            return name
    if present:
        raise PrerequisiteError(
            f"{present[0]} is here, but does not answer",
            tip="start its service and join its group (sudo usermod -aG docker $USER), or install podman",
        )
    raise PrerequisiteError(
        "none of docker, podman and buildah is on this machine", tip=install_line("podman")
    )


def likely_engine(chosen: Engine | None) -> Engine:
    """The engine whose command lines to show: the one named, else the first that is here, else docker."""
    if chosen is not None:
        return chosen
    return next((name for name in ENGINES if shutil.which(name)), "docker")


def install_line(name: Engine) -> str:
    """How to install an engine."""
    package = {"docker": "docker.io"}.get(name, name)
    return f"install it, on Debian and Ubuntu: apt install {package}"


def _answers(name: Engine) -> bool:
    try:
        process.run([name, "version"], timeout=_TIMEOUT, confined=False)
    except (PrerequisiteError, ProcessError):
        return False
    return True


class Dockerfile(msgspec.Struct, frozen=True, kw_only=True):
    """A Dockerfile.

    Attributes:
        path: of the file; the image is called like it. What it copies is beside it.
        text: the whole of it.
    """

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The name of the image."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def arguments(self) -> Mapping[str, str]:
        """Its build arguments with their defaults; one that is declared again keeps its first."""
        arguments: dict[str, str] = {}
        for name, default in _ARGUMENT.findall(self.text):
            arguments[name] = arguments.get(name) or default
        return arguments


def dockerfiles_folder(start: Path) -> Path:
    """The `dockerfiles/` of a folder or of one above it, else Cairn's own.

    Raises:
        UsageError: there is none.
    """
    for place in (start.absolute(), *start.absolute().parents):
        if any((place / FOLDER).glob(f"*{SUFFIX}")):
            return place / FOLDER
    return shipped.folder(FOLDER)


def find_dockerfile(name: str, start: Path) -> Dockerfile:
    """The Dockerfile of an image.

    Args:
        name: of the image, or the path of a Dockerfile.
        start: the folder to look in, and upwards from.

    Raises:
        UsageError: there is none of that name, or it is not UTF-8.
    """
    path = Path(name)
    if not path.is_file():
        if "/" in name or "\\" in name:
            raise UsageError(f"there is no Dockerfile {name}")
        place = dockerfiles_folder(start)
        path = place / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
        if not path.is_file():
            image_names = sorted(file.name.removesuffix(SUFFIX) for file in place.glob(f"*{SUFFIX}"))
            raise UsageError(
                f"there is no image {name!r} in {place}",
                tip=wording.did_you_mean(name, image_names, what="the images are"),
            )
    try:
        return Dockerfile(path=path, text=path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: not UTF-8", tip="write it in UTF-8: iconv -f latin1 -t utf-8"
        ) from error


class ImageBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A build of an image.

    Attributes:
        file: its Dockerfile.
        engine: by which program.
        tags: the names it gets, each perhaps with a registry before it and a tag after it.
        arguments: build arguments that are not left at their defaults.
        epoch: seconds since 1970 that every time stamp in the image gets (`SOURCE_DATE_EPOCH`); None: now.
        revision: the commit of the Dockerfile, for its label, or None.
        source: where that commit is from, or None.
        pip_config: a configuration of pip for this build alone: nothing of it gets into the image.
        extra: further arguments of the engine.
    """

    file: Dockerfile
    engine: Engine
    tags: tuple[str, ...]
    arguments: Mapping[str, str] = msgspec.field(default_factory=dict)
    epoch: int | None = None
    revision: str | None = None
    source: str | None = None
    pip_config: Path | None = None
    extra: tuple[str, ...] = ()


def build_command(build: ImageBuild) -> tuple[str, ...]:
    """Return the command line that builds the image.

    Raises:
        UsageError: the Dockerfile has no such build argument.
    """
    declared = build.file.arguments
    for name in build.arguments:
        if name not in declared:
            raise UsageError(
                f"{build.file.path.name} has no build argument {name}",
                tip=wording.did_you_mean(name, tuple(declared), what="it has"),
            )
    words = [build.engine, "build", "--file", str(build.file.path)]
    words += [word for tag in build.tags for word in ("--tag", tag)]
    words += [word for item in build.arguments.items() for word in ("--build-arg", "=".join(item))]
    labels = {_REVISION: build.revision, _SOURCE: build.source}
    words += [word for name, value in labels.items() if value for word in ("--label", f"{name}={value}")]
    if build.epoch is not None:
        # The build argument is for programs that run in the build. BuildKit sets time stamps by it, too, and
        # Buildah by an option.
        words += ("--build-arg", f"SOURCE_DATE_EPOCH={build.epoch}")
        words += () if build.engine == "docker" else ("--timestamp", str(build.epoch))
    if build.pip_config is not None:
        words += ["--secret", f"id={SECRET},src={build.pip_config}"]
    return (*words, *build.extra, str(build.file.path.parent))


def push_commands(build: ImageBuild, digest_file: Path) -> tuple[tuple[str, ...], ...]:
    """The command lines that push every tag; all but docker's leave the digest in a file."""
    noted = () if build.engine == "docker" else ("--digestfile", str(digest_file))
    return tuple((build.engine, "push", *noted, tag) for tag in build.tags)


def build_image(build: ImageBuild, *, on_line: Progress | None = None) -> None:
    """Build the image.

    Raises:
        ProcessError: a step of it failed.
    """
    process.run(build_command(build), on_line=on_line, confined=False)


def push_image(build: ImageBuild, *, on_line: Progress | None = None) -> str:
    """Push every tag of an image that was built; gives its name by digest, `repository@sha256:…`.

    Raises:
        ProcessError: a registry refused.
        StoreError: it took the image, and its digest is not known.
    """
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "digest"
        repository, digest = _repository(build.tags[0]), ""
        for words in push_commands(build, noted):
            process.run(words, on_line=on_line, confined=False)
            if build.engine != "docker":  # a different registry may have it compressed in a different way
                digest = digest or noted.read_text(encoding="ascii").strip()
        return f"{repository}@{digest}" if digest else _docker_digest(build.tags[0], repository)


def _docker_digest(tag: str, repository: str) -> str:
    result = process.run(
        ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", tag], confined=False
    )
    # Docker writes `docker.io/library/x` as `x`: then the digest is right under the one name there is.
    digests = [str(name) for name in json.loads(result.output) or ()]
    of_repository = [name for name in digests if name.startswith(f"{repository}@")] or digests
    if not of_repository:
        raise StoreError(f"docker pushed {tag}, and does not know its digest", tip="read it in the registry")
    return of_repository[0]


def _repository(tag: str) -> str:
    """A name without its tag; the colon of a port is followed by a slash."""
    head, colon, last = tag.rpartition(":")
    return head if colon and "/" not in last else tag


class ImageRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of an image.

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
        mounts: what it sees of this machine at the same path, each with whether it may write there. With any,
            it has a name, and no program in it gains privileges.
        variables: what it is given besides the image's own.
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
    mounts: tuple[tuple[Path, bool], ...] = ()
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)


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


def run_commands(run: ImageRun, *, name: str) -> tuple[tuple[str, ...], ...]:
    """Return the command lines; the last one before those that clean up runs the program.

    Args:
        run: what to run.
        name: for the container, where it must have one: buildah makes, uses and removes it by three commands.
    """
    inside = run.command or ("/bin/bash",)
    seen = [f"{path}:{path}{'' if writes else ':ro'}" for path, writes in run.mounts]
    options = [word for mount in seen for word in ("--volume", mount)]
    options += [word for item in run.variables.items() for word in ("--env", "=".join(item))]
    if run.engine == "buildah":
        seat = ("--tty",) if run.terminal else ()
        where = ("--workingdir", WORK) if run.folder else ()
        who = ("--user", f"{run.user[0]}:{run.user[1]}") if run.user else ()
        volume = ("--volume", f"{run.folder}:{WORK}") if run.folder else ()
        return (
            ("buildah", "from", "--name", name, *_limits(run), run.image),
            ("buildah", "run", *seat, *volume, *where, *who, *options, name, "--", *inside),
            ("buildah", "rm", name),
        )
    words = [run.engine, "run", "--rm", *(("-it",) if run.terminal else ()), *_limits(run)]
    if run.folder:
        words += ["--volume", f"{run.folder}:{WORK}", "--workdir", WORK]
    if run.mounts:
        words += ["--name", name, "--init", *_UNPRIVILEGED, *options]
    if run.engine == "podman" and run.user and run.user[0]:  # what runs as root has no names of users to keep
        words += ["--userns=keep-id"]
    elif run.user:
        # The folder is this user's; the image may know nobody of the number, who then has no home.
        words += ["--user", f"{run.user[0]}:{run.user[1]}", "--env", "HOME=/tmp"]
    return ((*words, run.image, *run.command),)


def remove_command(run: ImageRun, *, name: str) -> tuple[str, ...]:
    """Return the command line that ends a container with mounts, and removes it."""
    return ("buildah", "rm", name) if run.engine == "buildah" else (run.engine, "rm", "--force", name)


def job_options(*, gpu: bool) -> str:
    """Return what GitHub's `container.options` takes for a job of tests: it runs as root, as all jobs do."""
    limits = _limits(ImageRun(image="", engine="docker", gpu=gpu))
    # A variable without a value has that of the runner, which may be for one GPU of several.
    hidden = ("--env", "ROCR_VISIBLE_DEVICES") if gpu else ()
    return " ".join((*limits, *_UNPRIVILEGED, "--user", "0:0", *hidden))


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
    """Return our user and group ids if files made in the container should not belong to root."""
    if not hasattr(os, "getuid") or os.getuid() == 0:
        return None
    return os.getuid(), os.getgid()


def open_files(engine: Engine) -> int:
    """The limit of open files: docker's daemon may raise ours, the other two run under it."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return _OPEN_FILES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = engine == "docker" or hard == resource.RLIM_INFINITY
    return _OPEN_FILES if unlimited else min(_OPEN_FILES, hard)


def run_image(run: ImageRun, *, name: str) -> int:
    """Run the image with our terminal; return the exit code of its program."""
    if run.engine != "buildah":
        return process.interactive(*run_commands(run, name=name))
    make, use, remove = run_commands(run, name=name)
    process.run(make, confined=False)
    try:
        return process.interactive(use)
    finally:
        process.run(remove, confined=False)
