import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.build.model import BuildRequest
from cairn.stack import Origin, Project, Stack

MakeRequest = Callable[..., BuildRequest]
BACKEND = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def repository(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    return path


def project(name: str) -> Project:
    return Project(
        name=name,
        distribution=name,
        checkout_dir=name,
        origin=Origin(url="u"),
        hashtag="main",
        version_file="",
    )


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRequest:
    """Makes the request to build projects, given by name and the text of their build backend."""
    # These builds compile nothing; the stack's demand for a compiler must not make a test need one.
    monkeypatch.setenv("CXX", "git")

    def make(**backends: str) -> BuildRequest:
        projects = tuple(project(name) for name in backends)
        trees = {
            name: repository(tmp_path / name, {"pyproject.toml": BACKEND, "backend.py": text})
            for name, text in backends.items()
        }
        return BuildRequest(
            stack=Stack(name="s", line="l", targets=("cpu",), projects=projects),
            checkouts=trees,
            output_dir=tmp_path / "out",
            work_dir=tmp_path / "work",
            cache_dir=tmp_path / "cache",
            targets=("cpu",),
            jobs=2,
        )

    return make
