"""What the binaries of a wheel need, where they look for it, and which targets they serve."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from cairn.output import wording
from cairn.targets import CPU, in_order
from cairn.wheels.contents import foreign, manylinux
from cairn.wheels.contents.binaries import Library
from cairn.wheels.contents.manylinux import Policy
from cairn.wheels.contents.windows_dlls import PeLibrary
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify.findings import Expectation, Finding

_ORIGIN = ("$ORIGIN", "${ORIGIN}")
_ANY = "any"
_DEVICE = "amdgpu"
SUPPLY = "bundle it by `cairn wheel repair`, or give the required wheel that has it to the same command"
_ABSOLUTE = "an absolute path outside of the wheel"
_ANYWHERE = "which counts from the folder that the program is started in"


def check(
    libraries: Sequence[Library], name: FileName, expected: Expectation, *, dlls: Sequence[PeLibrary] = ()
) -> Iterator[Finding]:
    """Breaches by binary; `dlls` are those of Windows, judged here only by their device code."""
    host = [library for library in libraries if library.elf.machine != _DEVICE]
    platforms = sorted({tag.split("-")[2] for tag in name.tags})
    yield from _check_pure((*host, *dlls), platforms)
    if host and expected.require_platform_tag:
        yield from _check_platforms(platforms)
    # Names of one policy, such as manylinux2014 and manylinux_2_17, are one promise. The oldest comes first.
    found = {rule.name: rule for platform in platforms if (rule := manylinux.promise_of(platform))}
    rules = sorted(found.values(), key=lambda rule: tuple(map(int, rule.name.split("_")[1:])))
    own = manylinux.shipped(host)
    at_home = tuple(library for library in host if _fits(library.elf.machine, platforms))
    needed = frozenset(name for library in at_home for name in library.elf.needed)
    for library in host:
        yield from _check_machine(library, platforms, needed if at_home else None)
        yield from _check_symbols(library, own, rules)
        yield from _check_needed(library, own, rules, expected)
        yield from _check_paths(library)
    if expected.targets is not None:
        yield from _check_targets((*libraries, *dlls), expected)


def _check_pure(binaries: Sequence[Library | PeLibrary], platforms: Sequence[str]) -> Iterator[Finding]:
    """Libraries are for one platform; programs, and what says what it is for, may lie there for several."""
    if _ANY not in platforms:
        return
    libraries = [
        binary.member
        for binary in binaries
        if not _is_program(binary) and not foreign.says_so(binary.member, _machine(binary))
    ]
    if libraries:
        yield Finding(
            code="binary-in-pure-wheel",
            reason=f"its tag says that it runs anywhere, and it holds {wording.some(libraries)}",
            fix="build it as a platform wheel (Root-Is-Purelib: false)",
        )


def _is_program(binary: Library | PeLibrary) -> bool:
    if isinstance(binary, PeLibrary):
        return binary.member.lower().endswith(".exe")
    return binary.elf.is_program


def _machine(binary: Library | PeLibrary) -> str:
    return binary.pe.machine if isinstance(binary, PeLibrary) else binary.elf.machine


def _check_platforms(platforms: Sequence[str]) -> Iterator[Finding]:
    vague = [platform for platform in platforms if platform.startswith("linux_")]
    if vague:
        yield Finding(
            code="platform-tag",
            reason=f"its tag {', '.join(vague)} says nothing about which systems it runs on",
            fix="repair it with `cairn wheel repair`",
        )


def _fits(machine: str, platforms: Sequence[str]) -> bool:
    machines = (machine, "armv6l") if machine == "armv7l" else (machine,)
    return any(p == _ANY or p.endswith(tuple(f"_{machine}" for machine in machines)) for p in platforms)


def _check_machine(
    library: Library, platforms: Sequence[str], needed: frozenset[str] | None
) -> Iterator[Finding]:
    """The machine, where `needed` is what the binaries for the right one need; None where there are none."""
    machine = library.elf.machine
    if _fits(machine, platforms):
        return
    if needed is None or not foreign.is_meant(library.member, machine, needed, soname=library.elf.soname):
        yield Finding(
            code="machine",
            member=library.member,
            reason=f"it is for {machine}, the wheel for {', '.join(platforms)}",
            fix="build it for the machine that the tag names",
        )


def _check_symbols(library: Library, own: frozenset[str], rules: Sequence[Policy]) -> Iterator[Finding]:
    for rule in rules:
        wrong = rule.objections(library, own) if library.elf.machine in rule.versions else ()
        if wrong:
            yield Finding(
                code="symbols-too-new",
                member=library.member,
                reason=f"{rule.name} does not promise {wording.some(wrong)}",
                fix="build on an older system, or repair with the tag that the symbols justify",
            )
            return  # a younger promise that is broken too says nothing new


def _check_needed(
    library: Library, own: frozenset[str], rules: Sequence[Policy], expected: Expectation
) -> Iterator[Finding]:
    elsewhere = (*expected.provided_libraries, *manylinux.LOADERS)
    wanted = [
        name for name in library.elf.needed if name not in own and not manylinux.matches(name, elsewhere)
    ]
    for rule in rules or (manylinux.newest(),):
        missing = [name for name in wanted if not rule.has(name)]
        if missing:
            yield Finding(
                code="needed",
                member=library.member,
                reason=f"it needs {wording.some(missing)}: not in the wheel, not on every system of "
                f"{rule.name}, not in {beside(expected)}",
                fix=SUPPLY,
            )
            return


def beside(expected: Expectation) -> str:
    """Where else a library was looked for in vain, and where it was not."""
    there = "a wheel given beside it"
    if not expected.unread:
        return there
    return f"{there} (not given: {wording.some(expected.unread)}, which it requires)"


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
            reason=f"it looks for libraries in {', '.join(dict.fromkeys(paths))}, {problem}",
            fix="link with run paths relative to $ORIGIN",
        )


def _path_problem(member: str, path: str) -> str | None:
    head, _, rest = path.partition("/")
    if head not in _ORIGIN:
        return _ABSOLUTE if path.startswith("/") else _ANYWHERE
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
