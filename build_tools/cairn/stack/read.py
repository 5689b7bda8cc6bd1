"""Reading a stack.toml: from a path that a user gave to a `Stack` whose folders and files are absolute."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack.check import check, check_texts
from cairn.stack.lines import with_lines
from cairn.stack.model import Origin, Stack

FILE = "stack.toml"
"""The name of the file that declares a stack; a folder that has one stands for it."""


def load(path: Path) -> Stack:
    """Read a stack.toml; folders and files it names become absolute.

    Raises:
        UsageError: no such file, not TOML, a field missing, unknown or mistyped, or an edge to nowhere.
    """
    named = path
    path = path / FILE if path.is_dir() else path
    try:
        data = datafile.parse_toml(path.read_bytes(), name=str(path))
    except FileNotFoundError as error:
        problem = f"the folder {named} has no {FILE}" if named.is_dir() else f"there is no stack {named}"
        raise UsageError(problem, tip=_meant(named)) from error
    except OSError as error:
        raise UsageError(
            f"cannot read the stack {path}: {error.strerror}", tip="name a stack.toml with --stack"
        ) from error
    stack = datafile.from_plain(data, Stack, name=str(path))
    check_texts(stack, path)
    stack = with_lines(stack, path)
    check(stack, path)
    return _absolute(stack, path.parent.absolute())


def _meant(path: Path) -> str:
    """What to name instead of a path without a stack: what is beside it, in it and in `external-builds`."""
    path = path.parent if path.name == FILE else path
    # Users leave `external-builds/` out, or are one folder off.
    folders = (path.parent, path, Path("external-builds"), path.parent / "external-builds")
    near = list(dict.fromkeys(p.parent for folder in folders for p in sorted(folder.glob(f"*/{FILE}"))))
    names = wording.nearest(path.name, [candidate.name for candidate in near])
    if likely := [str(candidate) for candidate in near if candidate.name in names]:
        return f"did you mean {' or '.join(likely)}?"
    return f"name one with --stack; near it are: {', '.join(map(str, near)) or 'none'}"


def _absolute(stack: Stack, root: Path) -> Stack:
    """The stack with the folders and files that it names below `root` as absolute paths."""

    def origin_at(origin: Origin) -> Origin:
        return msgspec.structs.replace(origin, tree=str(root / origin.tree)) if origin.tree else origin

    projects = []
    for project in stack.projects:
        lines = {
            name: msgspec.structs.replace(line, origin=origin_at(line.origin)) if line.origin else line
            for name, line in project.lines.items()
        }
        projects.append(msgspec.structs.replace(project, origin=origin_at(project.origin), lines=lines))
    sdk = stack.sdk
    if sdk is not None and sdk.packages is not None:
        sdk = msgspec.structs.replace(sdk, packages=str(root / sdk.packages))
    return msgspec.structs.replace(
        stack,
        folder=str(root),
        sdk=sdk,
        gate=msgspec.structs.replace(stack.gate, allow=stack.gate.allow and str(root / stack.gate.allow)),
        smoke_tests=tuple(str(root / folder) for folder in stack.smoke_tests),
        projects=tuple(projects),
    )
