"""What the binaries of a wheel need, where they look for it, and which targets they serve."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from cairn import wording
from cairn.targets import CPU, in_order
from cairn.wheels import policy
from cairn.wheels.findings import Expectation, Finding
from cairn.wheels.inspect import Library
from cairn.wheels.metadata import FileName
from cairn.wheels.pe_inspect import PeLibrary
from cairn.wheels.policy import Policy

_ORIGIN = ("$ORIGIN", "${ORIGIN}")
_ANY = "any"
_DEVICE = "amdgpu"


def check(
    libraries: Sequence[Library], name: FileName, expected: Expectation, *, dlls: Sequence[PeLibrary] = ()
) -> Iterator[Finding]:
    """Breaches by binary; `dlls` are those of Windows, judged here only by their device code."""
    host = [library for library in libraries if library.elf.machine != _DEVICE]
    platforms = sorted({tag.split("-")[2] for tag in name.tags})
    if host:
        yield from _check_platforms(platforms, expected)
    rules = [found for found in map(policy.policy_of, platforms) if found]
    own = policy.shipped(host)
    for library in host:
        yield from _check_symbols(library, platforms, rules)
        yield from _check_needed(library, own, rules, expected)
        yield from _check_paths(library)
    if expected.targets is not None:
        yield from _check_targets((*libraries, *dlls), expected)


def _check_platforms(platforms: Sequence[str], expected: Expectation) -> Iterator[Finding]:
    for platform in platforms:
        if platform == _ANY:
            yield Finding(
                code="binary-in-pure-wheel",
                reason="it holds binaries, but its tag says that it runs anywhere",
                fix="build it as a platform wheel (Root-Is-Purelib: false)",
            )
        elif expected.require_platform_tag and platform.startswith("linux_"):
            yield Finding(
                code="platform-tag",
                reason=f"its tag {platform} says nothing about which systems it runs on",
                fix="repair it with `cairn wheel repair`",
            )


def _check_symbols(library: Library, platforms: Sequence[str], rules: Sequence[Policy]) -> Iterator[Finding]:
    machine = library.elf.machine
    if not any(platform == _ANY or platform.endswith(f"_{machine}") for platform in platforms):
        yield Finding(
            code="machine",
            member=library.member,
            reason=f"it is for {machine}, the wheel for {', '.join(platforms)}",
            fix="build it for the machine that the tag names",
        )
        return
    for rule in rules:
        wrong = rule.objections(library)
        if wrong:
            yield Finding(
                code="symbols-too-new",
                member=library.member,
                reason=f"{rule.name} does not promise {wording.some(wrong)}",
                fix="build on an older system, or repair with the tag that the symbols justify",
            )


def _check_needed(
    library: Library, own: frozenset[str], rules: Sequence[Policy], expected: Expectation
) -> Iterator[Finding]:
    for rule in rules or (policy.newest(),):
        for name in library.elf.needed:
            found = name in own or name in rule.libraries
            if not found and not policy.matches(name, (*expected.provided_libraries, *policy.LOADERS)):
                yield Finding(
                    code="needed",
                    member=library.member,
                    reason=f"it needs {name}, which nothing supplies",
                    fix="bundle it by `cairn wheel repair`, or require the package that has it",
                )


def _check_paths(library: Library) -> Iterator[Finding]:
    problems: dict[str, list[str]] = {}
    for path in (*library.elf.rpath, *library.elf.runpath):
        problem = _path_problem(library.member, path)
        if problem:
            problems.setdefault(problem, []).append(repr(path))
    for problem, paths in problems.items():
        yield Finding(
            code="rpath",
            member=library.member,
            reason=f"it looks for libraries in {', '.join(paths)}, {problem}",
            fix="link with run paths relative to $ORIGIN",
        )


def _path_problem(member: str, path: str) -> str | None:
    head, _, rest = path.partition("/")
    if head not in _ORIGIN:
        return "which is on the machine that built it" if path else "which is the folder one happens to be in"
    # Packages lie side by side in site-packages: beyond that nothing is ours.
    place = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return "which is outside of site-packages" if place.split("/")[0] == ".." else None


def _check_targets(libraries: Sequence[Library | PeLibrary], expected: Expectation) -> Iterator[Finding]:
    wanted = set(expected.targets or ()) - {CPU}
    with_code = [library for library in libraries if library.code_objects]
    if expected.require_device_code and wanted and not with_code:
        yield Finding(
            code="no-device-code",
            reason="it has no device code at all",
            fix="pass the targets to the build: PYTORCH_ROCM_ARCH",
        )
    for library in with_code:
        yield from _check_code(library, wanted)


def _check_code(library: Library | PeLibrary, wanted: set[str]) -> Iterator[Finding]:
    there = set(library.targets)
    # A code object of its own is for one target; its siblings may be for the others.
    alone = isinstance(library, Library) and library.elf.machine == _DEVICE
    missing = set() if alone else wanted - there
    for code, names, reason in (
        ("targets-missing", missing, "it has no code for"),
        ("targets-unexpected", there - wanted, "it has code that was not asked for:"),
    ):
        if names:
            yield Finding(
                code=code,
                member=library.member,
                reason=f"{reason} {', '.join(in_order(names))}",
                fix="build it for exactly the targets of the wheel",
            )
    empty = in_order(str(code.target) for code in library.code_objects if not code.size)
    if empty:
        yield Finding(
            code="code-object-empty",
            member=library.member,
            reason=f"its code for {', '.join(empty)} is empty",
            fix="build it again and look for compiler warnings",
        )
