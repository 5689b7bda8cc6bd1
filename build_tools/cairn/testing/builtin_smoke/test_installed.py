# ruff: noqa: D103 - a pytest file: the names say what must hold
"""Checks of the installed wheels of any stack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import process
from cairn.formats import elf, image, kpack
from cairn.formats import view as formats_view
from cairn.formats.offload import code_object
from cairn.formats.view import FileView
from cairn.targets import CPU, parse_target_id
from cairn.testing.builtin_smoke.environment import (
    PROBE_TIMEOUT,
    binaries_of,
    facts,
    files_for,
    files_of,
    installed_as,
    probed,
    require,
    shown,
    target_list,
)
from cairn.testing.smoke_facts import WheelFacts


def test_imports(wheel: WheelFacts) -> None:
    # A device wheel puts device code beside the modules of its host wheel, and nothing else.
    require(wheel.modules or [*archives(wheel)], f"nothing to import is known of {wheel.distribution}")
    errors = probed(wheel)["import_errors"]
    require(not errors, "\n".join(errors.values()))
    left = set(wheel.modules) - set(probed(wheel)["imported"])
    require(not left, f"the process that imports {', '.join(sorted(left))} ended before it said how")


def test_versions_agree(wheel: WheelFacts) -> None:
    installed = Version(installed_as(wheel.distribution).version)
    require(installed == Version(wheel.version), f"METADATA says {installed}, the set {wheel.version}")
    for module, text in probed(wheel)["versions"].items():
        version = Version(text)
        # A project that hard-codes its public version cannot know the local part that a build gave it.
        same = version == installed or (version.local is None and version.public == installed.public)
        require(same, f"{module}.__version__ says {version}, METADATA {installed}")


def test_siblings_are_pinned(wheel: WheelFacts) -> None:
    for text in installed_as(wheel.distribution).requires or []:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        version = facts().siblings.get(name)
        # An extra that names other extras of the same distribution pins nothing.
        if version is not None and name != canonicalize_name(wheel.distribution):
            pins = [s for s in requirement.specifier if s.operator in ("==", "===")]
            require(len(pins) == 1, f"{text!r} does not pin one version")
            require(Version(pins[0].version) == Version(version), f"{text!r} is not the set's {version}")


def test_code_objects_are_what_was_asked_for(wheel: WheelFacts) -> None:
    targets = {str(parse_target_id(name)) for name in facts().targets if name != CPU}
    with_code: set[str] = set()
    for path in binaries_of(wheel):
        objects = code_objects(path)
        empty = [str(code.target) for code in objects if not code.size]
        require(not empty, f"{shown(str(path))} has empty code objects for {', '.join(empty)}")
        # A library may have no device code at all; one that has some must have it for every target.
        here = {str(code.target) for code in objects}
        require(
            not here or here == targets,
            f"{shown(str(path))} has code for {target_list(here)}, not {target_list(targets)}",
        )
        with_code |= here
    # A code object in a file of its own is for one target, and a wheel may need it for certain GPUs alone.
    for path in files_for(image.DEVICE, wheel):
        with_code |= {str(code.target) for code in code_objects(path)}
    with_code |= {target for path in archives(wheel) for target in split_targets(path)}
    require(
        with_code == set(wheel.targets),
        f"code for {target_list(with_code)}; the set says {target_list(wheel.targets)}",
    )


def test_the_set_has_device_code_where_it_is_for_a_gpu() -> None:
    has_code = any(wheel.targets for wheel in facts().wheels)
    require(has_code or CPU in facts().targets, "no wheel of the set has device code")
    require(not has_code or CPU not in facts().targets, "a set for the CPU has device code")


def test_requirements_are_met() -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "--python",
        facts().python,
        "check",
        "--disable-pip-version-check",
    ]
    completed = process.run(command, check=False, timeout=PROBE_TIMEOUT)
    require(not completed.returncode, completed.output)


def code_objects(path: Path) -> tuple[code_object.CodeObject, ...]:
    with formats_view.opening(path) as view:
        return code_object.of_view(view, elf.read_view(view))


def archives(wheel: WheelFacts) -> Iterator[Path]:
    """Yield the files of a device wheel that hold its device code."""
    files = files_of(installed_as(wheel.distribution))
    return (path for path in files if path.name.endswith(kpack.SUFFIX))


def split_targets(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        return kpack.Archive.open(FileView(file), path.name).table.gfx_arches
