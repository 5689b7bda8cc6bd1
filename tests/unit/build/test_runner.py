import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.build import plan, runner
from cairn.build.request import BuildRequest
from cairn.errors import BuildError
from cairn.stack import Origin, Project, Stack

BACKEND = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
SLOW = """
import pathlib, time
def build_wheel(folder, settings=None, metadata=None):
    pathlib.Path({up!r}).touch()
    time.sleep(600)
"""
FAILING = """
import pathlib, time
def build_wheel(folder, settings=None, metadata=None):
    while not pathlib.Path({up!r}).exists():
        time.sleep(0.01)
    raise SystemExit("the reason it failed")
"""
MakeRequest = Callable[..., BuildRequest]


def project(name: str) -> Project:
    return Project(
        name=name,
        distribution=name,
        checkout_dir=name,
        origin=Origin(url="u"),
        hashtag="main",
        version_file="",
    )


def repository(path: Path, files: dict[str, str]) -> Path:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    return path


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRequest:
    # These builds compile nothing; the stack's demand for a compiler must not make the test need one.
    monkeypatch.setenv("CXX", "git")

    def make(**backends: str) -> BuildRequest:
        tree = {"pyproject.toml": BACKEND}
        return BuildRequest(
            stack=Stack(
                name="s", line="l", targets=("cpu",), projects=tuple(project(name) for name in backends)
            ),
            checkouts={n: repository(tmp_path / n, {**tree, "backend.py": b}) for n, b in backends.items()},
            output_dir=tmp_path / "out",
            work_dir=tmp_path / "work",
            cache_dir=tmp_path / "cache",
            targets=("cpu",),
            jobs=2,
        )

    return make


def test_a_failure_ends_the_build_beside_it_and_is_what_is_reported(
    request_for: MakeRequest, tmp_path: Path
) -> None:
    up = str(tmp_path / "up")
    request = request_for(slow=SLOW.format(up=up), failing=FAILING.format(up=up))
    with pytest.raises(BuildError, match="building failing failed") as caught:
        runner.run(plan.make(request))
    assert any("the reason it failed" in line for line in caught.value.tail)
    assert caught.value.log == request.output_dir / "logs" / "failing.log"
    assert not list(request.output_dir.glob("*.whl"))
