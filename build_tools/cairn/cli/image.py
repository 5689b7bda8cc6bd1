"""`cairn image`: build and run the container images of `dockerfiles/`."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.errors import CairnError, UsageError
from cairn.image_engines import ENGINES, Engine
from cairn.options import argument, flag, option, repeated, switch
from cairn.output import console

if TYPE_CHECKING:
    from cairn.images import Dockerfile, ImageBuild


def _complete_names(**_: object) -> list[str]:
    from cairn import images

    files = images.dockerfiles_folder(Path.cwd()).glob(f"*{images.SUFFIX}")
    return sorted(path.name.removesuffix(images.SUFFIX) for path in files)


@dataclass(frozen=True, kw_only=True)
class Image:
    """Which image, and by which engine."""

    name: str = argument(
        "NAME",
        "an image of dockerfiles/, or a Dockerfile",
        convert=converters.nonempty,
        completer=_complete_names,
    )
    engine: Engine | None = option("program to use (default: the first that answers)", choices=ENGINES)

    def file(self) -> Dockerfile:
        """The Dockerfile of the image."""
        from cairn import images

        return images.find_dockerfile(self.name, Path.cwd())

    def choose_engine(self, *, dry_run: bool) -> Engine:
        """Return the named engine, or one that this machine has: with `dry_run`, none needs to respond."""
        from cairn import images

        return images.likely_engine(self.engine) if dry_run else images.choose_engine(self.engine)


@dataclass(frozen=True, kw_only=True)
class Build(Image):
    """Options of `cairn image build`.

    What follows `--` goes to the engine as it is. --dry-run prints the line; with
    --json, the Dockerfile too.

        cairn image build build_manylinux_x86_64 --tag registry.example/build_manylinux_x86_64:latest
        --push
    """

    base: str | None = option(
        "image to build on (default: the Dockerfile's)", metavar="IMAGE", convert=converters.nonempty
    )
    build_arg: tuple[str, ...] = repeated("a build argument of the Dockerfile", metavar="NAME=VALUE")
    tag: tuple[str, ...] = repeated(
        "name of the result (default: NAME:latest)", metavar="IMAGE", convert=converters.nonempty
    )
    pip_config: Path | None = option(
        "configuration of pip for this build, such as an index behind a firewall; it is not kept",
        convert=converters.file,
    )
    push: bool = flag("push it to where its tags say; prints its digest")
    dry_run: bool = common.dry_run()
    rest: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run(Image):
    """Options of `cairn image run`.

    What follows `--` is the command; a shell without it.

        cairn image run no_rocm_image_ubuntu24_04 -- python3 dev.py quickstart
    """

    image: str | None = option(
        "image to run (default: NAME:latest, as `build` calls it)", convert=converters.nonempty
    )
    gpu: bool | None = switch("give it the machine's GPUs (default: where there is /dev/kfd)", default=None)
    mount_dir: Path = option(
        "folder that is /work in the container (default: the current one)",
        convert=converters.folder,
        default=Path(),
    )
    dry_run: bool = common.dry_run()
    rest: tuple[str, ...] = ()


def _build(request: Build) -> Answer:
    from cairn import images

    screen = console.current()
    build = _image_build(request)
    words = images.build_command(build)
    if request.dry_run:
        lines = [words, *(images.push_commands(build, Path("digest")) if request.push else ())]
        plain = {
            "name": build.file.name,
            "dockerfile": build.file.path,
            "arguments": build.file.arguments,
            "lines": lines,
            "text": build.file.text,
        }
        return Answer(plain, map(shlex.join, lines))
    screen.info(shlex.join(words))
    with screen.stage(f"build {build.file.name} with {build.engine}") as stage:
        images.build_image(build, on_line=stage.update)
    digest = None
    if request.push:
        with screen.stage(f"push {', '.join(build.tags)}") as stage:
            digest = images.push_image(build, on_line=stage.update)
    return Answer(
        {"name": build.file.name, "engine": build.engine, "tags": build.tags},
        [digest or build.tags[0]],
        more={"digest": digest} if digest else {},
    )


def _image_build(request: Build) -> ImageBuild:
    from cairn.images import ImageBuild

    file, engine = request.file(), request.choose_engine(dry_run=request.dry_run)
    arguments = {}
    for text in request.build_arg:
        name, sign, arguments[name] = text.partition("=")
        if not name or not sign:
            raise UsageError(f"--build-arg {text} is not NAME=VALUE")
    if request.base:
        arguments["BASE"] = request.base
    if request.push and not all("/" in tag for tag in request.tag or ("",)):
        raise UsageError(
            "--push needs a --tag that names a registry", tip=f"--tag registry.example/{file.name}:latest"
        )
    revision, committed = _origin(file)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or committed or ""
    # Where GitHub Actions runs us, a registry shows the image beside that repository.
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return ImageBuild(
        file=file,
        engine=engine,
        tags=request.tag or (f"{file.name}:latest",),
        arguments=arguments,
        epoch=int(epoch) if epoch.isdecimal() else None,
        revision=revision,
        source=f"{server}/{repository}" if server and repository else None,
        pip_config=request.pip_config and request.pip_config.absolute(),
        extra=request.rest,
    )


def _origin(file: Dockerfile) -> tuple[str | None, str | None]:
    """Return the last commit of a Dockerfile's folder and its date; None for local changes or no git."""
    from cairn.sources.git import command

    place = file.path.resolve().parent
    try:
        if command.line(place, "status", "--porcelain", "--", "."):
            return None, None
        words = command.line(place, "log", "-1", "--format=%H %ct", "--", ".").split()
    except CairnError:  # no repository
        return None, None
    return (words[0], words[1]) if words else (None, None)


def _run(request: Run) -> int | Answer:
    from cairn import images

    folder = request.mount_dir.resolve()
    if ":" in str(folder):
        raise UsageError(f"engines take no colon in the name of a folder: {folder}")
    file, engine = request.file(), request.choose_engine(dry_run=request.dry_run)
    gpu = images.has_gpu() if request.gpu is None else request.gpu
    run = images.ImageRun(
        image=request.image or f"{file.name}:latest",
        engine=engine,
        command=request.rest,
        gpu=gpu,
        gpu_groups=images.gpu_groups() if gpu else (),
        folder=folder,
        user=images.this_user(),
        open_files=images.open_files(engine),
        terminal=sys.stdin.isatty(),
    )
    name = f"cairn-{os.getpid()}"
    if not request.dry_run:
        return images.run_image(run, name=name)
    return Answer({}, map(shlex.join, images.run_commands(run, name=name)))


COMMANDS = {
    "build": command(Build, _build, takes_rest=True),
    "run": command(Run, _run, takes_rest=True),
}
