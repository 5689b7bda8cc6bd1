"""Repositories, projects and requests of builds that compile nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import structs

from cairn.build.model import BuildRequest
from cairn.stack import Origin, Project, Stack

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


class MakeRequest(Protocol):
    """What the fixture `request_for` gives: project name to the text of its build backend."""

    def __call__(self, **backends: str) -> BuildRequest: ...


def repository(path: Path, files: Mapping[str, str]) -> Path:
    """A git repository with one commit of these files."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    return path


def project(name: str, **changes: Any) -> Project:
    """A project whose distribution and folder have its name, with `changes` in some of its fields."""
    made = Project(
        name=name,
        distribution=name,
        checkout_dir=name,
        origin=Origin(url="u"),
        hashtag="main",
        version_file="",
    )
    return structs.replace(made, **changes)


def stand_in_compiler(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put something on PATH that answers as a C++ compiler: builds that compile nothing need none."""
    found = shutil.which("git")
    assert found is not None
    folder.mkdir(parents=True)
    (folder / "g++").symlink_to(found)
    patch.setenv("PATH", os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath))))


def request(folder: Path, backends: Mapping[str, str]) -> BuildRequest:
    """The request to build projects, given by name and the text of their build backend."""
    trees = {
        name: repository(folder / name, {"pyproject.toml": PYPROJECT, "backend.py": text})
        for name, text in backends.items()
    }
    return BuildRequest(
        stack=Stack(name="s", line="l", targets=("cpu",), projects=tuple(map(project, backends))),
        checkouts=trees,
        output_dir=folder / "out",
        work_dir=folder / "work",
        cache_dir=folder / "cache",
        targets=("cpu",),
        jobs=2,
    )


def with_stack(request: BuildRequest, **changes: Any) -> BuildRequest:
    """The request with `changes` in some fields of its stack."""
    return structs.replace(request, stack=structs.replace(request.stack, **changes))


def with_project(request: BuildRequest, **changes: Any) -> BuildRequest:
    """The request with `changes` in some fields of each of its projects."""
    projects = request.stack.projects
    return with_stack(request, projects=tuple(structs.replace(p, **changes) for p in projects))
