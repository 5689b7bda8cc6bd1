"""The differences between operating systems: one module for each, behind the protocol `System`.

It takes paths and running programs, and gives what this system makes of them. `platforms.here` is the
module of the system that runs Cairn; nothing else in the package asks which one that is. (Which platform a
*wheel* is for is a different question: see `cairn.wheels`.) What Python itself hides stays where it is
used, such as `os.pathsep`. What was proved on which system is in docs/reference/platforms.md.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypedDict, TypeVar

from cairn.platforms import posix, windows

Child = subprocess.Popen[bytes]
Reach = tuple[Collection[Path], Collection[Path], Collection[Path]]
"""What a confined program reads, what it writes to as well, and what it cannot read wherever that lies.

A program that writes to `/` is free but for what is hidden.
"""
_T = TypeVar("_T", bound="subprocess.Popen[bytes]")


class OwnGroup(TypedDict, total=False):
    """The arguments of `subprocess.Popen` that put a program into a process group of its own."""

    start_new_session: bool
    creationflags: int


class System(Protocol):
    """The functions of each system's module."""

    def own_group(self) -> OwnGroup:
        """How to start a program so that it and its children can be ended together."""
        ...

    def ask_to_end(self, child: Child) -> None:
        """Ask a program that was started with `own_group`, and its children, to end; it may refuse."""
        ...

    def kill(self, child: Child) -> None:
        """End it and its children at once, also where the program itself has ended already."""
        ...

    def kill_marked(self, mark: str, claimed: int) -> None:
        """Kill the processes that were started with a variable, `NAME=value`, and those that inherited it.

        `claimed` is the id that such a process calls its own: it counts only where the system tells nobody's
        variables.
        """
        ...

    def wait_for(self, pid: int, flags: int) -> tuple[int, int, tuple[float, int] | None]:
        """Wait for a child as `os.waitpid` does; also the core-seconds and the largest memory of its tree."""
        ...

    def expect(self, output: int) -> None:
        """Have the next program, whose output is this pipe, ended if we are killed before it is guarded."""
        ...

    def guard(self, child: Child) -> None:
        """Have a program that was started with `own_group` ended when we are killed (see `guarding`)."""
        ...

    def unguard(self, child: Child) -> None:
        """Stop guarding a program that has ended."""
        ...

    def guarding(self) -> contextlib.AbstractContextManager[None]:
        """Have what starts in this block end with us, however we end: also by a kill that we do not see."""
        ...

    def confined(self, start: Callable[[], _T], reach: Reach) -> _T:
        """Call `start`, which starts a program that reaches nothing of ours but the files of `reach`."""
        ...

    def entrance(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the words that start a command without a network, and files that it inherits; or neither."""
        ...

    def confinement(self) -> str:
        """Describe what keeps files from a confined program, and what stays open; empty for nothing."""
        ...

    def exposed(self) -> str:
        """Describe whose variables a confined program can still read; empty for nobody's."""
        ...

    def try_lock(self, file: int) -> bool:
        """Lock an open file against other processes and threads, or return False where one has locked it."""
        ...

    def home_variables(self, home: Path) -> dict[str, str]:
        """Return the variables that make a folder the home of a program."""
        ...

    def cache_of(self, program: Literal["pip", "uv"], variables: Mapping[str, str]) -> Path:
        """Return the download cache of a program for a user with these variables."""
        ...

    def pip_configurations(self, variables: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
        """Return pip's configuration files: the machine's, and those of a user with these variables.

        Later files win (pip's documentation, "Configuration"; pip/_internal/utils/appdirs.py).
        """
        ...

    def memory(self, root: Path = Path("/")) -> tuple[int, int] | None:
        """Bytes of memory, and those that programs can still have before others are killed.

        Of the machine, or of the container that is given less; None where no one knows. `root` is where
        Linux's own files are.
        """
        ...

    def programs_of(self, environment: Path) -> Path:
        """The folder of a virtual environment's programs."""
        ...

    def python_of(self, environment: Path) -> Path:
        """The interpreter of a virtual environment."""
        ...

    def packages_of(self, environment: Path) -> tuple[Path, ...]:
        """Its site-packages folders, the one for pure packages of our own Python's version first."""
        ...

    def folder_in_the_way(self) -> Collection[int]:
        """The errors (`errno`) of renaming a folder to where a folder is."""
        ...

    def others_may_read(self, path: Path) -> bool:
        """Whether users other than its owner may read a file, as far as its mode tells."""
        ...

    def stack_section(self) -> str:
        """The table of a project's `environment` in stack.toml that holds for builds on this system."""
        ...

    def settings(self) -> Mapping[str, bool]:
        """What an administrator may switch on: `long_paths` and `developer_mode`, where there are such."""
        ...

    def forbidden(self, name: str) -> str:
        """Why no file or folder can have this name, one part of a path; empty where it can."""
        ...

    def config_home(self) -> str:
        """The folder in which programs keep what their users set; it may begin with `~`."""
        ...

    def name(self) -> str:
        """The system as `related_commits` of a torch checkout writes it: `ubuntu`, `centos`, `windows`."""
        ...


here: System
if os.name == "nt":  # noqa: SIM108 - mypy checks each assignment, and not what a conditional gives
    here = windows
else:
    here = posix
