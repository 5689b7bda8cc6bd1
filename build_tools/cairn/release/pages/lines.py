"""The command lines that install what an offer names, as a page shows them and a terminal takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Installer = Literal["pip", "uv"]
COMMANDS: dict[Installer, tuple[str, ...]] = {"pip": ("pip", "install"), "uv": ("uv", "pip", "install")}

_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
# Extras in brackets: in double quotes they are right in every shell, that of Windows included.
_BRACKETS = re.compile(r"[A-Za-z0-9@%+=:,./_\[\]-]+")


def arguments(index_url: str, packages: Sequence[str]) -> tuple[str, ...]:
    """What follows the command, for pip and uv alike: one index, and what to install from it."""
    return ("--index-url", index_url, *packages)


def line(installer: Installer, index_url: str, packages: Sequence[str], *, python: Path | None = None) -> str:
    """The whole line, ready for a shell, for an interpreter; for the active environment where it is None."""
    before, after = around(installer, packages, python=python)
    return f"{before}{_quoted(index_url)}{after}"


def around(installer: Installer, packages: Sequence[str], *, python: Path | None = None) -> tuple[str, str]:
    """What stands before and after the URL of the index, where a page fills that in."""
    command = COMMANDS[installer]
    if python is not None:
        name = str(python)
        command = (name, "-m", *command) if installer == "pip" else (*command, "--python", name)
    return f"{' '.join(map(_quoted, command))} --index-url ", f" {' '.join(map(_quoted, packages))}"


def _quoted(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    return f'"{word}"' if _BRACKETS.fullmatch(word) else shlex.quote(word)
