# ruff: noqa: D103 - a pytest file: the names say what must hold
"""Check that libraries load, and find all their symbols in the libraries that they are linked to."""

from __future__ import annotations

from pathlib import Path

from cairn.output import wording
from cairn.testing.builtin_smoke import environment
from cairn.testing.builtin_smoke.environment import all_libraries, binaries_of, facts, probed, require, shown
from cairn.testing.smoke_facts import WheelFacts

# Where a system has its libraries: merged and unmerged /usr, 32 bits, and Nix.
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/nix/store")


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


def test_needed_libraries_are_in_the_environment_or_promised(wheel: WheelFacts) -> None:
    missing = {
        library.path: names
        for library in environment.read_binaries(binaries_of(wheel))
        if (names := environment.missing_libraries(library, all_libraries()))
    }
    lines = [f"{shown(path)} needs {wording.some(names)}" for path, names in missing.items()]
    require(not lines, "\n".join([*lines, "no package here has it, and not every system of manylinux"]))


def test_symbols_are_in_what_is_linked(wheel: WheelFacts) -> None:
    # The system's libraries that it takes to load the wheel, with the names that they are known by.
    system = environment.read_binaries(map(Path, probed(wheel)["mapped"]))
    missing = environment.missing_symbols(
        [library for library in environment.read_binaries(binaries_of(wheel)) if not library.is_program],
        around=(*all_libraries(), *system),
        program=Path(facts().python).resolve(),
    )
    require(
        not missing,
        "\n".join(
            f"{shown(path)} is linked to nothing that has {wording.some(n)}" for path, n in missing.items()
        ),
    )
