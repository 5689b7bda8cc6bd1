"""What foreign code sees: a short list of variables, and none of the secrets of the job that runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.build.compiler_cache import launchers
from cairn.build.engine import compile_jobs
from cairn.platforms import landlock, namespaces
from cairn.sources.git import command
from helpers import foreign
from helpers.trail import ROOT

SECRET = "f4ke-s3cr3t-0f-a-j0b"

# What has been seen to change wheels, tests or their results, and what jobs hold.
STEERING = (
    *("EXT_FLAVOUR", "BLAS", "MKLROOT", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "SKBUILD_CMAKE_ARGS"),
    *("COMPILER_PATH", "GPU_ARCHS", "RUSTFLAGS", "FFMPEG_ROOT", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
    *(
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
        "CMAKE_PREFIX_PATH",
        "CMAKE_GENERATOR",
    ),
    *("USE_FBGEMM", "BUILD_TEST", "DEBUG", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "ROCM_PATH", "HIP_PATH"),
    *("HSA_OVERRIDE_GFX_VERSION", "CONDA_PREFIX", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "DESTDIR"),
    *("ARCHFLAGS", "SETUPTOOLS_SCM_PRETEND_VERSION", "DIST_EXTRA_CONFIG", "MAKEFLAGS", "CARGO_HOME"),
    *("CCACHE_SLOPPINESS", "SCCACHE_BUCKET", "XDG_CONFIG_HOME", "NIX_CFLAGS_COMPILE", "TRITON_BUILD_UV"),
)
REFUSED = (  # not even by name
    *("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTEST_ADDOPTS"),
    *("PYTEST_PLUGINS", "PIP_NO_BINARY", "PIP_CONSTRAINT", "UV_INDEX", "GIT_AUTHOR_NAME", "CAIRN_CONFIG"),
)
SECRETS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "GITHUB_TOKEN"),
    *("ACTIONS_RUNTIME_TOKEN", "HF_TOKEN", "TWINE_PASSWORD", "SCCACHE_WEBDAV_TOKEN"),
)
# Read by Cairn or by those who start it, before anything foreign runs: they must name something real.
HARMLESS = {"PYTEST_ADDOPTS": "-k nothing", "MAKEFLAGS": "-s", "PYTHONWARNINGS": "ignore"}

Seen = Callable[[str], list[dict[str, Any]]]


def shell(folder: Path) -> dict[str, str]:
    """The variables of a shell that has everything set."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("raise SystemExit('it was imported')")
    everything = {name: HARMLESS.get(name, "/from/the/shell") for name in (*STEERING, *REFUSED)}
    return {
        **everything,
        "PYTHONPATH": str(folder / "site"),
        **{name: f"{SECRET}-{name}" for name in SECRETS},
        "PATH": os.environ["PATH"],
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "TERM": "dumb",
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What the foreign code of a kind saw, run once from such a shell."""
    known: dict[str, list[dict[str, Any]]] = {}

    def of(kind: str) -> list[dict[str, Any]]:
        if kind not in known:
            known[kind] = []  # where it fails, it is not tried again for each variable
            folder = tmp_path_factory.mktemp(kind)
            file = foreign.start(kind, folder / "run", secret=SECRET, variables=shell(folder))
            known[kind] = foreign.read(file)
        assert known[kind], f"the code of the kind {kind} did not run"
        return known[kind]

    return of


@pytest.mark.parametrize("kind", foreign.KINDS)
@pytest.mark.parametrize("name", [*STEERING, *REFUSED, *SECRETS])
def test_no_variable_of_the_shell_reaches_foreign_code(kind: str, name: str, seen: Seen) -> None:
    # What Cairn sets by itself, or a suite for its own tests, is not what the shell has.
    values = {run["variables"].get(name) for run in seen(kind)}
    assert not [value for value in values if value and ("/from/the/shell" in value or SECRET in value)]
    assert values <= {None} or name in {"PYTHONPATH", "PYTHONWARNINGS", "MAKEFLAGS"}


@pytest.mark.parametrize("kind", foreign.KINDS)
def test_one_locale_one_time_zone_and_a_home_of_its_own(kind: str, seen: Seen) -> None:
    for run in seen(kind):
        variables = run["variables"]
        assert (variables["LC_ALL"], variables["TZ"]) == ("C.UTF-8", "UTC")
        assert "/home-" not in variables["HOME"]


@foreign.needs_confinement
@pytest.mark.parametrize("kind", foreign.KINDS)
def test_foreign_code_that_searches_finds_no_secret_of_the_job(kind: str, seen: Seen) -> None:
    assert [run["found"] for run in seen(kind)] == [[] for _ in seen(kind)]


# The columns of the table in docs/explanation/isolation.md, each with the version of Landlock it stands for.
# The first is with namespaces, the others are without.
COLUMNS = {"namespaces": 6, "Linux 6.12": 6, "Linux 6.2": 3, "Linux 5.19": 2, "root, no Landlock": 0}
HERE = next(
    name
    for name, version in COLUMNS.items()
    if landlock.version() >= version and (name != "namespaces" or namespaces.are_here())
)
# Its rows, each with what is tried.
ROWS = {
    "read the variables and memory of Cairn, its shell and the runner": ("found",),
    "read the private keys that options, variables or settings name": ("option's key", "temporary key"),
    "read the logins in your home": ("logins",),
    "read the rest of your home, and what lies in `/tmp`, `/var`, `/run`, `/srv`": ("home", "service"),
    "read other clones, Cairn's cache and the store's folder": ("clone", "cache", "store"),
    "list folders there": ("list",),
    "write, move and delete files there": ("write", "delete"),
    "empty files there": ("empty",),
    "change the kernel's settings (as root)": ("settings",),
    "send signals to your processes": ("signal",),
    "connect to abstract sockets": ("abstract",),
    "connect to sockets by their paths (Docker, an ssh agent)": ("path",),
    "connect to the network, a cloud's metadata service too": ("network",),
    "connect to them from what installs packages (pip, uv)": ("network",),
    "see names, sizes and times of files, where it knows the path": ("names",),
    "read the command lines of processes": ("command lines",),
}


def table() -> dict[tuple[str, str], str]:
    """The table of the page, by row and column."""
    text = (ROOT / "docs" / "explanation" / "isolation.md").read_text()
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    (head,) = (words for words in lines if words[0] == "foreign code tries to")
    rows = {words[0]: words[1:] for words in lines if words[0] in ROWS}
    assert list(rows) == list(ROWS)
    return {(row, column): cell for row in rows for column, cell in zip(head[1:], rows[row], strict=True)}


def cells_of(column: str, *, installs: bool) -> dict[str, str]:
    """The cells of a column by their rows; of the two of the network, the one that is for the program."""
    left_out = list(ROWS)[-4 if installs else -3]
    return {row: cell for (row, name), cell in table().items() if name == column and row != left_out}


def holds(cell: str, row: str, run: dict[str, Any]) -> bool:
    """Whether a run of foreign code met what a cell of the table says."""
    tried = ROWS[row]
    reached = [name for name in tried if name in run["reached"]]
    if row.startswith("read the variables"):
        processes = re.compile(r"/proc/\d+/environ|the memory of Cairn")
        reached = list(filter(processes.fullmatch, run["found"]))
    return {"shut": not reached, "open": reached == list(tried)}[cell]


@foreign.needs_confinement
@pytest.mark.parametrize("kind", [*foreign.KINDS, *foreign.TOOLS])
def test_each_kind_of_foreign_code_meets_what_the_table_says(kind: str, seen: Seen) -> None:
    cells = cells_of(HERE, installs=kind == "sdist")
    for run in seen(kind):
        assert [row for row, cell in cells.items() if not holds(cell, row, run)] == []


def test_a_partial_clone_has_logins_only_where_its_configuration_can_name_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text(SECRET)
    (tmp_path / "tree").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))

    def can_read() -> bool:
        variables = command.environment()
        (reads, _, hidden), network = command.reach_of(tmp_path / "tree", ["status"], variables, {})
        assert network is (tmp_path / ".ssh" in reads)
        return network and tmp_path / ".ssh" not in hidden

    for text, expected in (
        ('[remote "origin"]\n\turl = ssh://host/path\n', False),
        ('[remote "origin"]\n\turl = ssh://host/path\n\tpromisor = true\n', True),
        ('[remote "origin"]\n\turl = ext::sh -c look\n\tpromisor = true\n', False),
        ('[remote "origin"]\n\tpromisor = true\n\tuploadpack = look\n', False),
        ('[remote "origin"]\n\tpromisor = true\n[include]\n\tpath = more\n', False),
        ('[remote "origin"] vcs = look\n\tpromisor = true\n', False),
        ('[core]\n\tsshCommand = look\n[remote "origin"]\n\tpromisor = true\n', False),
    ):
        command.run(tmp_path / "tree", "init", "--quiet")
        with (tmp_path / "tree" / ".git" / "config").open("a") as file:
            file.write(text)
        assert can_read() is expected, text
        shutil.rmtree(tmp_path / "tree" / ".git")


@foreign.needs_confinement
@pytest.mark.skipif(os.geteuid() != 0, reason="the last column is of root, and one row asks it")
@pytest.mark.parametrize("column", COLUMNS)
def test_older_kernels_shut_what_the_table_says(column: str, tmp_path: Path) -> None:
    if landlock.version() < COLUMNS[column]:
        pytest.skip("this kernel has an older Landlock")
    if column == "namespaces" != HERE:
        pytest.skip("this machine gives no namespaces")
    variables = {"PATH": os.environ["PATH"], "TOKEN": SECRET}
    asked = {"version": str(COLUMNS[column]), "namespaces": "yes" if column == "namespaces" else ""}
    file = foreign.start("hipify", tmp_path / "run", secret=SECRET, variables=variables, **asked)
    (run,) = foreign.read(file)
    cells = cells_of(column, installs=False)
    assert [row for row, cell in cells.items() if not holds(cell, row, run)] == []


@pytest.mark.skipif(HERE != "namespaces", reason="this machine gives no namespaces")
@pytest.mark.parametrize("column", ["Linux 5.19", "root, no Landlock"])
def test_namespaces_shut_abstract_sockets_and_the_network_on_older_kernels(
    column: str, tmp_path: Path
) -> None:
    variables, version = {"PATH": os.environ["PATH"], "TOKEN": SECRET}, str(COLUMNS[column])
    file = foreign.start("hipify", tmp_path / "run", secret=SECRET, variables=variables, version=version)
    (run,) = foreign.read(file)
    shut = {"connect to abstract sockets", "connect to the network, a cloud's metadata service too"}
    cells = cells_of(column, installs=False) | dict.fromkeys(shut, "shut")
    assert [row for row, cell in cells.items() if not holds(cell, row, run)] == []


def wheel_of(folder: Path) -> tuple[str, bytes]:
    built = json.loads((folder / "built.json").read_text())
    return built["origin"], Path(built["wheel"]).read_bytes()


def text_of(folder: Path) -> str:
    with zipfile.ZipFile(json.loads((folder / "built.json").read_text())["wheel"]) as archive:
        return archive.read("a.py").decode()


def test_builds_from_two_shells_are_the_same_bytes_and_may_share_a_wheel(tmp_path: Path) -> None:
    clean = {"PATH": os.environ["PATH"]}
    full = {**shell(tmp_path), "EXT_FLAVOUR": "fromA"}
    store = str(tmp_path / "store")
    foreign.start("build", tmp_path / "a", secret=SECRET, variables=full, store=store)
    foreign.start("build", tmp_path / "b", secret=SECRET, variables=clean, store=store)
    foreign.start("build", tmp_path / "c", secret=SECRET, variables=clean, store=str(tmp_path / "other"))
    (_, first), (origin, fetched), (own, again) = (wheel_of(tmp_path / name) for name in "abc")
    assert (origin, own) == ("shared", "built")
    assert first == fetched == again
    assert "FLAVOUR = None\nWHEN = '00:00 UTC'" in text_of(tmp_path / "a")


def test_what_is_named_reaches_the_build_and_its_wheel_is_shared_with_none_that_does_not_name_it(
    tmp_path: Path,
) -> None:
    clean, store = {"PATH": os.environ["PATH"]}, str(tmp_path / "store")
    given = {name: f"-D{name}" if name.endswith("FLAGS") else "named" for name in STEERING}
    del given["MAKEFLAGS"]  # whose job server is Cairn's own
    given |= {"CC": "gcc", "CXX": "g++", "COMPILER_PATH": "", "LD_LIBRARY_PATH": ""}
    named = " ".join(f"{name}={value}" for name, value in given.items())
    foreign.start("build", tmp_path / "a", secret=SECRET, variables=clean, store=store, build_env=named)
    text = text_of(tmp_path / "a")
    assert not [name for name, value in given.items() if repr((name, value)) not in text]
    foreign.start("build", tmp_path / "b", secret=SECRET, variables=clean, store=store)
    (_, first), (origin, second) = (wheel_of(tmp_path / name) for name in "ab")
    assert origin == "built"
    assert first != second


@pytest.mark.parametrize(
    "ask", ["the version of ninja", "the version of make", "clang of hipcc", "a compiler"]
)
def test_what_a_package_of_a_build_brought_is_asked_without_the_secrets_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """`ninja` on a build's PATH is the program of a wheel that its requirements name."""
    with foreign.home_folder() as home, tempfile.NamedTemporaryFile("r", dir="/dev/shm") as seen:
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").write_text(SECRET)
        (tmp_path / "bin").mkdir()
        for name in ("ninja", "make", "hipconfig", "g++"):
            program = tmp_path / "bin" / name
            program.write_text(
                f"#!/bin/sh\nenv >>{seen.name}; cat {home}/.aws/credentials >>{seen.name}; echo 1.0\n"
            )
            program.chmod(0o755)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
        if ask == "the version of ninja":
            compile_jobs.speaks(path)
        elif ask == "the version of make":
            compile_jobs.without_old_make(path, tmp_path / "make")
        elif ask == "clang of hipcc":
            variables = {"ROCM_HOME": str(tmp_path), "PATH": path}
            launchers.hip_clang(variables, None)
        else:
            launchers.keeps_device_code(tmp_path / "bin" / "g++")
        text = seen.read()
    assert "PATH=" in text
    assert f"HOME={home}\n" not in text
    assert f"KEY={SECRET}" not in text
    if landlock.version() >= 2:
        assert SECRET not in text
