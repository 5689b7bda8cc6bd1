"""Foreign code of each kind, run as Cairn runs it, that writes down what it sees and looks for secrets.

`main` is the program that a test starts in a shell full of variables: the shell, and this program, are then
what foreign code must not look into. Secrets are given to it backwards, since everybody reads command lines.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from cairn import isolation
from cairn.build import execution, plan
from cairn.build.cache import SharedCache
from cairn.build.inputs import variables
from cairn.cli.test.suite import RunSuite
from cairn.errors import BuildError
from cairn.output import silent
from cairn.platforms import landlock
from cairn.release.gate import installation
from cairn.sources.hipify import run as hipify
from cairn.testing.install_set import Tested
from cairn.testing.smoke import SmokeRequest, run_smoke
from cairn.venv import PackageSource
from helpers import build, packing, suites
from helpers.packing import write_wheel
from helpers.testing import set_of

needs_confinement = pytest.mark.skipif(
    landlock.version() < 2 and os.geteuid() != 0, reason="this kernel has no Landlock, and we are not root"
)

# Where the job's secrets are: in the user's home, beside the variables of every program above.
CREDENTIALS = (
    ".aws/credentials",
    ".netrc",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".git-credentials",
    "keys/releaser.pem",  # which an option has named
)

_LOOK = """
import json, os, pathlib
SECRET, HOME, SEEN, ABOVE = {secret!r}[::-1].encode(), {home!r}, {seen!r}, {above}

def look():
    found = [name for name, value in os.environ.items() if SECRET.decode() in value]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for name in {files!r}:
            try:
                data = (process / name).read_bytes()
            except OSError:
                continue
            if SECRET in data:
                found.append(str(process / name))
    try:
        open(f"/proc/{{ABOVE}}/mem", "rb").close()
        found.append("the memory of Cairn")
    except OSError:
        pass
    for home in (HOME, os.path.expanduser("~")):
        for path in pathlib.Path(home).rglob("*"):
            try:
                if SECRET in path.read_bytes():
                    found.append(str(path))
            except OSError:
                pass
    with open(SEEN, "a") as file:
        file.write(json.dumps({{"variables": dict(os.environ), "found": found}}) + "\\n")

look()
"""
_BACKEND = """
import os, subprocess, time

def build_wheel(folder, settings=None, metadata=None):
    Path("a.cpp").write_text("const char *when = __DATE__ __TIME__; int a() {{ return 1; }}")
    subprocess.run(["g++", "-c", "a.cpp", "-o", "a.o"], check=True)
    text = "FLAVOUR = %r\\nWHEN = %r\\nOBJECT = %r\\nREST = %r\\n" % (
        os.environ.get("EXT_FLAVOUR"),
        time.strftime("%H:%M %Z", time.localtime(0)),
        hashlib.sha256(Path("a.o").read_bytes()).hexdigest(),
        sorted(item for item in os.environ.items() if os.sep not in item[1] and item[0] != "MAKEFLAGS"),
    )
    Path("a.cpp").unlink(), Path("a.o").unlink()
    return write_wheel(folder, "{name}", "1.0", {{"{name}.py": text}}).name
"""


def start(kind: str, folder: Path, *, secret: str, variables: Mapping[str, str], **more: str) -> Path:
    """Run the foreign code of a kind from a shell with these variables; gives the file with what it saw."""
    folder.mkdir(parents=True)
    with home_folder() as home:
        return _start(kind, folder, home, secret, variables, more)


@contextlib.contextmanager
def home_folder() -> Iterator[Path]:
    """A folder in which files can be hidden: not below /tmp, where nothing can be and Cairn may be."""
    places = (Path(__file__).resolve().parents[2] / ".cairn", Path.home() / ".cache" / "cairn-tests")
    shared = [
        any(above.stat().st_mode & stat.S_ISVTX for above in place.parents if above.exists())
        for place in places
    ]
    if all(shared):
        pytest.skip(
            "the repository and the home folder are both below a folder of everybody's temporary files"
        )
    place = places[shared.index(False)]
    place.mkdir(exist_ok=True, parents=True)
    with tempfile.TemporaryDirectory(dir=place, prefix="home-") as home:
        yield Path(home)
    with contextlib.suppress(OSError):  # others may have one there, too
        place.rmdir()


def _start(
    kind: str, folder: Path, home: Path, secret: str, variables: Mapping[str, str], more: Mapping[str, str]
) -> Path:
    for name in CREDENTIALS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"machine example.com login me password {secret}\n")
    tests = Path(__file__).resolve().parents[1]
    program = f"import sys; sys.path[:0] = [{str(tests)!r}]; from helpers import foreign; foreign.main()"
    words = [
        sys.executable,
        "-I",
        "-c",
        program,
        kind,
        str(folder),
        secret[::-1],
        str(home),
        json.dumps(more),
    ]
    # The shell has more to do afterwards, so that it stays: as that of a job does.
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(words)}; exit $?"],
        env={**variables, "HOME": str(home), "CAIRN_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return folder / "seen.jsonl"


def look(secret: str, home: Path, seen: Path, files: tuple[str, ...] = ("environ", "cmdline")) -> str:
    """Code that looks for a secret, which is given backwards, and adds what it sees to a file.

    Args:
        secret: what is looked for.
        home: of the user.
        seen: the file.
        files: of each process in /proc.
    """
    return _LOOK.format(secret=secret, home=str(home), seen=str(seen), above=os.getpid(), files=files)


def read(seen: Path) -> list[dict[str, Any]]:
    """What each run of the code wrote down."""
    return [json.loads(line) for line in seen.read_text().splitlines()]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser()
    for name in ("kind", "folder", "secret", "home", "more"):
        parser.add_argument(name)
    options = parser.parse_args()
    folder = Path(options.folder)
    isolation.conceal(Path(options.home) / CREDENTIALS[-1])
    code = look(options.secret, Path(options.home), folder / "seen.jsonl")
    try:
        KINDS[options.kind](folder, code, **json.loads(options.more))
    except BuildError as error:
        sys.exit("\n".join((str(error), *error.tail)))


def _build(folder: Path, code: str, *, store: str = "", build_env: str = "", sdist: str = "") -> None:
    # The same commit, wherever it is made.
    os.environ |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
    os.environ["GIT_AUTHOR_NAME"] = "a"
    code = "" if store or sdist else code
    request = build.request(folder / "trees", {"a": code + packing.backend(_BACKEND.format(name="a"))})
    if sdist:
        (project,) = request.stack.projects
        project = msgspec.structs.replace(project, build_requires=("needed",))
        stack = msgspec.structs.replace(request.stack, projects=(project,))
        request = dataclasses.replace(
            request, stack=stack, pip=PackageSource(find_links=(str(folder / "sdists"),), no_index=True)
        )
    request = dataclasses.replace(
        request,
        output_dir=folder / "out",
        build_env=variables.parse_build_env(build_env.split(), request.stack),
        shared_cache=SharedCache(url=store) if store else None,
    )
    (wheel,) = execution.run(plan.make(request))
    (folder / "built.json").write_text(json.dumps({"origin": wheel.origin, "wheel": str(wheel.wheel)}))


def _sdist(folder: Path, code: str) -> None:
    tree = folder / "needed-1.0"
    tree.mkdir()
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
    (tree / "pyproject.toml").write_text(build.PYPROJECT)
    (tree / "backend.py").write_text(code + packing.backend(_BACKEND.format(name="needed")))
    (folder / "sdists").mkdir()
    with tarfile.open(folder / "sdists" / "needed-1.0.tar.gz", "w:gz") as archive:
        archive.add(tree, tree.name)
    _build(folder, code, sdist="yes")


def _hipify(folder: Path, code: str) -> None:
    program = folder / "tree" / hipify.BUILD_AMD
    program.parent.mkdir(parents=True)
    program.write_text(code)
    tree = folder / "tree"
    hipify.execute(tree, "build_amd", shown=tree, python=Path(sys.executable), say=silent)


_TEST = "\ndef test_it():\n    pass\n"


def _suite(folder: Path, code: str) -> None:
    tested = Tested(
        python=Path(sys.executable),
        variables=RunSuite(sources_dir=folder, output_dir=folder / "results").variables(),
    )
    request = suites.request_of(folder, {"test_it.py": code + _TEST}, tested=tested)
    assert suites.run_and_judge(request).judgement.verdict == "passed", suites.log_of(request)


def _smoke(folder: Path, code: str) -> None:
    wheel = write_wheel(folder / "wheels", "alpha", "1.0", {"alpha/__init__.py": code})
    (folder / "tests").mkdir()
    (folder / "tests" / "test_it.py").write_text(code + _TEST)
    result = run_smoke(
        SmokeRequest(
            wheel_set=set_of([wheel]),
            work_dir=folder / "work",
            find_links=(str(folder / "wheels"),),
            smoke_tests=(folder / "tests",),
        )
    )
    assert result.record.verdict == "passed", (result.failures, result.log.read_text())


def _trial(folder: Path, code: str) -> None:
    """The trial installation of the gate: a wheel's `.pth` runs in whatever its environment starts."""
    files = {"alpha.py": code, "alpha.pth": "import alpha\n"}
    wheel = write_wheel(folder / "simple" / "alpha", "alpha", "1.0", files)
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    for installer in get_args(installation.Installer):
        url = (folder / "simple").as_uri()
        trial = installation.install(installer, ["alpha==1.0"], index_url=url, python=Path(sys.executable))
        assert trial.installed == ("alpha==1.0",), trial


KINDS: Mapping[str, Callable[..., None]] = {
    "build": _build,
    "sdist": _sdist,
    "hipify": _hipify,
    "suite": _suite,
    "smoke": _smoke,
    "trial": _trial,
}
