# ruff: noqa: D103 - a pytest file: the names say what must hold
"""What must hold for the wheels of any stack, once they are installed."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import mmap
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, process
from cairn.formats import elf
from cairn.formats.offload import code_object
from cairn.targets import CPU, in_order, parse_target_id
from cairn.testing import smoke_facts
from cairn.testing.smoke_facts import SmokeFacts, WheelFacts

_PROBE_TIMEOUT = 600.0  # seconds
# Where a system has its libraries: merged and unmerged /usr, 32 bits, and Nix.
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/nix/store")


@functools.cache
def facts() -> SmokeFacts:
    return datafile.read(Path(os.environ[smoke_facts.VARIABLE]), SmokeFacts)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "wheel" in metafunc.fixturenames:
        metafunc.parametrize("wheel", facts().wheels, ids=lambda wheel: wheel.distribution)


def test_imports(wheel: WheelFacts) -> None:
    require(wheel.modules, f"nothing to import is known of {wheel.distribution}")
    errors = probed(wheel)["import_errors"]
    require(not errors, "\n".join(errors.values()))


def test_versions_agree(wheel: WheelFacts) -> None:
    installed = Version(installed_as(wheel.distribution).version)
    require(installed == Version(wheel.version), f"METADATA says {installed}, the set {wheel.version}")
    for module, text in probed(wheel)["versions"].items():
        said = Version(text)
        # A project that hard-codes its public version cannot know the local part that a build gave it.
        same = said == installed or (said.local is None and said.public == installed.public)
        require(same, f"{module}.__version__ says {said}, METADATA {installed}")


def test_siblings_are_pinned(wheel: WheelFacts) -> None:
    for text in installed_as(wheel.distribution).requires or []:
        requirement = Requirement(text)
        version = facts().siblings.get(canonicalize_name(requirement.name))
        if version is not None:
            pins = [s for s in requirement.specifier if s.operator in ("==", "===")]
            require(len(pins) == 1, f"{text!r} does not pin one version")
            require(Version(pins[0].version) == Version(version), f"{text!r} is not the set's {version}")


def test_libraries_load(wheel: WheelFacts) -> None:
    answer = probed(wheel)
    problems = {**answer["library_errors"], **answer["program_errors"]}
    require(not problems, "\n".join(f"{shown(path)}: {shown(why)}" for path, why in problems.items()))


def test_libraries_come_from_the_environment_or_the_system(wheel: WheelFacts) -> None:
    answer = probed(wheel)
    allowed = [Path(prefix).resolve() for prefix in (*answer["prefixes"], *_SYSTEM)]
    outside = [
        path for path in answer["mapped"] if not any(Path(path).resolve().is_relative_to(a) for a in allowed)
    ]
    require(not outside, f"libraries from elsewhere were loaded: {', '.join(outside)}")


def test_code_objects_are_what_was_asked_for(wheel: WheelFacts) -> None:
    asked = {str(parse_target_id(name)) for name in facts().targets if name != CPU}
    found: set[str] = set()
    for path in binaries(wheel):
        objects = code_objects(path)
        empty = [str(code.target) for code in objects if not code.size]
        require(not empty, f"{shown(str(path))} has empty code objects for {', '.join(empty)}")
        # A library may have no device code at all; one that has some must have it for every target.
        here = {str(code.target) for code in objects}
        require(
            not here or here == asked, f"{shown(str(path))} has code for {named(here)}, not {named(asked)}"
        )
        found |= here
    require(found == set(wheel.targets), f"code for {named(found)}; the set says {named(wheel.targets)}")


def test_the_set_has_device_code_where_it_is_for_a_gpu() -> None:
    has_code = any(wheel.targets for wheel in facts().wheels)
    require(has_code or CPU in facts().targets, "no wheel of the set has device code")
    require(not has_code or CPU not in facts().targets, "a set for the CPU has device code")


def test_requirements_are_met() -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        facts().python,
        "check",
        "--disable-pip-version-check",
    ]
    done = process.run(command, check=False, timeout=_PROBE_TIMEOUT)
    require(not done.returncode, done.output)


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
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        probe = Path(__file__).with_name("probe.py")
        command: list[str | Path] = [facts().python, "-I", probe, asked, answered]
        done = process.run(command, cwd=Path(folder), check=False, timeout=_PROBE_TIMEOUT)
        ended = f"the interpreter ended with exit code {done.returncode}: {done.output[-2000:]}"
        require(answered.exists(), ended)
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return answer


@functools.cache
def installed_as(distribution: str) -> importlib.metadata.Distribution:
    found = importlib.metadata.distributions(path=list(facts().site_packages))
    return next(d for d in found if canonicalize_name(d.name) == distribution)


@functools.cache
def binaries(wheel: WheelFacts) -> tuple[Path, ...]:
    """The installed ELF files for this kind of machine; device code that is a file by itself is not."""
    return tuple(path for path in elf_files(wheel) if elf.read_file(path).machine == platform.machine())


def elf_files(wheel: WheelFacts) -> Iterator[Path]:
    for file in installed_as(wheel.distribution).files or ():
        path = Path(str(file.locate()))
        if path.is_file() and path.suffix != ".py":
            with path.open("rb") as opened:
                if elf.is_elf(opened.read(len(elf.MAGIC))):
                    yield path


def code_objects(path: Path) -> tuple[code_object.CodeObject, ...]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return code_object.of_elf(data)


def shown(text: str) -> str:
    """A text whose paths count from the environment's packages."""
    return functools.reduce(
        lambda left, site: left.replace(f"{site}{os.sep}", ""), facts().site_packages, text
    )


def named(targets: Iterable[str]) -> str:
    return ", ".join(in_order(targets)) or "nothing"


def require(holds: object, message: str) -> None:
    """Fail with a message that a user can read, and no traceback through this file."""
    if not holds:
        pytest.fail(message, pytrace=False)
