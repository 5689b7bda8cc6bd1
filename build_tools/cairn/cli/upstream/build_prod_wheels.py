"""The command line of upstream's `build_prod_wheels.py`: its names and flags, over `cairn.build`.

Flags of single projects (`--triton-dir`, `--build-triton`) follow from the stack; `flag` there is upstream's
name of a project that has a different one here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.build.build_options import CompilerCacheOptions, build_env, compile_jobs
from cairn.cli import binder
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece
from cairn.cli.build import run
from cairn.cli.build.run import CacheOptions, DevelopOptions, built_wheels
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser, completion_words, is_completion
from cairn.errors import CairnError, UsageError
from cairn.options import fill, flag, option, switch
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import Job
    from cairn.stack import Project

_ALWAYS = "torch"  # upstream has no switch for it
_FOLDER, _SWITCH = "folder of ", "whether to build "  # before a project's name: where a parser has its flags
_INDEX = "--index-url https://stable.repo.amd.com/rocm/whl-next/"  # in the examples
# Upstream's release types to the channel that the SDK must be of, and stable, which upstream does not build.
_CHANNELS = {name: name for name in ("dev", "nightly", "nightly-bkc", "prerelease", "stable")}
_CHANNELS |= {"ci": "dev", "dev-bkc": "dev"}


def main(argv: Sequence[str] | None = None, *, script: str) -> int:
    """Run the script; returns its exit code.

    Args:
        argv: its arguments; the command line's by default.
        script: its own file: the stack.toml and the default checkouts are beside it.
    """
    words = sys.argv[1:] if argv is None else argv
    path = Path(script)
    line = completion_words() if is_completion() else words
    return guarded(make_parser(path, _projects(line, path)).parse_args(words))


def _projects(words: Sequence[str], script: Path) -> tuple[Project, ...]:
    """The projects that `build` has flags for: those of the stack that the arguments name.

    Where that stack cannot be read, those of the script's own; `stacks.load` then reports what is wrong.
    """
    if "build" not in words:
        return ()
    from cairn import stack as stacks

    folders = [after for word, after in itertools.pairwise(words) if word == "--stack"]
    folders += [word.partition("=")[2] for word in words if word.startswith("--stack=")]
    for place in (*map(Path, folders[-1:]), script.parent):
        with contextlib.suppress(CairnError):
            return stacks.load(place).projects
    return ()


@dataclass(frozen=True, kw_only=True)
class Common(common.StackOptions, common.SdkOptions):
    """Options of both commands, which may stand before their names too."""

    stack: Path = common.stack(required=False)
    line: str | None = common.line(common.LINE_OF_CHECKOUTS)
    version: str | None = common.rocm_version("--rocm-sdk-version")


@dataclass(frozen=True, kw_only=True)
class Build(Common, CompilerCacheOptions, CacheOptions, DevelopOptions):
    """Options of `build`.

    Attributes:
        checkouts: by project: the folders that flags of its own name.
        switches: by project: whether it is built, where a flag of its own says so.
    """

    install_rocm: bool = switch("install the ROCm SDK first")
    output_dir: Path = common.output_dir()
    root_checkout_dir: Path = common.root_checkout_dir()
    jobs: int = compile_jobs()
    build_env: tuple[str, ...] = build_env()
    pytorch_rocm_arch: str | None = option(
        "GPU targets (default: PYTORCH_ROCM_ARCH, else what the SDK serves)",
        convert=converters.nonempty,
        completer=common.complete_targets,
    )
    version_suffix: str | None = common.version_suffix()
    release_type: str | None = option("refuse an SDK of any other channel", choices=tuple(_CHANNELS))
    build_number: str = option(
        "build number (default: %(default)s)",
        "--pytorch-build-number",
        metavar="PYTORCH_BUILD_NUMBER",
        default="1",
    )
    enable_pytorch_flash_attention: bool | None = switch(
        "build flash attention (default: where triton supports it)", default=None
    )
    enable_pytorch_flash_attention_windows: bool | None = switch(
        "the same on Windows alone, where there is no triton to go by", default=None
    )
    sccache_no_wrap: bool = flag(
        "taken for upstream's sake: hipcc's clang is led through the cache whatever its version"
    )
    offline: bool = common.offline()
    clean: bool = switch("build everything again")
    install: bool | None = switch(
        "install the wheels and the ROCm SDK they were built with into the active environment (default: if "
        "one is active that is not Cairn's own; else the line that does so is printed)",
        default=None,
    )
    checkouts: Mapping[str, Path] = field(default_factory=dict)
    switches: Mapping[str, bool] = field(default_factory=dict)


def make_parser(script: Path, projects: Sequence[Project] = ()) -> argparse.ArgumentParser:
    """Make the parser of the script, with the flags of these projects."""
    parser = Parser(
        prog=script.name,
        description="Build PyTorch wheels for ROCm from checkouts made by the pytorch_*_repo.py scripts.",
        epilog=f"example: python {script.name} build --install-rocm {_INDEX} --output-dir out",
    )
    binder.add_options(parser, Common, defaults={"stack": script.parent})
    commands = parser.add_subparsers(required=True, metavar="install-rocm|build")
    common = {each.name for each in dataclasses.fields(Common)}
    install = commands.add_parser(
        "install-rocm",
        help="install the ROCm SDK for later builds",
        description="Install the ROCm SDK into the environment that later builds use.",
        epilog=f"example: python {script.name} install-rocm {_INDEX}",
    )
    binder.bind(install, Common, _install_rocm, inherited=common)
    build = commands.add_parser(
        "build",
        help="build the wheels",
        description="Build a wheel from each checkout that exists, against the wheels it needs.",
        epilog=f"example: python {script.name} build --install-rocm {_INDEX} "
        "--pytorch-rocm-arch gfx1100 --output-dir out",
    )
    binder.add_options(build, Build, inherited=common, defaults={"root_checkout_dir": script.parent})
    _add_projects(build, projects)
    build.set_defaults(
        run=lambda parsed: binder.carry_out(_request(parsed), _build, json=getattr(parsed, "json", False))
    )
    return parser


def _add_projects(parser: argparse.ArgumentParser, projects: Sequence[Project]) -> None:
    for project in projects:
        name = project.flag or project.name
        # A project called `output` has no flag: it would take --output-dir.
        with contextlib.suppress(argparse.ArgumentError):
            parser.add_argument(
                f"--{name}-dir",
                type=converters.folder,
                dest=_FOLDER + project.name,
                metavar="DIR",
                help=f"checkout of {project.name}",
            )
        if project.name != _ALWAYS:
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(
                    f"--build-{name}",
                    action=argparse.BooleanOptionalAction,
                    dest=_SWITCH + project.name,
                    help=f"build {project.name} (default: if its checkout exists)",
                )


def _request(parsed: argparse.Namespace) -> Build:
    def of_projects(prefix: str) -> dict[str, Any]:
        values = vars(parsed).items()
        return {
            name.removeprefix(prefix): value
            for name, value in values
            if name.startswith(prefix) and value is not None
        }

    request = binder.make(Build, parsed)
    return dataclasses.replace(request, checkouts=of_projects(_FOLDER), switches=of_projects(_SWITCH))


def _install_rocm(request: Common) -> list[Piece]:
    from cairn import stack as stacks
    from cairn.build import job
    from cairn.build.model import Job

    stack = stacks.load(request.stack)
    installed = job.install_rocm(Job(stack=stack, checkouts={}, output_dir=Path(), sdk=request.sdk_request()))
    return [f"ROCm SDK {installed.info.version} at {installed.info.root}"]


def _build(request: Build) -> Iterator[Answer | Piece]:
    from cairn.build import job

    build_job = _job(request)
    if request.develop:
        yield from run.develop(request, [build_job])
        return
    environment = _environment(request, build_job)
    run.say_estimate([build_job])
    built = job.run((build_job,))[0]
    yield built_wheels(built)
    if environment is not None:
        job.install(build_job, built, environment)
        yield Note(f"installed for {environment}")
    elif request.install is None and built:
        yield Note(f"to install them into the active environment: {job.install_line(build_job, built)}")


def _environment(request: Build, build_job: Job) -> Path | None:
    """Return the interpreter of the environment to install into; None for none.

    Raises:
        UsageError: --install is given, and no environment is active, or one of another Python.
    """
    if request.install is False:
        return None
    version = build_job.python.version
    try:
        return _active(version, can_be_ours=bool(request.install))
    except UsageError as error:
        if request.install is None:
            return None
        tip = f"make and activate one: python{version} -m venv torch-env && . torch-env/bin/activate"
        raise UsageError(str(error), tip=f"{tip}; or leave --install out") from error


def _active(version: str, *, can_be_ours: bool) -> Path | None:
    """Return the interpreter of the active environment; None for Cairn's own, where that does not count.

    Raises:
        UsageError: there is none of this version.
    """
    from cairn import interpreters

    active = interpreters.active()
    if active is None and sys.prefix != sys.base_prefix:
        active = Path(sys.executable)
    if active is None:
        raise UsageError("--install is for the active environment, and none is active")
    if not can_be_ours and interpreters.is_ours(active):
        return None
    if (active_version := interpreters.ask(active).version) != version:
        raise UsageError(f"the wheels will be for Python {version}, and {active} is {active_version}")
    return active


def _features(request: Build) -> dict[str, bool]:
    """Flash attention, where the options say something of it; else the stack does."""
    from cairn import platforms

    # Upstream's older flag has no meaning on Linux, and its scripts pass it everywhere.
    is_enabled = request.enable_pytorch_flash_attention_windows
    if is_enabled is None or platforms.here.stack_section() != "windows":
        is_enabled = request.enable_pytorch_flash_attention
    return {} if is_enabled is None else {"flash_attention": is_enabled}


def _job(request: Build) -> Job:
    from cairn import stack as stacks
    from cairn.build.model import Job

    stack = stacks.load(request.stack)
    targets = request.pytorch_rocm_arch
    if not targets and (targets := os.environ.get("PYTORCH_ROCM_ARCH") or None):
        console.current().info(f"GPU targets {targets}, as PYTORCH_ROCM_ARCH says")
    checkouts = {
        project.name: request.checkouts.get(project.name, request.root_checkout_dir / project.checkout_dir)
        for project in stack.projects
        if request.switches.get(project.name) is not False
    }
    required = {_ALWAYS, *request.checkouts, *(name for name, chosen in request.switches.items() if chosen)}
    return fill(
        Job,
        request,
        stack=stack,
        shared_cache=request.shared_cache(),
        checkouts=checkouts,
        required=frozenset(required & checkouts.keys()),
        sdk=request.sdk_request(),
        targets=targets,
        features=_features(request),
        channel=_CHANNELS.get(request.release_type or ""),
        compiler_cache=request.compiler_cache,
    )
