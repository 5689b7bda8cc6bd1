"""What a shell is offered after the tab key.

A completer is what argcomplete calls with the beginning of the word, and with what was given before it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli.parser import completion_words
from cairn.errors import CairnError

if TYPE_CHECKING:
    from cairn.stack import Stack


def complete_stack_folders(prefix: str, **_: object) -> list[str]:
    """Folders with a stack, and folders on the way to one."""
    folder = Path(prefix) if prefix.endswith("/") else Path(prefix).parent
    folders = [path for path in sorted(folder.glob("*/")) if not path.name.startswith(".")]
    near = [] if prefix else sorted(Path("external-builds").glob("*/stack.toml"))
    return [*(f"{path}/" for path in folders), *(str(path.parent) for path in near)]


def complete_projects(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The projects of the stack that is named, and what else `checkout` takes."""
    stack = _stack(parsed_args)
    return ["all", "origins", *(project.name for project in stack.projects)] if stack else ["all", "origins"]


def complete_lines(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The release lines of the stack that is named."""
    stack = _stack(parsed_args)
    return list(stack.line_names()) if stack else []


def complete_indexes(**_: object) -> tuple[str, ...]:
    """The channels, and the families of each."""
    from cairn.release.index import keys

    return keys.possible_indexes()


def complete_targets(prefix: str, **_: object) -> list[str]:
    """Targets and families, after those that are on the list already."""
    from cairn import targets as gpu

    # A shell replaces the whole word, `gfx942,gf` too.
    before = prefix[: prefix.rfind(",") + 1]
    return [f"{before}{name}" for name in (gpu.CPU, *gpu.families(), *gpu.known_targets())]


def _stack(parsed_args: argparse.Namespace) -> Stack | None:
    from cairn import stack as stacks

    # argcomplete gives the options that it has parsed so far.
    path = getattr(parsed_args, "stack", None)
    line = completion_words()
    if path is None and "--stack" in line[:-1]:  # it may stand behind the cursor's word, or be parsed later
        path = Path(line[line.index("--stack") + 1])
    try:
        return stacks.load(path) if path is not None else None
    except CairnError:  # nothing to offer; the command itself will say what is wrong
        return None
