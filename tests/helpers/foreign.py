"""Foreign code of each kind, run as Cairn runs it, that writes down what it sees and looks for secrets.

`main` is the program that a test starts in a shell full of variables: the shell, and this program, are then
what foreign code must not look into. Secrets are given to it backwards, since everybody reads command lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs

from cairn import isolation
from cairn.build import execution, plan
from cairn.build.cache import SharedCache
from cairn.build.inputs import variables
from cairn.cli.test.suite import RunSuite
from cairn.errors import BuildError
from cairn.output import silent
from cairn.platforms import landlock, namespaces
from cairn.release.gate import installation
from cairn.sources.git import command
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
import json, os, pathlib, socket
SECRET, HOME, SEEN, ABOVE = {secret!r}[::-1].encode(), {home!r}, {seen!r}, {above}
PLACES, SOCKETS = {places!r}, {sockets!r}

def can(act):
    try:
        return act() is not False
    except OSError:
        return False

def reach(kind, address):
    with socket.socket(kind, socket.SOCK_STREAM) as connection:
        connection.connect(address)

def empty(path):
    os.truncate(path, os.stat(path).st_size)

def look():
    processes = list(pathlib.Path("/proc").glob("[0-9]*"))
    found = [name for name, value in os.environ.items() if SECRET.decode() in value]
    for process in processes:
        for name in {files!r}:
            try:
                data = (process / name).read_bytes()
            except OSError:
                continue
            if SECRET in data:
                found.append(str(process / name))
    for home in (HOME, os.path.expanduser("~")):
        for path in pathlib.Path(home).rglob("*"):
            try:
                if SECRET in path.read_bytes():
                    found.append(str(path))
            except OSError:
                pass
    places = {{name: pathlib.Path(path) for name, path in PLACES.items()}}
    reached = [name for name, path in places.items() if can(lambda: SECRET in path.read_bytes())]
    if can(lambda: open(f"/proc/{{ABOVE}}/mem", "rb").close()):
        found.append("the memory of Cairn")
    above = [path.parent for path in places.values()]
    inside = (*above, pathlib.Path("/etc"))
    tries = {{
        "list": lambda: any(can(lambda: os.listdir(folder)) for folder in (*above, "/", HOME)),
        "write": lambda: any(can(lambda: (folder / "planted").write_text("")) for folder in inside),
        "settings": lambda: can(lambda: open("/proc/sys/kernel/core_pattern", "w").close()),
        "empty": lambda: any(can(lambda: empty(path)) for path in places.values()),
        "signal": lambda: can(lambda: os.kill(ABOVE, 0)),
        "abstract": lambda: can(lambda: reach(socket.AF_UNIX, SOCKETS["abstract"])),
        "path": lambda: can(lambda: reach(socket.AF_UNIX, SOCKETS["path"])),
        "network": lambda: can(lambda: reach(socket.AF_INET, tuple(SOCKETS["network"]))),
        "names": lambda: all(can(lambda: os.stat(path)) for path in places.values()),
        "command lines": lambda: can(lambda: pathlib.Path(f"/proc/{{ABOVE}}/cmdline").read_bytes() != b""),
        "delete": lambda: any(can(lambda: os.unlink(path)) for path in places.values()),
    }}
    reached += [name for name, act in tries.items() if act()] if SOCKETS else []
    with open(SEEN, "a") as file:
        file.write(json.dumps({{"variables": dict(os.environ), "found": found, "reached": reached}}) + "\\n")

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
    """A home folder of a user, below the temporary folder."""
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        yield Path(home)


def _start(
    kind: str, folder: Path, home: Path, secret: str, variables: Mapping[str, str], more: Mapping[str, str]
) -> Path:
    for name in (*CREDENTIALS, "notes"):
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


@contextlib.contextmanager
def _planted(folder: Path, home: Path, secret: str) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Places that nobody names for foreign code, each with the secret, and what listens on this machine."""
    with tempfile.TemporaryDirectory(prefix="else-") as name, contextlib.ExitStack() as stack:
        elsewhere = Path(name)
        places = {
            "option's key": home / CREDENTIALS[-1],
            "logins": home / CREDENTIALS[0],
            "home": home / "notes",
            "temporary key": elsewhere / "key.pem",
            "clone": elsewhere / "clone" / "secret.txt",
            "store": folder.with_name(f"{folder.name}-store") / "state.json",
            "cache": folder / "cache" / "wheels" / "entry",
            "service": Path("/var/tmp", elsewhere.name),  # noqa: S108 - a place of everybody's
        }
        stack.callback(places["service"].unlink, missing_ok=True)
        for path in places.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(secret)
        isolation.conceal(places["temporary key"])
        addresses: dict[str, Any] = {
            "abstract": f"\0{elsewhere.name}",
            "path": str(elsewhere / "socket"),
            "network": ("127.0.0.1", 0),
        }
        for each, address in addresses.items():
            family = socket.AF_INET if each == "network" else socket.AF_UNIX
            server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            server.bind(address)
            server.listen()
            addresses[each] = server.getsockname()
        addresses["abstract"] = f"\0{elsewhere.name}"
        yield {each: str(path) for each, path in places.items()}, addresses


def look(
    secret: str,
    home: Path,
    seen: Path,
    files: tuple[str, ...] = ("environ", "cmdline"),
    places: Mapping[str, str] | None = None,
    sockets: Mapping[str, Any] | None = None,
) -> str:
    """Code that looks for a secret, which is given backwards, and adds what it sees to a file.

    Args:
        secret: what is looked for.
        home: of the user.
        seen: the file, in a place that foreign code can write to.
        files: of each process in /proc.
        places: files that have the secret, by what they stand for.
        sockets: what listens outside: an abstract one, one by its path, one of the network.
    """
    words = {"secret": secret, "home": str(home), "seen": str(seen), "above": os.getpid(), "files": files}
    return _LOOK.format(**words, places=dict(places or {}), sockets=dict(sockets or {}))


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
    home, secret, more = Path(options.home), options.secret, json.loads(options.more)
    if (version := more.pop("version", None)) is not None:
        # Not a shipped kernel: one machine has one, and the table has a column for each.
        landlock.version = lambda: int(version)  # type: ignore[assignment]
    if more.pop("namespaces", "yes") != "yes":
        # Not a shipped machine: as one that gives none, such as a container.
        namespaces.entrance = lambda: ((), ())  # type: ignore[assignment]
    isolation.conceal(home / CREDENTIALS[-1])
    # Shared memory is open to foreign code: what it has seen leaves by it.
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as seen:
        with _planted(folder, home, secret[::-1]) as (places, sockets):
            code = look(secret, home, Path(seen.name), places=places, sockets=sockets)
            try:
                {**KINDS, **TOOLS}[options.kind](folder, code, **more)
            except BuildError as error:
                sys.exit("\n".join((str(error), *error.tail)))
        (folder / "seen.jsonl").write_bytes(seen.read())


def _build(folder: Path, code: str, *, store: str = "", build_env: str = "", sdist: str = "") -> None:
    # The same commit, wherever it is made.
    os.environ |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
    os.environ["GIT_AUTHOR_NAME"] = "a"
    code = "" if store or sdist else code
    request = build.request(folder / "trees", {"a": code + packing.backend(_BACKEND.format(name="a"))})
    if sdist:
        (project,) = request.stack.projects
        project = structs.replace(project, build_requires=("needed",))
        stack = structs.replace(request.stack, projects=(project,))
        request = structs.replace(
            request, stack=stack, pip=PackageSource(find_links=(str(folder / "sdists"),), no_index=True)
        )
    request = structs.replace(
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


def _git(folder: Path, code: str, *settings: str) -> None:
    """A program that the `.git/config` of a tree names, as a build may have left it there."""
    tree = folder / "tree"
    tree.mkdir()
    command.run(tree, "init", "--quiet")
    (tree / ".git" / "look.py").write_text(f"{code}\nimport sys\nsys.stdout.write(sys.stdin.read())\n")
    (tree / ".gitattributes").write_text("*.txt filter=look\n")
    (tree / "a.txt").write_text("text\n")
    program = f"{sys.executable} .git/look.py"
    for setting in (f"filter.look.clean={program}", f"filter.look.smudge={program}", *settings):
        command.run(tree, "config", *setting.split("=", 1))
    command.run(tree, "add", "a.txt")


def _partial_clone(folder: Path, code: str) -> None:
    _git(folder, code, "remote.origin.url=ssh://host/path", "remote.origin.promisor=true")


TOOLS: Mapping[str, Callable[..., None]] = {"git": _git, "git in a partial clone": _partial_clone}
"""Foreign code that tools of ours start: it sees their variables."""
KINDS: Mapping[str, Callable[..., None]] = {
    "build": _build,
    "sdist": _sdist,
    "hipify": _hipify,
    "suite": _suite,
    "smoke": _smoke,
    "trial": _trial,
}
