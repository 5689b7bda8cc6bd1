"""Files that a wheel must have and its build backend leaves out, of the machine and of the tree."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from cairn import files, platforms
from cairn.build.model import BuildRequest
from cairn.errors import PrerequisiteError
from cairn.stack import Carried, Project


def digests(request: BuildRequest, project: Project) -> dict[str, str]:
    """Return path in the wheel to sha256 of each file that comes from the machine.

    Raises:
        PrerequisiteError: a file is missing.
    """
    sources = ((entry.path, _of_machine(entry, request, project)) for entry in _entries(request, project))
    return {path: files.sha256_of(source) for path, source in sources if source is not None}


def missing_members(
    request: BuildRequest, project: Project, tree: Path, members: Collection[str]
) -> dict[str, Path]:
    """Return path in the wheel to the file that it gets, for those that a built wheel lacks.

    Args:
        request: the build.
        project: what was built.
        tree: its source tree, after the build.
        members: what the wheel has.

    Raises:
        PrerequisiteError: a file of the machine is missing.
    """
    missing: dict[str, Path] = {}
    for entry in _entries(request, project):
        source = _of_machine(entry, request, project) if entry.variable else tree / entry.path
        if entry.path not in members and source is not None and source.is_file():
            missing[entry.path] = source
    return missing


def _entries(request: BuildRequest, project: Project) -> Iterator[Carried]:
    for entry in project.carries:
        on = entry.feature is None or entry.feature in request.features
        if on and entry.platform == platforms.here.stack_section():
            yield entry


def _of_machine(entry: Carried, request: BuildRequest, project: Project) -> Path | None:
    if not entry.variable:
        return None
    folder = request.env_of(project).get(entry.variable) or os.environ.get(entry.variable, "")
    if not folder and not entry.required:
        return None
    name = entry.path.rpartition("/")[2]
    source = min(Path(folder).glob(entry.find or name), default=None) if folder else None
    if source is None:
        state = f"{folder} has none" if folder else "is not set"
        raise PrerequisiteError(
            f"{project.distribution} carries {name}, which {entry.variable} leads to; that {state}",
            tip=f"name its folder: --build-env {entry.variable}=FOLDER",
        )
    return source
