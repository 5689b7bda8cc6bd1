"""What a platform tag promises: the policies of manylinux and musllinux, as auditwheel ships them.

Source: PEP 600, PEP 656 and auditwheel's policy files, which name for each tag the libraries that every
system has and the highest symbol versions it may use of them.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cairn.errors import PrerequisiteError
from cairn.wheels.contents.binaries import Library

_MUSL = re.compile(r"libc\.musl-[a-z0-9_]+\.so\.1")
"""musl's C library, which the policies call `libc.so`."""

LOADERS = ("ld-linux*.so*", "ld64.so*", "linux-vdso.so*")
"""The dynamic loader is named by the kernel, and is on every system."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One manylinux or musllinux tag.

    Attributes:
        name: such as `manylinux_2_28`.
        aliases: older names, such as `manylinux2014`.
        libraries: those that may be taken from the system.
        versions: architecture to symbol prefix (`GLIBC`) to the versions that may be wanted of it.
        blacklist: library to the symbols of it that must not be used.
    """

    name: str
    aliases: tuple[str, ...]
    libraries: frozenset[str]
    versions: Mapping[str, Mapping[str, frozenset[str]]]
    blacklist: Mapping[str, tuple[str, ...]]

    def objections(self, library: Library, own: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """What `library` uses and this tag does not promise, as `library: symbol or version`.

        Forbidden symbols are seen when `watched_symbols` were looked for as it was read.

        Args:
            library: what uses them.
            own: libraries that lie in the wheel: what is used of them, no system has to promise.
        """
        allowed = self.versions.get(library.elf.machine, {})
        forbidden = tuple(
            f"{name}: {symbol}"
            for name in library.elf.needed
            for symbol in self.blacklist.get(name, ())
            if symbol in library.elf.wants and name not in own
        )
        return forbidden + tuple(
            f"{name}: {version}"
            for name, versions in library.elf.version_needs.items()
            for version in versions
            if name not in own and not _is_allowed(version, allowed)
        )

    def has(self, name: str) -> bool:
        """Whether a library may be taken from the system."""
        return _MUSL.sub("libc.so", name) in self.libraries or matches(name, LOADERS)


@functools.cache
def policies() -> tuple[Policy, ...]:
    """Every manylinux policy, the one that the oldest systems fulfil first.

    Raises:
        PrerequisiteError: auditwheel is not installed.
    """
    return _policies("manylinux-policy.json")


def policy_of(platform: str) -> Policy | None:
    """The policy of a platform tag such as `manylinux_2_28_x86_64`; None for any other platform."""
    return _named(platform, policies())


def promise_of(platform: str) -> Policy | None:
    """Like `policy_of`, for tags such as `musllinux_1_2_x86_64` too."""
    return policy_of(platform) or _named(platform, _policies("musllinux-policy.json"))


def _named(platform: str, known: Iterable[Policy]) -> Policy | None:
    for policy in known:
        if any(platform.startswith(f"{name}_") for name in (policy.name, *policy.aliases)):
            return policy
    return None


@functools.cache
def _policies(file: str) -> tuple[Policy, ...]:
    # Found without being imported, which would cost more than reading it.
    spec = importlib.util.find_spec("auditwheel")
    try:
        folder = Path(spec.origin or "").parent if spec else Path()
        data = json.loads((folder / "policy" / file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PrerequisiteError("auditwheel is not installed", tip="pip install auditwheel") from error
    promising = [entry for entry in data if entry["priority"]]
    return tuple(map(_policy, sorted(promising, key=lambda entry: -int(entry["priority"]))))


def watched_symbols() -> frozenset[str]:
    """Every symbol that some policy forbids."""
    lists = (symbols for policy in policies() for symbols in policy.blacklist.values())
    return frozenset(symbol for symbols in lists for symbol in symbols)


def newest() -> Policy:
    """The policy that promises most."""
    return policies()[-1]


def lowest(libraries: Iterable[Library], elsewhere: Sequence[str], machine: str) -> Policy | None:
    """The policy of the oldest systems that these binaries run on as they are; None when there is none.

    Args:
        libraries: all binaries of a wheel.
        elsewhere: globs of libraries that something else than the system supplies.
        machine: the architecture of the wheel, such as `x86_64`.
    """
    binaries = tuple(libraries)
    fitting = (policy for policy in policies() if machine in policy.versions)
    return next((policy for policy in fitting if runs_on(policy, binaries, elsewhere)), None)


def runs_on(
    policy: Policy,
    libraries: Sequence[Library],
    elsewhere: Sequence[str],
    *,
    beside: frozenset[str] = frozenset(),
) -> bool:
    """Whether these binaries run, as they are, on every system that fulfils `policy`.

    Args:
        policy: what systems promise.
        libraries: the binaries.
        elsewhere: globs of libraries that something else than the system supplies.
        beside: names of libraries that lie in the wheel too.
    """
    own = shipped(libraries) | beside
    return all(_runs_on(policy, library, own, elsewhere) for library in libraries)


def shipped(libraries: Iterable[Library]) -> frozenset[str]:
    """The names by which these binaries find each other."""
    pairs = ((library.member.rpartition("/")[2], library.elf.soname) for library in libraries)
    return frozenset(name for pair in pairs for name in pair if name)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a library's name matches one of the globs."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _runs_on(policy: Policy, library: Library, own: frozenset[str], elsewhere: Sequence[str]) -> bool:
    foreign = [name for name in library.elf.needed if name not in own and not matches(name, elsewhere)]
    on_system = all(map(policy.has, foreign))
    return on_system and not policy.objections(library, own)


def _is_allowed(version: str, allowed: Mapping[str, frozenset[str]]) -> bool:
    prefix, separator, number = version.partition("_")
    if not separator or prefix not in allowed:
        # Libraries without a policy for their versions, such as libgomp's, are judged by name alone.
        return True
    return number in allowed[prefix]


def _policy(entry: Mapping[str, Any]) -> Policy:
    return Policy(
        name=entry["name"],
        aliases=tuple(entry["aliases"]),
        libraries=frozenset(entry["lib_whitelist"]),
        versions={
            machine: {prefix: frozenset(numbers) for prefix, numbers in prefixes.items()}
            for machine, prefixes in entry["symbol_versions"].items()
        },
        blacklist={name: tuple(symbols) for name, symbols in entry["blacklist"].items()},
    )
