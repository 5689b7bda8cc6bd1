"""The command line of upstream's `build_prod_wheels.py`: its names and flags, over `cairn.build`.

Flags of single projects (`--triton-dir`, `--build-triton`) follow from the stack; `flag` there is upstream's
name of a project that has a different one here.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, completion
from cairn.cli.build import cache as build_cache
from cairn.cli.build import options as build_options
from cairn.cli.build.run import show_wheels
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser, completion_asked
from cairn.errors import CairnError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import Job
    from cairn.stack import Project, Stack

_ALWAYS = "torch"  # upstream has no switch for it
_INDEX = "--index-url https://rocm.nightlies.amd.com/v2/gfx110X-all/"  # in the examples
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
    line = completion.words() if completion_asked() else words
    return guarded(_parser(path, _projects(line, path)).parse_args(words))


def _projects(words: Sequence[str], script: Path) -> tuple[Project, ...]:
    """The projects that `build` has flags for: those of the stack that the arguments name.

    Where that stack cannot be read, those of the script's own; `stacks.load` then reports what is wrong.
    """
    if "build" not in words:
        return ()
    from cairn import stack as stacks

    named = [after for word, after in itertools.pairwise(words) if word == "--stack"]
    named += [word.partition("=")[2] for word in words if word.startswith("--stack=")]
    for place in (*map(Path, named[-1:]), script.parent):
        with contextlib.suppress(CairnError):
            return stacks.load(place).projects
    return ()


def _parser(script: Path, projects: Sequence[Project] = ()) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Build PyTorch wheels for ROCm from checkouts made by the pytorch_*_repo.py scripts.",
        epilog=f"example: python {script.name} build --install-rocm {_INDEX} --output-dir out",
    )
    arguments.add_pip(parser)
    arguments.add_stack(parser, default=script.parent, default_line=arguments.LINE_OF_CHECKOUTS)
    commands = parser.add_subparsers(required=True, metavar="install-rocm|build")
    install = commands.add_parser(
        "install-rocm",
        help="install the ROCm SDK for later builds",
        description="Install the ROCm SDK into the environment that later builds use.",
        epilog=f"example: python {script.name} install-rocm {_INDEX}",
    )
    _repeat_pip(install)
    arguments.add_stack(install, default=argparse.SUPPRESS, default_line=arguments.LINE_OF_CHECKOUTS)
    install.set_defaults(run=_install_rocm)
    build = commands.add_parser(
        "build",
        help="build the wheels",
        description="Build a wheel from each checkout that exists, against the wheels it needs.",
        epilog=f"example: python {script.name} build --install-rocm {_INDEX} "
        "--pytorch-rocm-arch gfx1100 --output-dir out",
    )
    _repeat_pip(build)
    arguments.add_stack(build, default=argparse.SUPPRESS, default_line=arguments.LINE_OF_CHECKOUTS)
    _add_build(build, script, projects)
    build.set_defaults(run=_build)
    return parser


def _repeat_pip(parser: argparse.ArgumentParser) -> None:
    """Take the SDK's options after the command as well as before it, as upstream's users write both."""
    arguments.add_pip(parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to reach an option's default
        if action.dest != "help":
            action.help = (action.help or "").replace("%(default)s", str(action.default))
            action.default = argparse.SUPPRESS
        if action.dest == "find_links":  # the links before the command would be lost, not added to
            action.dest = arguments.MORE_FIND_LINKS


def _add_build(parser: argparse.ArgumentParser, script: Path, projects: Sequence[Project]) -> None:
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--install-rocm", action=flag, default=False, help="install the ROCm SDK first")
    arguments.add_output_dir(parser)
    arguments.add_root_checkout_dir(parser)
    parser.set_defaults(root_checkout_dir=script.parent)
    arguments.add_build_env(parser)
    build_cache.add_cache_store(parser)
    for project in projects:
        name = project.flag or project.name
        # A project called `output` has no flag: it would take --output-dir.
        with contextlib.suppress(argparse.ArgumentError):
            text = f"checkout of {project.name}"
            parser.add_argument(
                f"--{name}-dir", type=converters.folder, dest=f"dir_{project.name}", metavar="DIR", help=text
            )
        if project.name != _ALWAYS:
            text = f"build {project.name} (default: if its checkout exists)"
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(
                    f"--build-{name}", action=flag, dest=f"build_{project.name}", default=None, help=text
                )
    arch = parser.add_argument(
        "--pytorch-rocm-arch",
        type=converters.nonempty,
        help="GPU targets (default: PYTORCH_ROCM_ARCH, else what the SDK serves)",
    )
    arguments.completes(arch, completion.complete_targets)
    parser.add_argument(
        "--version-suffix", help="local version of the wheels, such as +rocm7.10.0 (default: the SDK's)"
    )
    parser.add_argument("--release-type", choices=tuple(_CHANNELS), help="refuse an SDK of any other channel")
    parser.add_argument("--pytorch-build-number", default="1", help="build number (default: %(default)s)")
    parser.add_argument(
        "--enable-pytorch-flash-attention",
        action=flag,
        default=None,
        help="build flash attention (default: where triton supports it)",
    )
    parser.add_argument(
        "--enable-pytorch-flash-attention-windows",
        action=flag,
        default=None,
        help="the same on Windows alone, where there is no triton to go by",
    )
    build_options.add_compiler_cache(parser)
    parser.add_argument(
        "--sccache-no-wrap",
        action="store_true",
        help="taken for upstream's sake: hipcc's clang is led through the cache whatever its version",
    )
    build_options.add_develop(parser)
    build_options.add_offline(parser)
    parser.add_argument("--clean", action=flag, default=False, help="build everything again")


def _install_rocm(options: argparse.Namespace) -> int:
    from cairn import stack as stacks
    from cairn.build import job
    from cairn.build.model import Job

    stack = stacks.load(options.stack)
    installed = job.install_rocm(
        Job(stack=stack, checkouts={}, output_dir=Path(), sdk=arguments.wanted_sdk(options))
    )
    console.current().out(f"ROCm SDK {installed.info.version} at {installed.info.root}")
    return 0


def _build(options: argparse.Namespace) -> int:
    from cairn import stack as stacks
    from cairn.build import job

    wanted = _job(options, stacks.load(options.stack))
    if options.develop:
        return build_options.develop(options, [wanted])
    return show_wheels(job.run(wanted))


def _flash_attention(options: argparse.Namespace) -> bool | None:
    """Whether flash attention is asked for; None leaves it to the stack."""
    from cairn import platforms

    # Upstream's older flag has no meaning on Linux, and its scripts pass it everywhere.
    own: bool | None = options.enable_pytorch_flash_attention_windows
    if own is not None and platforms.here.stack_section() == "windows":
        return own
    chosen: bool | None = options.enable_pytorch_flash_attention
    return chosen


def _job(options: argparse.Namespace, stack: Stack) -> Job:
    from cairn.build.model import Job

    flash = _flash_attention(options)
    targets = options.pytorch_rocm_arch
    if not targets and (targets := os.environ.get("PYTORCH_ROCM_ARCH") or None):
        console.current().info(f"GPU targets {targets}, as PYTORCH_ROCM_ARCH says")
    checkouts: dict[str, Path] = {}
    required = {_ALWAYS}
    for project in stack.projects:
        folder = getattr(options, f"dir_{project.name}", None)
        switched = getattr(options, f"build_{project.name}", None)
        if switched is not False:
            checkouts[project.name] = folder or options.root_checkout_dir / project.checkout_dir
        if folder or switched:
            required.add(project.name)
    return Job(
        stack=stack,
        line=options.line,
        build_env=tuple(options.build_env),
        shared_cache=build_cache.shared_cache(options),
        checkouts=checkouts,
        required=frozenset(required & checkouts.keys()),
        output_dir=options.output_dir,
        sdk=arguments.wanted_sdk(options),
        install_rocm=options.install_rocm,
        targets=targets,
        version_suffix=options.version_suffix,
        build_number=options.pytorch_build_number,
        features={} if flash is None else {"flash_attention": flash},
        channel=_CHANNELS.get(options.release_type),
        clean=options.clean,
        compiler_cache=build_options.compiler_cache(options),
    )
