"""Find the machine's Pythons by version or path, and query them.

`find` takes a version (`3.12`) or a path and gives an `Interpreter`; `own` is the one that
runs Cairn. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cairn import files, isolation, platforms, process, requirements, venv
from cairn.errors import PrerequisiteError, ProcessError, UsageError

_BASE_OF_CONDA = ("base", "root")
_TIMEOUT = 60.0  # seconds that an interpreter may take to say what it is
# What `describe` returns. A free-threaded Python (PEP 703) has its own ABI.
_ASK = """
import importlib.util, json, pathlib, platform, struct, sys, sysconfig
has = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "release": sys.version,
    "version": platform.python_version(),
    "platform": sysconfig.get_platform(),
    "implementation": platform.python_implementation(),
    "bits": struct.calcsize("P") * 8,
    "free": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "pip": has("pip"),
    "venv": has("venv"),
    "ensurepip": has("ensurepip"),
    "headers": pathlib.Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    "system": sys.base_prefix == "/usr",
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A CPython of the machine.

    Attributes:
        path: its program.
        version: such as `3.12`.
        release: its `sys.version`: release, build, compiler.
        platform: what its wheels are for (PEP 425), such as `linux_x86_64`.
        has_pip: it can be asked for `-m pip`.
        has_headers: its `Python.h` is there.
    """

    path: Path
    version: str
    release: str
    platform: str
    has_pip: bool = field(default=True, compare=False)
    has_headers: bool = field(default=True, compare=False)

    @property
    def tag(self) -> str:
        """The tag of its wheels, such as `cp312` (PEP 425)."""
        return f"cp{self.version.replace('.', '')}"


@functools.cache
def current() -> Interpreter:
    """The interpreter that runs Cairn."""
    return Interpreter(
        path=Path(sys.executable),
        version=f"{sys.version_info.major}.{sys.version_info.minor}",
        release=sys.version,
        platform=_tag(sysconfig.get_platform()),
        has_headers=Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    )


def find(word: str) -> Interpreter:
    """The interpreter that a user names: by its version, `3.12`, or by its path.

    A version is looked for in this order: Cairn's own interpreter, `PATH`, the versions of pyenv, where uv
    looks (its own Pythons, the registry of Windows).

    Raises:
        UsageError: it is neither, or not an interpreter that wheels can be built for.
        PrerequisiteError: the machine has no such Python.
    """
    if not requirements.PYTHON.fullmatch(word):
        return _at(word)
    if word == current().version:
        return current()
    if (interpreter := next(of_version(word), None)) is not None:
        return interpreter
    raise PrerequisiteError(
        f"this machine has no Python {word}",
        tip=f"install it, as with: uv python install {word}; or give the path of its program",
    )


def of_version(version: str) -> Iterator[Interpreter]:
    """Find the interpreters of a version on this machine, such as `3.12`; nothing is downloaded."""
    for candidate in _candidates(version):
        with contextlib.suppress(UsageError):  # pyenv's stand-ins for versions that are not switched on
            interpreter = ask(candidate)
            if interpreter.version == version:
                yield interpreter


def find_all(words: Sequence[str]) -> tuple[Interpreter, ...]:
    """The interpreters that a user names, in that order.

    Raises:
        UsageError: two of them are of one version, or as in `find`.
        PrerequisiteError: the machine lacks one.
    """
    interpreters = [find(word) for word in words]
    for number, interpreter in enumerate(interpreters):
        if interpreter.version in {earlier.version for earlier in interpreters[:number]}:
            raise UsageError(
                f"{', '.join(words)} name Python {interpreter.version} twice", tip="name each version once"
            )
    return tuple(interpreters)


def describe(path: Path) -> dict[str, Any]:
    """Return the facts of an interpreter of any kind, by their names in `_ASK`.

    Raises:
        UsageError: it cannot be run, or is no Python.
    """
    try:
        env = isolation.variables(isolation.Isolation.TOOL)
        result = process.run([path, "-I", "-c", _ASK], env=env, timeout=_TIMEOUT, separate_stderr=True)
        facts: dict[str, Any] = json.loads(result.output)
        facts["system"]  # the last that it says
    except (ProcessError, PrerequisiteError, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not a Python that runs", tip="name the program, such as .venv/bin/python"
        ) from error
    return facts


def ask(path: Path) -> Interpreter:
    """Query an interpreter for its version and platform.

    Raises:
        UsageError: it cannot be run, is not CPython, or a kind of it that wheels are not built for.
    """
    facts = describe(path)
    if facts["implementation"] != "CPython" or facts["free"]:
        kind = "free-threaded CPython" if facts["free"] else facts["implementation"]
        raise UsageError(f"{path} is {kind}, which wheels are not built for", tip="name a plain CPython")
    return Interpreter(
        path=path.absolute(),
        version=".".join(facts["version"].split(".")[:2]),
        release=facts["release"],
        platform=_tag(facts["platform"]),
        has_pip=facts["pip"],
        has_headers=facts["headers"],
    )


def active() -> Path | None:
    """Return the interpreter of the active environment in the user's shell; conda's base does not count."""
    in_base = os.environ.get("CONDA_DEFAULT_ENV") in _BASE_OF_CONDA
    for variable in ("VIRTUAL_ENV",) if in_base else ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := os.environ.get(variable, ""):
            folder = Path(value)
            # conda has python.exe in the environment's folder itself.
            places = os.pathsep.join((str(platforms.here.programs_of(folder)), str(folder)))
            if program := shutil.which("python", path=places):
                return Path(program)
            raise UsageError(
                f"{variable} names {value}, which has no Python",
                tip=f"unset {variable}, or name an interpreter with --python",
            )
    return None


def is_ours(python: Path) -> bool:
    """Whether an interpreter belongs to the environment in which Cairn is installed."""
    return python.parent.resolve() == Path(sys.executable).parent.resolve() and sys.prefix != sys.base_prefix


def of_user(path: Path | None) -> Path:
    """Return the interpreter whose packages a user means.

    It is the named one, else that of the active environment, else Cairn's own.

    Raises:
        UsageError: the variable of the active environment names a folder without a Python.
    """
    environment = path or active()
    return Path(sys.executable) if environment is None or is_ours(environment) else environment


def _at(word: str) -> Interpreter:
    tip = "name a version, such as 3.12, or the path of an interpreter"
    if not word.strip():
        raise UsageError("no Python is named", tip=tip)
    if os.sep not in word and (os.altsep is None or os.altsep not in word):
        # A name such as python3.12: as a shell would find it.
        program = shutil.which(word)
        if program is None:
            raise UsageError(f"{word!r} is neither a version of Python nor a program on PATH", tip=tip)
        return ask(Path(program))
    path = files.expanded(word)
    if path.is_dir() or not path.exists():
        raise UsageError(f"there is no Python at {word}", tip=tip)
    return ask(path)


def _candidates(version: str) -> Iterator[Path]:
    """Yield programs that may be a Python of this version; some may not even run."""
    name = f"python{version}"
    if (on_path := shutil.which(name)) is not None:
        yield Path(on_path)
    with contextlib.suppress(UsageError):  # no home is known, as in a container without users
        pyenv = files.expanded(os.environ.get("PYENV_ROOT") or "~/.pyenv") / "versions"
        yield from sorted(pyenv.glob(f"{version}.*/bin/{name}"), key=_newest_first)
    where = ("--no-python-downloads", "--no-config", "--system")
    with contextlib.suppress(ProcessError, PrerequisiteError):
        env = isolation.variables(isolation.Isolation.TOOL)
        command = [venv.uv_program(), "python", "find", version, *where]
        result = process.run(command, env=env, timeout=_TIMEOUT, separate_stderr=True)
        yield from (Path(line) for line in result.output.splitlines() if line.strip())


def _newest_first(path: Path) -> list[int]:
    return [-int(number) for number in re.findall("[0-9]+", path.parts[-3])]


def _tag(platform: str) -> str:
    # PEP 425, "Platform Tag": distutils' name with - and . as underscores.
    return platform.replace("-", "_").replace(".", "_")
