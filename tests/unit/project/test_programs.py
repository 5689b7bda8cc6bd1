"""Which modules start programs, and which of these programs are not taken for foreign code."""

from __future__ import annotations

import ast

import pytest

from helpers import starters
from helpers.trail import ROOT

pytestmark = pytest.mark.xdist_group("parsed-package")

PACKAGE = ROOT / "build_tools" / "cairn"

UNCONFINED = {
    "images.py": "docker, podman or buildah, and their logins to registries",
    "pipeline/doctor/look.py": "git, which is asked for the user's configuration",
    "pipeline/night/report.py": "the command that the user has named to notify",
    "pipeline/night/step_run.py": "docker or podman, which confine; cairn with the credentials of a cache",
    "pipeline/repository/github.py": "gh, and the user's login",
    "release/consumers.py": "our pip, which downloads wheels alone, and the user's logins to indexes",
    "release/gate/judgement.py": "the command that the user has named to notify",
    "release/publish/mirror.py": "our pip, which downloads wheels alone, and the user's logins to indexes",
    "release/publish/mirror_lock.py": "uv on our interpreter, which builds nothing",
    "release/publish/resolve.py": "uv on our interpreter, which builds nothing",
    "rocm/binaries.py": "patchelf",
    "sources/git/command.py": "git where it reaches an origin from a mirror of ours, and the user's logins",
    "wheels/rewrite/elf.py": "patchelf",
}
"""The modules that start what may read the user's credentials, each with the program and the reason."""

NETWORKED = {
    "build/backend.py": "a build whose stack asks for it, or whose compiler cache is a server",
    "build/compiler_cache/session.py": "sccache, whose server is asked",
    "build/environments.py": "uv, which resolves build requirements",
    "pipeline/bisect.py": "uv, which installs a set; the user's command",
    "pipeline/install.py": "pip or uv, which installs a set",
    "pipeline/night/step_run.py": "cairn itself, which confines what it starts in turn",
    "release/gate/installation.py": "pip and uv, which install a set on trial",
    "rocm/install.py": "pip, which installs the SDK",
    "sources/git/command.py": "git, which fetches what a partial clone lacks",
    "sources/origins/materialize.py": "pip, which downloads an sdist",
    "testing/suite/attempt.py": "a suite that asks for it",
    "venv.py": "pip, which installs requirements",
}
"""The modules that start confined programs with a network, each with the program."""

STARTERS = {
    "process/run_program.py": "the one room that starts programs",
    "process/children.py": "the one room that starts programs",
    "platforms/landlock.py": "types alone",
    "platforms/namespaces.py": "the helper that makes the namespaces of foreign code",
    "platforms/posix.py": "types alone",
    "platforms/windows.py": "taskkill, which ends what was started",
    "platforms/__init__.py": "types alone",
    "rocm/runtime/_selftest.py": "runs on the machine of a user of the SDK, without Cairn",
    "rocm/runtime/_scripts.py": "runs on the machine of a user of the SDK, without Cairn",
    "sources/manifest/changelog.py": "git, whose output is read until enough has come",
    "testing/builtin_smoke/probe.py": "runs in a tested environment, confined with it",
    "testing/compat/probes/distributed.py": "runs in a tested environment, confined with it",
    "testing/compat/probes/wheel.py": "runs in a tested environment, confined with it",
}
"""The modules that import what starts programs, or call it, each with what for."""


def _starts(node: ast.AST) -> bool:
    modules = {"subprocess", "multiprocessing", "pty"}
    if isinstance(node, ast.Import):
        return not modules.isdisjoint(alias.name.partition(".")[0] for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in modules
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr.startswith(("exec", "spawn", "fork", "posix_spawn", "system", "popen", "startfile"))
    )


def test_one_room_starts_programs_and_the_exceptions_say_what_for(trees: dict[str, ast.Module]) -> None:
    starters = {name for name, tree in trees.items() if any(map(_starts, ast.walk(tree)))}
    assert starters == STARTERS.keys()


def test_what_may_read_credentials_is_listed_with_its_reason(trees: dict[str, ast.Module]) -> None:
    unconfined = {
        name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "confined" and not name.startswith("process/")
    }
    assert unconfined == UNCONFINED.keys()


def test_what_has_a_network_is_listed(trees: dict[str, ast.Module]) -> None:
    networked = {
        name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"process.run", "functools.partial", "_Running"}
        and any(keyword.arg == "network" for keyword in node.keywords)
    }
    assert networked == NETWORKED.keys()


@pytest.mark.parametrize(
    "code",
    [
        "import importlib; importlib.import_module('sub' + 'process').run(['true'])",
        "getattr(__import__('os'), 'sys' + 'tem')('true')",
        "import posix; posix.waitpid(posix.posix_spawn('/bin/true', ['true'], {}), 0)",
        "import multiprocessing as m; p = m.get_context('fork').Process(); p.start(); p.join(); p.close()",
    ],
)
def test_a_program_that_is_started_under_a_different_name_is_noticed(
    code: str, one_room_starts_programs: list[str]
) -> None:
    # The code counts as a module's of the package.
    exec(compile(code, str(PACKAGE / "planted.py"), "exec"), {})  # noqa: S102
    assert {entry.partition(":")[0] for entry in one_room_starts_programs} == {"planted.py"}
    one_room_starts_programs.clear()


def test_what_may_start_programs_in_the_tests_may_in_the_contract() -> None:
    assert starters.ALLOWED.keys() <= STARTERS.keys()
