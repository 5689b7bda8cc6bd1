"""One run of the whole trail, shared by the tests of this folder; they belong in one worker."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cairn.release.trust import signers
from helpers.trail import ROOT, SAMPLE, Trail, cairn, clean_environment

collect_ignore = ["upstream"]  # trees of repositories, whose tests are for the suite

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
    signers.create(folder / "keys")
    key = ("--sign-key", folder / "keys" / signers.PRIVATE_NAME)
    done = cairn(*("ci", "run", "--stack", SAMPLE, "--work-dir", work, "--json", *key), env=env)
    assert done.returncode == 0, done.stderr
    return Trail(
        work=work,
        cache=cache,
        answer=json.loads(done.stdout),
        progress=done.stderr,
        temporary=temporary,
        path=env["PATH"],
        public_key=folder / "keys" / signers.PUBLIC_NAME,
    )


@pytest.fixture(scope="session")
def cache_of_nights(base_of_workers: Path) -> Path:
    """Cairn's cache of a machine that runs nights, one for all workers: few ask how wheels are built."""
    return base_of_workers / "cache-of-nights"


@pytest.fixture(scope="session")
def cache_of_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cairn's cache of who reads one page after another: what a page built, the next one has."""
    return tmp_path_factory.mktemp("cache-of-pages")


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new copy of the project at one place: a `.venv` that an earlier test made there stays."""
    folder = tmp_path_factory.getbasetemp() / "project"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and path.name != ".venv":
            shutil.rmtree(path)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
            bytecode = Path(importlib.util.cache_from_source(ROOT / name)) if name.endswith(".py") else None
            if bytecode is not None and bytecode.is_file():  # else each copy would be compiled again
                copied = folder / bytecode.relative_to(ROOT)
                copied.parent.mkdir(exist_ok=True)
                shutil.copy2(bytecode, copied)
    return folder
