"""Describes the interpreter and the programs on PATH."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from cairn import isolation, process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.pipeline.doctor.machine import PythonFacts

_PROGRAMS = (
    "git",
    "c++",
    "g++",
    "clang++",
    "hipcc",
    "cmake",
    "ninja",
    "ccache",
    "sccache",
    "docker",
    "podman",
    "buildah",
)
_TIMEOUT = 20  # seconds for a version
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
# Settings that change what a checkout has, by their names in `git config` (git-config(1)).
_CHANGING = re.compile(r"core\.(?:autocrlf|eol|symlinks|filemode|fsmonitor|worktree|hookspath)")
_HARMLESS = {
    "core.autocrlf": ("false",),
    "core.symlinks": ("true",),
    "core.filemode": ("true",),
    "core.eol": ("lf",),
}
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")

_ASK = """
import importlib.util, json, pathlib, platform, struct, sys, sysconfig
print(json.dumps({
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "bits": struct.calcsize("P") * 8,
    "venv": importlib.util.find_spec("venv") is not None,
    "ensurepip": importlib.util.find_spec("ensurepip") is not None,
    "headers": pathlib.Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    "system": sys.base_prefix == "/usr",
}))
"""


def python(path: Path) -> PythonFacts:
    """The description of an interpreter, by itself.

    Raises:
        PrerequisiteError: it is not one.
    """
    env = isolation.variables(isolation.Isolation.TOOL)
    try:
        facts = json.loads(process.run([path, "-I", "-c", _ASK], env=env, timeout=_TIMEOUT).output)
        return PythonFacts(path=str(path), **facts)
    except (ProcessError, ValueError, TypeError) as error:
        raise PrerequisiteError(
            f"{path} does not run as a Python",
            tip="name an interpreter with --python, such as /usr/bin/python3",
        ) from error


def programs() -> dict[str, str]:
    """Version by name of the programs that are on PATH."""
    return {name: _version(name) for name in _PROGRAMS if shutil.which(name)}


def git_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's settings of git that change files, and git's variables, which a hook that calls us sets."""
    settings = {name: variables[name] for name in _GIT_VARIABLES if name in variables}
    if shutil.which("git") is None:
        return settings
    words = ["git", "config", "--global", "--list"]
    try:
        result = process.run(words, check=False, timeout=_TIMEOUT, separate_stderr=True)
    except (PrerequisiteError, ProcessError):  # one that does not start, which is a finding of its own
        return settings
    for line in result.output.splitlines() if result.returncode == 0 else ():
        name, _, value = line.partition("=")
        if _CHANGING.fullmatch(name) and value.lower() not in _HARMLESS.get(name, ()):
            settings[name] = value
    return settings


def _version(name: str) -> str:
    try:
        result = process.run([name, "--version"], timeout=_TIMEOUT, check=False)
    except (PrerequisiteError, ProcessError):
        return ""
    match = _VERSION.search(result.output.partition("\n")[0]) if result.returncode == 0 else None
    return match[0] if match else ""
