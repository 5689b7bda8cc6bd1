"""What the checks share: the set, the environment it is installed in, and what a look from inside shows."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from cairn import datafile, process
from cairn.formats import elf
from cairn.targets import in_order
from cairn.testing import dynamic_linking, smoke_facts
from cairn.testing.smoke_facts import SmokeFacts, WheelFacts
from cairn.wheels.contents.binaries import Binary

PROBE_TIMEOUT = 600.0
"""Seconds for one look from inside."""


@functools.cache
def facts() -> SmokeFacts:
    """What is known of the set."""
    return datafile.read(Path(os.environ[smoke_facts.VARIABLE]), SmokeFacts)


@functools.cache
def probed(wheel: WheelFacts) -> dict[str, Any]:
    """What the probe saw in a process of its own: one for each wheel, so that no sibling's import helps."""
    # Programs are traced instead of loaded: dlopen(3) refuses a position-independent executable.
    loadable = [(path, elf.read_file(path)) for path in binaries(wheel)]
    request = {
        "modules": wheel.modules,
        "libraries": [str(path) for path, e in loadable if e.type == "shared" and not e.interpreter],
        "programs": [str(path) for path, e in loadable if e.interpreter],
    }
    with tempfile.TemporaryDirectory(prefix="cairn-probe-") as folder:
        request_file, answer_file = Path(folder, "request.json"), Path(folder, "answer.json")
        request_file.write_text(json.dumps(request), encoding="utf-8")
        run_inside("probe.py", request_file, answer_file)
        answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    return answer


def run_inside(script: str, request_file: Path, answer_file: Path) -> None:
    """Run a script of this folder by the tested interpreter, with the paths of a question and an answer."""
    command: list[str | Path] = [
        facts().python,
        "-I",
        Path(__file__).with_name(script),
        request_file,
        answer_file,
    ]
    # Nothing that triton compiled before for this user is taken for what it compiles now.
    variables = {**os.environ, "TRITON_CACHE_DIR": str(request_file.with_name("triton"))}
    completed = process.run(
        command, cwd=request_file.parent, env=variables, check=False, timeout=PROBE_TIMEOUT
    )
    ended = f"the interpreter ended with exit code {completed.returncode}: {completed.output[-2000:]}"
    require(answer_file.exists(), ended)


@functools.cache
def installed_as(distribution: str) -> importlib.metadata.Distribution:
    """A distribution of the environment."""
    distributions = importlib.metadata.distributions(path=list(facts().site_packages))
    return next(d for d in distributions if canonicalize_name(d.name) == distribution)


def files_of(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """The installed files of a distribution that may be something else than Python."""
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if path.suffix != ".py" and path.is_file():
            yield path


def elf_files(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Those that are ELF files."""
    for path in files_of(distribution):
        with path.open("rb") as opened:
            if elf.is_elf(opened.read(len(elf.MAGIC))):
                yield path


@functools.cache
def binaries(wheel: WheelFacts) -> tuple[Path, ...]:
    """A wheel's ELF files for this kind of machine; device code that is a file by itself is not."""
    paths = elf_files(installed_as(wheel.distribution))
    return tuple(path for path in paths if elf.read_file(path).machine == platform.machine())


@functools.cache
def all_libraries() -> tuple[Binary, ...]:
    """Every ELF file of the environment, whichever distribution it is of."""
    installed = importlib.metadata.distributions(path=list(facts().site_packages))
    return dynamic_linking.read(path for distribution in installed for path in elf_files(distribution))


def shown(text: str) -> str:
    """A text whose paths count from the environment's packages."""
    return functools.reduce(
        lambda left, site: left.replace(f"{site}{os.sep}", ""), facts().site_packages, text
    )


def named(targets: Iterable[str]) -> str:
    """Targets, to read."""
    return ", ".join(in_order(targets)) or "nothing"


def require(holds: object, message: str) -> None:
    """Fail with a message that a user can read, and no traceback through this file."""
    if not holds:
        pytest.fail(message, pytrace=False)
