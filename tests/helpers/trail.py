"""Runs of the program as a newcomer starts it, and what one run of the whole trail has left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import zig

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "external-builds" / "sample"


def shared_cache() -> Path:
    """A folder for what all tests share, those of later runs too."""
    return Path(os.environ.get("CAIRN_TEST_CACHE", ROOT / ".cairn" / "test-cache")).absolute()


def clean_environment(cache: Path, *, own_environments: bool = False) -> dict[str, str]:
    """The caller's variables; Cairn's cache is the test's own, and colours and plugins of pytest are out.

    The environments of builds, and the SDK that a stack makes itself, are shared by all tests, unless
    `own_environments`. SDKs have the compiler that `helpers.zig` makes.
    """
    dropped = ("PYTEST_", "CAIRN_", "GITHUB_ACTIONS", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    shared = shared_cache()
    for folder in () if own_environments else (cache / "build-envs", cache / "sdk"):
        if not folder.is_symlink():
            (shared / folder.name).mkdir(parents=True, exist_ok=True)
            cache.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(shared / folder.name)
    links = f"{kept.get('PIP_FIND_LINKS', '')} {zig.small_wheel(shared).parent.as_uri()}".strip()
    own = {"CAIRN_CACHE_DIR": str(cache), "ZIG_GLOBAL_CACHE_DIR": f"{shared}/zig", "COLUMNS": "200"}
    return kept | own | {"PIP_FIND_LINKS": links}


@dataclass(frozen=True, kw_only=True)
class Trail:
    """A run of `cairn ci run` on the sample stack.

    Attributes:
        work: its work folder.
        cache: Cairn's cache of the run.
        answer: what it printed with `--json`.
        progress: what it wrote to stderr.
        temporary: the folder that it was given for temporary files.
        path: its PATH, without compilers.
        public_key: the public half of the key that it signed with.
    """

    work: Path
    cache: Path
    answer: dict[str, Any]
    progress: str
    temporary: Path
    path: str
    public_key: Path

    @property
    def wheels(self) -> list[Path]:
        """The wheels that it built."""
        return sorted((self.work / "wheels").glob("*.whl"))

    def environment(self) -> dict[str, str]:
        """Variables for commands that go on with what the run made."""
        return clean_environment(self.cache)

    def same_environment(self) -> dict[str, str]:
        """That of the run itself: under another PATH, whose programs may differ, nothing is kept."""
        return self.environment() | {"PATH": self.path}


# Cairn as it is, with a note of each program that it starts (Python's audit events): FILE ARGUMENT...
_WATCHED = """
import runpy, sys
from cairn.platforms import namespaces, posix
log = open(sys.argv.pop(1), "w")
ours = {posix._Guard.program: "guard", namespaces._MAKE: "namespaces"}
def note(event, args):
    if event == "subprocess.Popen":
        words = args[1][args[1].index("--") + 1:] if args[1][0].endswith("/nsenter") else args[1]
        print(next((ours[word] for word in words if word in ours), words[0]), file=log, flush=True)
sys.addaudithook(note)
runpy.run_module("cairn", run_name="__main__", alter_sys=True)
"""


def cairn_watched(
    *words: str | Path, env: Mapping[str, str], log: Path
) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run `cairn` with these words; the names of the programs that it has started, too.

    The process that ends them where Cairn is killed is called `guard`, the one that makes their namespaces
    `namespaces`; a program that enters these (nsenter) is noted by its own name.
    """
    command = [sys.executable, "-c", _WATCHED, str(log), *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=900)
    return done, {Path(line).name for line in log.read_text().splitlines()}


def cairn(
    *words: str | Path, env: Mapping[str, str], cwd: Path | None = None, timeout: float = 900
) -> subprocess.CompletedProcess[str]:
    """Run `cairn` with these words to its end, whatever it answers."""
    command = [sys.executable, "-m", "cairn", *map(str, words)]
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout
    )
