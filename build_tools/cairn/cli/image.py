"""`cairn image`: build, run and print the container images of `dockerfiles/`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Parser, add_command, add_commands
from cairn.errors import CairnError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.images.building import ImageBuild
    from cairn.images.dockerfile import Dockerfile
    from cairn.images.running import ImageRun

_BUILD = "build_manylinux_x86_64"
_TEST = "no_rocm_image_ubuntu24_04"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="The container images that wheels are built and tested in, by docker, podman or buildah.",
        example=f"cairn image build {_TEST}",
    )
    _add_build(
        add_command(
            commands,
            "build",
            _build,
            about="build an image of dockerfiles/",
            more="What follows `--` goes to the engine as it is.",
            example=f"cairn image build {_BUILD} --tag registry.example/{_BUILD}:latest --push",
        )
    )
    _add_run(
        add_command(
            commands,
            "run",
            _run,
            about="run an image, or a command in one, with the GPUs and the current folder of this machine",
            more="What follows `--` is the command; a shell without it.",
            example=f"cairn image run {_TEST} -- python3 dev.py quickstart",
        )
    )
    shown = add_command(
        commands,
        "print",
        _print,
        about="print the lines that build and run an image, and its Dockerfile",
        example=f"cairn image print {_TEST} --engine docker",
    )
    _add_name(shown)
    arguments.add_json(shown)


def _add_name(parser: argparse.ArgumentParser) -> None:
    from cairn.images.engines import ENGINES

    name = parser.add_argument(
        "name", type=converters.nonempty, metavar="NAME", help="an image of dockerfiles/, or a Dockerfile"
    )
    arguments.completes(name, _complete_names)
    parser.add_argument("--engine", choices=ENGINES, help="program to use (default: the first that answers)")


def _complete_names(**_: object) -> list[str]:
    from cairn.images import dockerfile

    found = dockerfile.folder(Path.cwd()).glob(f"*{dockerfile.SUFFIX}")
    return sorted(path.name.removesuffix(dockerfile.SUFFIX) for path in found)


def _add_build(parser: argparse.ArgumentParser) -> None:
    _take_rest(parser)
    _add_name(parser)
    parser.add_argument(
        "--base",
        type=converters.nonempty,
        metavar="IMAGE",
        help="image to build on (default: the Dockerfile's)",
    )
    arguments.add_repeated(parser, "--build-arg", "NAME=VALUE", "a build argument of the Dockerfile")
    arguments.add_repeated(
        parser,
        "--tag",
        "IMAGE",
        "name of the result (default: NAME:latest)",
        kind=converters.nonempty,
    )
    parser.add_argument(
        "--pip-config",
        type=converters.file,
        metavar="FILE",
        help="configuration of pip for this build, such as an index behind a firewall; it is not kept",
    )
    parser.add_argument(
        "--push", action="store_true", help="push it to where its tags say; prints its digest"
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _take_rest(parser: argparse.ArgumentParser) -> None:
    if isinstance(parser, Parser):
        parser.takes_rest = True


def _add_run(parser: argparse.ArgumentParser) -> None:
    _take_rest(parser)
    _add_name(parser)
    parser.add_argument(
        "--image", type=converters.nonempty, help="image to run (default: NAME:latest, as `build` calls it)"
    )
    parser.add_argument(
        "--gpu",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="give it the machine's GPUs (default: where there is /dev/kfd)",
    )
    parser.add_argument(
        "--mount-dir",
        type=converters.folder,
        default=Path(),
        metavar="DIR",
        help="folder that is /work in the container (default: the current one)",
    )
    arguments.add_dry_run(parser)


def _build(options: argparse.Namespace) -> int:
    from cairn.images import building, engines

    screen = console.current()
    # Nothing is started, so nothing needs to be there.
    engine = engines.likely(options.engine) if options.dry_run else engines.choose(options.engine)
    build = _image_build(options, engine)
    words = building.command(build)
    if options.dry_run:
        lines = [words, *(building.push_commands(build, Path("digest")) if options.push else ())]
        for line in lines:
            screen.out(shlex.join(line))
        return 0
    screen.info(shlex.join(words))
    with screen.stage(f"build {build.file.name} with {engine}") as stage:
        building.run(build, on_line=stage.update)
    digest = None
    if options.push:
        with screen.stage(f"push {', '.join(build.tags)}") as stage:
            digest = building.push(build, on_line=stage.update)
    if options.json:
        answer = {"name": build.file.name, "engine": engine, "tags": list(build.tags)}
        screen.json(answer | ({"digest": digest} if digest else {}))
    else:
        screen.out(digest or build.tags[0])
    return 0


def _image_build(options: argparse.Namespace, engine: str) -> ImageBuild:
    from cairn.images.building import ImageBuild

    file = _file(options)
    given = dict(_named(text) for text in options.build_arg)
    if options.base:
        given["BASE"] = options.base
    if options.push and not all("/" in tag for tag in options.tag or ("",)):
        raise UsageError(
            "--push needs a --tag that names a registry", tip=f"--tag registry.example/{file.name}:latest"
        )
    revision, committed = _origin(file)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or committed or ""
    return ImageBuild(
        file=file,
        engine=engine,  # type: ignore[arg-type]  # argparse has compared it
        tags=tuple(options.tag) or (f"{file.name}:latest",),
        arguments=given,
        epoch=int(epoch) if epoch.isdecimal() else None,
        revision=revision,
        source=_repository(),
        pip_config=options.pip_config and options.pip_config.absolute(),
        extra=tuple(options.rest),
    )


def _run(options: argparse.Namespace) -> int:
    from cairn.images import engines, running

    if ":" in str(options.mount_dir.resolve()):
        raise UsageError(f"engines take no colon in the name of a folder: {options.mount_dir.resolve()}")
    engine = engines.likely(options.engine) if options.dry_run else engines.choose(options.engine)
    gpu = running.has_gpu() if options.gpu is None else options.gpu
    wanted = _image_run(options, engine, gpu=gpu)
    name = f"cairn-{os.getpid()}"
    if options.dry_run:
        for line in running.commands(wanted, name=name):
            console.current().out(shlex.join(line))
        return 0
    return running.start(wanted, name=name)


def _image_run(options: argparse.Namespace, engine: str, *, gpu: bool) -> ImageRun:
    from cairn.images import running

    file = _file(options)
    return running.ImageRun(
        image=getattr(options, "image", None) or f"{file.name}:latest",
        engine=engine,  # type: ignore[arg-type]  # argparse has compared it
        command=tuple(getattr(options, "rest", ())),
        gpu=gpu,
        gpu_groups=running.gpu_groups() if gpu else (),
        folder=getattr(options, "mount_dir", Path()).resolve(),
        user=running.this_user(),
        open_files=running.open_files(engine),  # type: ignore[arg-type]  # see above
        terminal=sys.stdin.isatty() or not hasattr(options, "rest"),
    )


def _print(options: argparse.Namespace) -> int:
    from cairn.images import building, engines, running

    engine = engines.likely(options.engine)
    file = _file(options)
    build = building.ImageBuild(file=file, engine=engine, tags=(f"{file.name}:latest",))
    lines = running.commands(_image_run(options, engine, gpu=True), name=file.name)
    screen = console.current()
    if options.json:
        screen.json(
            {
                "name": file.name,
                "dockerfile": str(file.path),
                "arguments": dict(file.arguments),
                "build": list(building.command(build)),
                "run": [list(line) for line in lines],
                "text": file.text,
            }
        )
        return 0
    screen.out(shlex.join(building.command(build)))
    for line in lines:
        screen.out(shlex.join(line))
    screen.info(f"{file.path}:")
    for text in file.text.splitlines():
        screen.out(text)
    return 0


def _origin(file: Dockerfile) -> tuple[str | None, str | None]:
    """The last commit of a Dockerfile's folder and its date; None where the folder is not as committed."""
    from cairn.sources.git import command

    place = file.path.resolve().parent
    try:
        if command.line(place, "status", "--porcelain", "--", "."):
            return None, None
        found = command.line(place, "log", "-1", "--format=%H %ct", "--", ".").split()
    except CairnError:  # no repository
        return None, None
    return (found[0], found[1]) if found else (None, None)


def _repository() -> str | None:
    """Where GitHub Actions runs us; a registry shows the image beside that repository."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def _file(options: argparse.Namespace) -> Dockerfile:
    from cairn.images import dockerfile

    return dockerfile.find(options.name, Path.cwd())


def _named(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise UsageError(f"--build-arg {text} is not NAME=VALUE")
    return name, value
