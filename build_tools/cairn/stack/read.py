"""Reading a stack.toml: from a path that a user gave to a `Stack` whose folders and files are absolute.

The release lines are written out: what each changes for each project, by the line's name. Three places of a
stack.toml speak of a line: the stack's own table, an entry of a project for just this line or for a pattern
of lines, and a hashtag with the line's name in it.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack.check import check, check_texts
from cairn.stack.model import Line, Origin, Project, Stack

FILE = "stack.toml"
"""The name of the file that declares a stack; a folder that has one stands for it."""

_LINE = "{line}"  # in a hashtag: the name of the release line
# No ref may have these characters (git help check-ref-format), so that no line has a pattern for its name.
_PATTERN = re.compile(r"[*?\[]")


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
    stack = _with_lines(stack, path)
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


def _with_lines(stack: Stack, path: Path) -> Stack:
    """The stack with its lines written out in every project.

    Args:
        stack: as it was read.
        path: where from, for messages.

    Raises:
        UsageError: a name of a line is a pattern, or a line is of a project or a line that is not there.
    """
    projects = [p.name for p in stack.projects]
    for line, hashtags in stack.lines.items():
        if _PATTERN.search(line):
            raise UsageError(
                f"{path}: {line!r} is not a name of a release line",
                tip="write each line out; patterns belong in the `lines` of a project",
            )
        for name in hashtags:
            if name not in projects:
                raise UsageError(
                    f"{path}: the line {line} names the project {name!r}, which the stack does not have",
                    tip=wording.did_you_mean(name, projects, what="its projects are"),
                )
    changed = tuple(
        msgspec.structs.replace(
            project,
            hashtag=project.hashtag.replace(_LINE, stack.line),
            lines=_lines_of(project, stack, path),
        )
        for project in stack.projects
    )
    return msgspec.structs.replace(stack, projects=changed)


def _lines_of(project: Project, stack: Stack, path: Path) -> dict[str, Line]:
    """What each release line of a stack changes for a project, by the line's name."""
    exact = {name for p in stack.projects for name in p.lines if not _PATTERN.search(name)}
    names = sorted({*stack.lines, stack.line, *exact})
    for key in project.lines:
        if not any(fnmatch.fnmatchcase(name, key) for name in names):  # `filter` ignores case on Windows
            raise UsageError(
                f"{path}: {project.name} has an entry for the line {key!r}, which the stack does not have",
                tip=wording.did_you_mean(key, names, what="its lines are"),
            )
    # The more exact entry wins: patterns come first, then the stack's table, then the line's own entry.
    entries = sorted(project.lines.items(), key=lambda entry: not _PATTERN.search(entry[0]))
    lines = {}
    for name in names:
        origin, hashtag = None, project.hashtag
        for line in (line for key, line in entries if fnmatch.fnmatchcase(name, key)):
            origin, hashtag = line.origin or origin, line.hashtag or hashtag
        own = project.lines[name].hashtag if name in exact & project.lines.keys() else None
        hashtag = (own or stack.lines.get(name, {}).get(project.name, hashtag)).replace(_LINE, name)
        # A line that a project names is one of the stack's, though it may change nothing.
        if name in project.lines or origin is not None or hashtag != project.hashtag:
            lines[name] = Line(origin=origin, hashtag=hashtag)
    return lines
