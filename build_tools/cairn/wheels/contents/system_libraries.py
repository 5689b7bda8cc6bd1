"""The libraries that every system of a platform has, so that a wheel need not bring them.

Linux: the policies of manylinux and musllinux, as auditwheel ships them. They name for each tag the libraries
that every system has, and the highest symbol versions that a wheel may use of them (PEP 600, PEP 656).

Windows: the DLLs that delvewheel lists for each machine, since a wheel's tag does not say which Windows it is
for.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from cairn import extras
from cairn.errors import PrerequisiteError
from cairn.wheels.contents.binaries import Binary, shipped

_MANYLINUX, _MUSLLINUX = "manylinux-policy.json", "musllinux-policy.json"
_LAST_GLIBC = 60  # 2.60, of about 2034: two a year
# musl's C library: the linker of Alpine writes libc.musl-x86_64.so.1, the policies call it libc.so.
_MUSL = re.compile(r"libc\.musl-[a-z0-9_]+\.so\.1")

# Python is a library there, which its program has loaded (PEP 738).
_OF_ANDROID = re.compile(r"libpython3\.\d+\.so")

LOADERS = ("ld-linux*.so*", "ld64.so*", "linux-vdso.so*")
"""The dynamic loader, which each architecture calls differently and no policy has for all of them."""

DRIVERS = (
    *("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-*.so.1", "libnvoptix.so.1"),
    *("libOpenCL.so.1", "libze_loader.so.1", "libze_intel_gpu.so.1"),
    *("libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", "libmlx5.so.1", "libmlx4.so.1", "libefa.so.1"),
    *("libpsm2.so.2", "libpsm_infinipath.so.1"),
    *("nvcuda.dll", "nvml.dll", "nvcuvid.dll", "opencl.dll", "vulkan-1.dll", "ze_loader.dll"),
)
"""The halves of device drivers that programs load: each fits only the kernel's half, so no wheel has them."""

_OF_MATLAB = re.compile(r"lib(?:mx|mex|mat|eng|ut)\.(?:so|dylib|dll)")

# Where the loader looks for what needs a newer processor, and only on such a one (ld.so(8)).
_HWCAPS = re.compile(r"(?:^|/)glibc-hwcaps/")
# What is there wherever Python is: its own DLL, and the C runtime that it brings (but not msvcp140.dll).
_PYTHON = re.compile(r"(?:python|libpypy|vcruntime)[0-9].*\.dll")
# What debug builds are linked with, which may not be passed on (learn.microsoft.com, "Determining which DLLs
# to redistribute") and which no Python for users brings.
_DEBUG = re.compile(
    r"(?:(?:vcruntime|msvcp|msvcr|concrt|vccorlib|mfc)\d+(?:_\w+)?|ucrtbase|msvcrt|python3\d*t?_)d\.dll"
)
# What delvewheel's lists lack: API sets, which are Windows' own and may be absent by design
# (learn.microsoft.com, "Windows API sets"), and what the page of some function there names as its DLL, with
# Windows 10 or an older one for its minimum. No Python since 3.13 runs on an older one.
_API_SETS = ("api-ms-win-", "ext-ms-win-", "ext-ms-onecore-")
_LATER = frozenset(
    (
        *("bluetoothapis.dll", "bthprops.cpl", "coremessaging.dll", "d3d12.dll", "d3d8.dll", "dcomp.dll"),
        *("d3dcompiler_47.dll", "directml.dll", "dxcore.dll", "gdi32full.dll", "gdiplus.dll", "icu.dll"),
        *("icuin.dll", "icuuc.dll", "mfcore.dll", "msvcp_win.dll", "ncryptprov.dll", "ninput.dll"),
        *("olepro32.dll", "rtworkq.dll", "shcore.dll", "ucrtbase.dll", "wofutil.dll", "xaudio2_9.dll"),
        "xinput1_4.dll",
    )
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One manylinux or musllinux tag.

    Attributes:
        name: such as `manylinux_2_28`.
        aliases: older names, such as `manylinux2014`.
        libraries: those that may be taken from the system.
        versions: architecture to symbol prefix (`GLIBC`) to the symbol versions that a wheel may use.
        blacklist: library to the symbols of it that must not be used, since not every system's copy has them.
    """

    name: str
    aliases: tuple[str, ...]
    libraries: frozenset[str]
    versions: Mapping[str, Mapping[str, frozenset[str]]]
    blacklist: Mapping[str, tuple[str, ...]]

    def objections(self, binary: Binary, shipped_names: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """The symbols and versions that a binary uses and this tag forbids, as `library: symbol or version`.

        A tag names the first level of its machine, so a level that the binary asks for is among them.

        Forbidden symbols are found only if the binary was read with `look_for=watched_symbols()`.

        Args:
            binary: what uses them.
            shipped_names: libraries that lie in the wheel: symbols of these need no promise.
        """
        forbidden = [
            f"{name}: {symbol}"
            for name in binary.needed
            for symbol in self.blacklist.get(name, ())
            if symbol in binary.undefined and name not in shipped_names
        ]
        known = self.versions.get(binary.machine, {})
        for name, versions in binary.version_needs.items():
            for version in () if name in shipped_names else versions:
                # `GLIBC_2.28`. Prefixes that no policy lists, such as libgomp's GOMP, may have any number:
                # their library is judged by its name alone.
                prefix, separator, number = version.partition("_")
                if separator and number not in known.get(prefix, (number,)):
                    forbidden.append(f"{name}: {version}")
        if binary.instruction_set and not _HWCAPS.search(binary.path):
            forbidden.append(f"a processor of {binary.instruction_set}")
        return tuple(forbidden)

    def has(self, name: str) -> bool:
        """Whether a library may be taken from the system."""
        if self.name.startswith("android") and _OF_ANDROID.fullmatch(name):
            return True
        return _MUSL.sub("libc.so", name) in self.libraries or matches(name, LOADERS)

    def runs(
        self, binaries: Iterable[Binary], elsewhere: Sequence[str], *, beside: frozenset[str] = frozenset()
    ) -> bool:
        """Whether these binaries run unchanged on every system that this tag covers.

        Args:
            binaries: all that come together.
            elsewhere: globs of libraries that something else than the system supplies.
            beside: names of further libraries in the wheel, which were judged before.
        """
        together = tuple(binaries)
        shipped_names = shipped(together) | beside
        needed = {name for binary in together for name in binary.needed} - shipped_names
        on_system = all(self.has(name) or matches(name, elsewhere) for name in needed)
        return on_system and not any(self.objections(binary, shipped_names) for binary in together)


@functools.cache
def policies() -> tuple[Policy, ...]:
    """Every manylinux policy, the one that the oldest systems fulfil first.

    Raises:
        PrerequisiteError: auditwheel is not installed.
    """
    return (*_policies(_MANYLINUX), *_newer(newest_policy()))


def _newer(newest: Policy) -> Iterator[Policy]:
    """Policies that auditwheel does not list yet: there is a tag for each version of glibc (PEP 600)."""
    listed = int(newest.name.rpartition("_")[2])
    for number in range(listed + 1, _LAST_GLIBC + 1):
        later = frozenset(f"2.{minor}" for minor in range(listed + 1, number + 1))
        versions = {
            machine: {**prefixes, "GLIBC": prefixes.get("GLIBC", frozenset()) | later}
            for machine, prefixes in newest.versions.items()
        }
        yield structs.replace(newest, name=f"manylinux_2_{number}", aliases=(), versions=versions)


def policy_of(platform: str) -> Policy | None:
    """The policy of a platform tag such as `manylinux_2_28_x86_64`; None for any other platform."""
    return _named(platform, policies())


def promise_of(platform: str) -> Policy | None:
    """Like `policy_of`, for tags such as `musllinux_1_2_x86_64` and `android_24_x86_64` too."""
    if platform.startswith("android"):
        return _android(platform)
    return policy_of(platform) or _named(platform, _policies(_MUSLLINUX))


def _android(platform: str) -> Policy | None:
    """The policy of the highest API level that is not above the tag's; the levels between have the same."""
    level = platform.split("_")[1]
    fitting = [
        policy
        for policy in _policies("android-policy.json")
        if level.isdecimal() and int(policy.name.rpartition("_")[2]) <= int(level)
    ]
    return structs.replace(fitting[-1], name=f"android_{level}") if fitting else None


def _named(platform: str, known: Iterable[Policy]) -> Policy | None:
    policies = (p for p in known if platform.startswith(tuple(f"{name}_" for name in (p.name, *p.aliases))))
    return next(policies, None)


@functools.cache
def _policies(file: str) -> tuple[Policy, ...]:
    # auditwheel is found without being imported, which would take longer than all that is read here.
    spec = find_spec("auditwheel")
    try:
        folder = Path(spec.origin or "").parent if spec else Path()
        data = json.loads((folder / "policy" / file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PrerequisiteError("auditwheel is not installed", tip="pip install auditwheel") from error
    # The older the systems, the higher the priority; that of plain `linux`, which promises nothing, is 0.
    promising = [entry for entry in data if entry["priority"]]
    return tuple(map(_policy, sorted(promising, key=lambda entry: -int(entry["priority"]))))


@functools.cache
def watched_symbols() -> frozenset[str]:
    """Every symbol that at least one policy forbids."""
    lists = (symbols for policy in policies() for symbols in policy.blacklist.values())
    return frozenset(symbol for symbols in lists for symbol in symbols)


def newest_policy() -> Policy:
    """The policy of the newest systems that auditwheel lists."""
    return _policies(_MANYLINUX)[-1]


def lowest_policy(
    binaries: Sequence[Binary], elsewhere: Sequence[str], machine: str, *, musl: bool = False
) -> Policy | None:
    """The policy of the oldest systems that these binaries run on as they are; None when there is none.

    For musl, whose symbols have no versions, that of the newest musl that has a tag: nothing in a binary says
    which musl it was linked with.

    Args:
        binaries: all of a wheel.
        elsewhere: globs of libraries that something else than the system supplies.
        machine: the architecture of the wheel, such as `x86_64`.
        musl: whether they are linked with musl, not with glibc.
    """
    known = _policies(_MUSLLINUX)[-1:] if musl else policies()
    fitting = (policy for policy in known if machine in policy.versions)
    return next((policy for policy in fitting if policy.runs(binaries, elsewhere)), None)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a library's name matches one of the globs."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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


def on_windows(name: str, machine: str) -> bool:
    """Whether every Windows, or every Python on it, has a DLL of that name.

    Args:
        name: the DLL, in upper or lower case.
        machine: as platform tags have it, such as `win_amd64`.

    Raises:
        PrerequisiteError: delvewheel is not installed.
    """
    name = name.lower()
    if is_of_debug_builds(name):
        return False
    if name.startswith(_API_SETS) or name in _LATER or _PYTHON.fullmatch(name):
        return True
    names, patterns = _known(machine)
    return name in names or any(pattern.fullmatch(name) for pattern in patterns)


def is_of_debug_builds(name: str) -> bool:
    """Whether a DLL, in lower case, is that of Microsoft's debug run time or of Python's debug build."""
    return bool(_DEBUG.fullmatch(name))


@functools.cache
def _known(machine: str) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    try:
        lists = importlib.import_module("delvewheel._dll_list")
    except ModuleNotFoundError as error:
        raise PrerequisiteError("delvewheel is not installed", tip=extras.line("windows")) from error
    kind = lists.MachineType.platform_tag_to_type(machine)
    return frozenset(lists.ignore_names.get(kind, ())), tuple(lists.ignore_regexes)


def of_matlab(needed: Iterable[str]) -> tuple[str, ...]:
    """The libraries of MATLAB among those that a file needs: the program that loads it brings them."""
    names = sorted({name.rpartition("/")[2].lower() for name in needed})
    return (
        tuple(filter(_OF_MATLAB.fullmatch, names)) if any(name.startswith("libmx.") for name in names) else ()
    )
