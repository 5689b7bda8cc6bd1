"""Helpers of the built-in checks: the tested environment, seen from outside and from its own interpreter.

Some checks read from the ELF files alone, without loading one, whether installed libraries provide each other
with what they need. Loading them (`probe`) shows that for this machine only. Here, a library of the system
counts as present if every system of the newest manylinux policy has it, and a symbol if a linked library
exports it (ld.so(8)), not if another import happened to load a library that does.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from cairn import datafile, process
from cairn.formats import elf
from cairn.targets import in_order
from cairn.testing import smoke_facts
from cairn.testing.smoke_facts import SmokeFacts, WheelFacts
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.contents.binaries import Binary

PROBE_TIMEOUT = 600.0
"""Seconds for one look from inside."""


@functools.cache
def facts() -> SmokeFacts:
    """Return the facts of the set."""
    return datafile.read(Path(os.environ[smoke_facts.VARIABLE]), SmokeFacts)


@functools.cache
def probed(wheel: WheelFacts) -> dict[str, Any]:
    """Return the probe's answer; each wheel gets its own process, so that no other wheel's import helps."""
    # Programs are traced instead of loaded: dlopen(3) refuses a position-independent executable.
    loadable = [(path, elf.read_file(path)) for path in binaries_of(wheel)]
    request = {
        "modules": wheel.modules,
        "libraries": [str(path) for path, e in loadable if e.type == "shared" and not e.interpreter],
        "programs": [str(path) for path, e in loadable if e.interpreter],
    }
    answer: dict[str, Any] = run_inside("probe.py", request)
    return answer


def run_inside(script: str, request: object) -> Any:  # noqa: ANN401 - JSON
    """Run a script of this folder with the tested interpreter; it reads one JSON file and writes another.

    The script removes its arguments and its request before it imports anything of the wheel. An answer counts
    if it repeats the request's token and the interpreter ended with 0: an import that writes an answer of its
    own and exits, or that breaks the interpreter's end, is a failure. Code that searches the frames of its
    callers can still lie; the sources of a wheel are trusted as far as that.
    """
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="cairn-probe-") as folder:
        request_file, answer_file = Path(folder, "request.json"), Path(folder, "answer.json")
        request_file.write_text(json.dumps({"token": token, "request": request}), encoding="utf-8")
        path = Path(__file__).with_name(script)
        completed = process.run(
            [facts().python, "-I", path, request_file, answer_file],
            cwd=Path(folder),
            # Nothing that triton compiled before for this user is taken for what it compiles now.
            env={**os.environ, "TRITON_CACHE_DIR": str(Path(folder, "triton"))},
            check=False,
            timeout=PROBE_TIMEOUT,
        )
        ended = f"the interpreter ended with exit code {completed.returncode}: {completed.output[-2000:]}"
        require(completed.returncode == 0 and answer_file.exists(), ended)
        try:
            answer = json.loads(answer_file.read_text(encoding="utf-8"))
            require(answer["token"] == token, "the wheel's import wrote the answer of the probe")
            return answer["answer"]
        except (ValueError, KeyError, TypeError):
            pytest.fail(f"the probe's answer cannot be read; {ended}", pytrace=False)


@functools.cache
def installed_as(distribution: str) -> importlib.metadata.Distribution:
    """Return a distribution that is installed in the environment."""
    distributions = importlib.metadata.distributions(path=list(facts().site_packages))
    return next(d for d in distributions if canonicalize_name(d.name) == distribution)


def files_of(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Yield the installed files of a distribution that may be something other than Python."""
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if path.suffix != ".py" and path.is_file():
            yield path


def elf_files(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Yield the installed ELF files of a distribution."""
    for path in files_of(distribution):
        with path.open("rb") as opened:
            if elf.is_elf(opened.read(len(elf.MAGIC))):
                yield path


@functools.cache
def binaries_of(wheel: WheelFacts) -> tuple[Path, ...]:
    """Return a wheel's ELF files for this machine's architecture, without device code in separate files."""
    return files_for(platform.machine(), wheel)


def files_for(machine: str, wheel: WheelFacts) -> tuple[Path, ...]:
    """Return a wheel's ELF files for a machine; those for `image.DEVICE` are device code."""
    paths = elf_files(installed_as(wheel.distribution))
    return tuple(path for path in paths if elf.read_file(path).machine == machine)


@functools.cache
def all_libraries() -> tuple[Binary, ...]:
    """Return the ELF files of all distributions in the environment."""
    installed = importlib.metadata.distributions(path=list(facts().site_packages))
    return read_binaries(path for distribution in installed for path in elf_files(distribution))


def shown(text: str) -> str:
    """Return a text with its paths relative to the environment's packages."""
    return functools.reduce(
        lambda left, site: left.replace(f"{site}{os.sep}", ""), facts().site_packages, text
    )


def target_list(targets: Iterable[str]) -> str:
    """Format targets for a message."""
    return ", ".join(in_order(targets)) or "nothing"


def require(holds: object, message: str) -> None:
    """Fail with a message for the user, without a traceback through this file."""
    if not holds:
        pytest.fail(message, pytrace=False)


def read_binaries(paths: Iterable[Path]) -> tuple[Binary, ...]:
    """Read ELF files from disk, without their device code.

    Raises:
        WheelError: one is malformed, or not an ELF file.
    """
    return tuple(binaries.read_file(path, "elf", device_code=False) for path in paths)


def missing_libraries(library: Binary, installed: Iterable[Binary]) -> tuple[str, ...]:
    """Return the needed libraries that neither the environment nor every manylinux system has."""
    here, promised = binaries.shipped(installed), system_libraries.newest_policy()
    return tuple(name for name in library.needed if name not in here and not promised.has(name))


def missing_symbols(
    libraries: Sequence[Binary], *, around: Iterable[Binary], program: Path
) -> Mapping[str, tuple[str, ...]]:
    """Return, by path, the imported symbols that no library linked to the importing one exports.

    Args:
        libraries: those to check. One that is linked to a missing library is skipped, since the symbols of
            that are unknown.
        around: all libraries that the loader may find, in the environment and on the system.
        program: the interpreter. Its symbols, and those of its own libraries, are available to all.
    """
    named_libraries: dict[str, list[Binary]] = {}
    for binary in around:
        for name in binary.names:
            named_libraries.setdefault(name, []).append(binary)
    interpreter = read_binaries([program])[0]
    for_all = [interpreter.path, *(_linked(interpreter, named_libraries) or ())]
    imports = {library.path: elf.imports(Path(library.path)) for library in libraries}
    among = frozenset(symbol for symbols in imports.values() for symbol in symbols)
    exports: dict[str, frozenset[bytes]] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for library in libraries:
        linked = _linked(library, named_libraries)
        if linked is None:
            continue
        left = set(imports[library.path])
        for path in (*for_all, *linked):
            if path not in exports:
                exports[path] = elf.exports(Path(path), among)
            left -= exports[path]
        if left:
            missing[library.path] = tuple(sorted(name.decode("utf-8", "backslashreplace") for name in left))
    return missing


def _linked(start: Binary, named_libraries: Mapping[str, Sequence[Binary]]) -> Iterable[str] | None:
    """Return the paths of all direct and indirect dependencies of a library; None if one of them is missing.

    If several libraries have the same name, all of them count: which one is loaded first is not known here.
    """
    linked: dict[str, Binary] = {}
    waiting = [start]
    while waiting:
        for name in waiting.pop().needed:
            if name not in named_libraries:
                return None
            fresh = {library.path: library for library in named_libraries[name] if library.path not in linked}
            linked |= fresh
            waiting += fresh.values()
    return linked.keys()
