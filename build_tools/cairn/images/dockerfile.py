"""The Dockerfiles that there are, and what one of them says before its first step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.output import wording

SUFFIX = ".Dockerfile"
FOLDER = "dockerfiles"
_ARGUMENT = re.compile(r"^ARG ([A-Za-z_][A-Za-z0-9_]*)(?:=(\S*))?\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Dockerfile:
    """How one image is built.

    Attributes:
        path: of the file; the image is called like it. What it copies is beside it.
        text: the whole of it.
    """

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The image's."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def arguments(self) -> Mapping[str, str]:
        """Its build arguments with their defaults; one that is declared again keeps its first."""
        arguments: dict[str, str] = {}
        for name, default in _ARGUMENT.findall(self.text):
            arguments[name] = arguments.get(name) or default
        return arguments


def folder(start: Path) -> Path:
    """The `dockerfiles/` of a folder or of one above it, else that of the checkout Cairn runs from.

    Raises:
        UsageError: there is none.
    """
    ours = Path(__file__).resolve().parents[3]
    for place in (start.absolute(), *start.absolute().parents, ours):
        if any((place / FOLDER).glob(f"*{SUFFIX}")):
            return place / FOLDER
    raise UsageError(f"there is no folder {FOLDER} here", tip="name a Dockerfile by its path")


def find(name: str, start: Path) -> Dockerfile:
    """The Dockerfile of an image.

    Args:
        name: of the image, or the path of a Dockerfile.
        start: the folder to look in, and upwards from.

    Raises:
        UsageError: there is none of that name.
    """
    path = Path(name)
    if not path.is_file():
        if "/" in name or "\\" in name:
            raise UsageError(f"there is no Dockerfile {name}")
        place = folder(start)
        path = place / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
        if not path.is_file():
            known = sorted(file.name.removesuffix(SUFFIX) for file in place.glob(f"*{SUFFIX}"))
            raise UsageError(
                f"there is no image {name!r} in {place}",
                tip=wording.did_you_mean(name, known, what="the images are"),
            )
    return Dockerfile(path=path, text=path.read_text(encoding="utf-8"))
