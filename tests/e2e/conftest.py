"""One run of the whole trail, shared by the tests of this folder; they belong in one worker."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "external-builds" / "sample"

Run = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment(cache: Path) -> dict[str, str]:
    """The caller's variables; Cairn's cache is the test's own, and colours and plugins of pytest are out."""
    dropped = ("PYTEST_", "CAIRN_", "GITHUB_ACTIONS", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    shared = os.environ.get("CAIRN_TEST_CACHE", str(ROOT / ".cairn" / "test-cache"))
    return kept | {"CAIRN_CACHE_DIR": str(cache), "ZIG_GLOBAL_CACHE_DIR": f"{shared}/zig", "COLUMNS": "200"}


@dataclass(frozen=True, kw_only=True)
class Trail:
    """A run of `cairn ci run` on the sample stack."""

    work: Path
    cache: Path
    answer: dict[str, Any]
    progress: str
    temporary: Path
    path: str

    @property
    def wheels(self) -> list[Path]:
        return sorted((self.work / "wheels").glob("*.whl"))

    def environment(self) -> dict[str, str]:
        return clean_environment(self.cache)

    def same_environment(self) -> dict[str, str]:
        """That of the run itself: under another PATH, whose programs may differ, nothing is kept."""
        return self.environment() | {"PATH": self.path}


def cairn(*words: str | Path, env: dict[str, str], **given: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn", *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=900, **given)


# A newcomer's machine has none of these; the SDK brings its own.
COMPILERS = re.compile(
    r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|hipcc|nvcc|ld|lld|make|cmake|ninja)(-[\d.]+)?"
)


def path_without_compilers(folder: Path) -> str:
    """A PATH of one folder, with all that PATH has but compilers and what goes with them."""
    folder.mkdir()
    for entry in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in Path(entry).iterdir():
            if not COMPILERS.fullmatch(program.name) and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.fixture(scope="session")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Trail:
    folder = tmp_path_factory.mktemp("trail é and spaces")
    work, cache = folder / "work", folder / "cache"
    temporary = folder / "temporary"
    temporary.mkdir()
    env = clean_environment(cache) | {
        "PATH": path_without_compilers(folder / "bin"),
        "TMPDIR": str(temporary),
    }
    assert not any(shutil.which(name, path=env["PATH"]) for name in ("cc", "c++", "g++", "clang++", "hipcc"))
    done = cairn(*("ci", "run", "--stack", SAMPLE, "--work-dir", work, "--json"), env=env)
    assert done.returncode == 0, done.stderr
    return Trail(
        work=work,
        cache=cache,
        answer=json.loads(done.stdout),
        progress=done.stderr,
        temporary=temporary,
        path=env["PATH"],
    )
