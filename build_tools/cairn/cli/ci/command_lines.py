"""Whether the real command lines take what a workflow writes: those of `cairn`, and of upstream's scripts.

A value that is put in when the workflow runs (`${{ }}`, `$NAME`) may stand for any value, and no file or
folder need be there.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cairn.cli import arguments
from cairn.cli import main as program
from cairn.output import console
from cairn.workflows.shell import VALUE

_PATHS = (
    *(arguments.file, arguments.folder, arguments.program, arguments.file_or_folder),
    *(arguments.new_file, arguments.new_folder, arguments.any_path),
)
"""Types that ask what is on this machine, which says nothing of the one that runs the workflow."""

_PYTHON = re.compile(rf"python[0-9.]*|py|{VALUE}")


class _Refusal(console.Console):
    """Takes what a parser says instead of showing it."""

    said = ""

    def error(self, text: str, *, tip: str | None = None, lines: Sequence[str] = ()) -> None:
        """Keep the message of a parser."""
        del lines
        said = f"{text} ({tip})" if tip else text
        self.said = said.replace(repr(VALUE)[1:-1], "…").replace(VALUE, "…")


class _AnyOrKnown(list[Any]):
    """The choices of an option, which a value that is not known yet may be one of."""

    def __contains__(self, value: object) -> bool:
        return VALUE in str(value) or super().__contains__(value)


def refusal(words: Sequence[str]) -> str | None:
    """What its command line says against a program and its arguments.

    Returns:
        The message; None where the line is right, or the program is not one of ours.
    """
    found = _ours(words)
    if found is None:
        return None
    name, rest = found
    if name not in _parsers():
        return None
    listening = _Refusal()
    before = console.current()
    console.use(listening)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            _parsers()[name]().parse_args(list(rest))
    except SystemExit as end:
        if end.code not in (0, None):
            return listening.said or f"{' '.join([name, *rest])} names no command"
    finally:
        console.use(before)
    return None


def _ours(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The name of a program of ours, and its arguments."""
    name = _name(words[0])
    if name in _parsers():
        return name, words[1:]
    if words[:2] == ("uv", "run") and len(words) > 2 and not words[2].startswith("-"):  # noqa: PLR2004 - `uv run`
        return _ours(words[2:])
    if not _PYTHON.fullmatch(name):
        return None
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest[:2] == ["-m", "cairn"]:
        return "cairn", rest[2:]
    return (_name(rest[0]), rest[1:]) if rest and rest[0] != "-m" else None


def _name(word: str) -> str:
    return PurePosixPath(word.replace("\\", "/")).name.removesuffix(".exe")


@functools.cache
def _parsers() -> Mapping[str, Callable[[], argparse.ArgumentParser]]:
    return {"cairn": _cairn, **{name: functools.partial(_script, name) for name in _SCRIPTS}}


@functools.cache
def _cairn() -> argparse.ArgumentParser:
    return _lenient(program.make_parser())


_SCRIPTS = (
    *("fetch_artifacts.py", "build_python_packages.py"),
    *(
        "build_prod_wheels.py",
        "checkout_from_manifest.py",
        "run_pytorch_smoke_tests.py",
        "run_pytorch_tests.py",
    ),
    *("patch_fat_wheel.py", "windows_patch_fat_wheel.py"),
    *(f"pytorch_{project}_repo.py" for project in ("torch", "audio", "vision", "triton", "apex")),
)


@functools.cache
def _script(name: str) -> argparse.ArgumentParser:
    from cairn import stack
    from cairn.cli.upstream import (
        build_prod_wheels,
        build_python_packages,
        checkout_from_manifest,
        fetch_artifacts,
        patch_fat_wheel,
        pytorch_repo,
        run_pytorch_smoke_tests,
        run_pytorch_tests,
    )

    path = Path("external-builds/pytorch", name)
    if name == "build_prod_wheels.py":
        projects = stack.load(path.parent).projects if (path.parent / stack.FILE).is_file() else ()
        parser = build_prod_wheels._parser(path, projects)  # noqa: SLF001 - of this room
    elif name == "fetch_artifacts.py":
        parser = fetch_artifacts._parser(path)  # noqa: SLF001
    elif name == "build_python_packages.py":
        parser = build_python_packages._parser(path)  # noqa: SLF001
    elif name == "checkout_from_manifest.py":
        parser = checkout_from_manifest._parser(path)  # noqa: SLF001
    elif name == "run_pytorch_smoke_tests.py":
        parser = run_pytorch_smoke_tests._parser(path)  # noqa: SLF001
    elif name == "run_pytorch_tests.py":
        parser = run_pytorch_tests._parser(path)  # noqa: SLF001
    elif name.endswith("patch_fat_wheel.py"):
        parser = patch_fat_wheel._parser(path, windows=name.startswith("windows"))  # noqa: SLF001
    else:
        parser = pytorch_repo._parser(name.split("_")[1], path)  # noqa: SLF001
    return _lenient(parser)


def _lenient(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser, with types and choices that take what is not known yet."""
    for action in _actions(parser):
        if action.type in _PATHS:
            action.type = str
        elif callable(action.type):
            action.type = functools.partial(_unless_value, action.type)
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public name
            action.choices = _AnyOrKnown(action.choices)
    return parser


def _unless_value(kind: Callable[[str], object], text: str) -> object:
    return text if VALUE in text else kind(text)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public name
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for child in action.choices.values():
                yield from _actions(child)
