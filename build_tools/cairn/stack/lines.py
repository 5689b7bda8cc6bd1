"""The release lines of a stack, written out: what each changes for each project, by the line's name.

Three places of a stack.toml speak of a line: the stack's own table, an entry of a project for just this line
or for a pattern of lines, and a hashtag with the line's name in it.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import msgspec

from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack.model import Line, Project, Stack

_LINE = "{line}"  # in a hashtag: the name of the release line
# No ref may have these characters (git help check-ref-format), so that no line has a pattern for its name.
_PATTERN = re.compile(r"[*?\[]")


def with_lines(stack: Stack, path: Path) -> Stack:
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
