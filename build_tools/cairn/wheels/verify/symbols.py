"""Checking that every symbol that a binary of Linux needs is there, as the loader looks for it.

The loader looks in the program, in what was loaded for all, and in what was opened together with the binary:
the libraries that it or its user needs, breadth first, each by its name. A version that is asked for must be
there, unless the library has no versions at all. Python opens modules with RTLD_NOW, so that a function
counts before it is called. What is not among the wheels is judged by its kind: the libraries of manylinux
with versions for all of their symbols (glibc, GCC's) have none without, Python has what begins as its C API
does, and of any other library it is not known what it has.

Sources: ld.so(8), dlopen(3); glibc, elf/dl-lookup.c; auditwheel's policies; libstdc++'s own list of what it
exports (GCC, libstdc++-v3/config/abi/pre/gnu.ver).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents.binaries import Binary, run_path_folder
from cairn.wheels.metadata.wheel_info import installed_path, is_of_tests
from cairn.wheels.verify.findings import Finding, FindingCode

# Libraries all of whose symbols have versions, so that what was linked with them asks for one.
_VERSIONED = re.compile(
    r"(?:libc|libm|libdl|librt|libpthread|libutil|libresolv|libanl|libmvec|libnsl|libgcc_s|libstdc\+\+"
    r"|libatomic|libgomp|libgfortran|libquadmath)\.so\..*|ld-linux.*|ld64\..*|linux-vdso.*"
)
_OF_LIBC = re.compile(rb"_*[a-z][a-z0-9_]*|_IO_\w+|_Exit")
# The tests hold these two against the libstdc++ and the libm of the machine, which are their source: GCC,
# libstdc++-v3/config/abi/pre/gnu.ver, and glibc, math/Versions.
_OF_LIBSTDCPP = re.compile(
    rb"_ZN?V?K?[RO]?(?:St|S[absiod])|_ZT[ISTV]N?K?(?:St|S[absiod]|10__cxxabiv1|9__gnu_cxx|P?K?(?:[a-z]|D[a-z]))"
    rb"|_ZG(?:VN?|TtN)K?St|_ZNK?(?:9__gnu_cxx|10__gnu_norm|10__cxxabiv1|11__gnu_debug|14__gnu_parallel)"
    rb"|_Z(?:nw|na|dl|da)|_ZT(?:[hv]n|v0_n).*_N?K?S|__cxa_|__gxx_|__dynamic_cast|__once_proxy|(?:__)?atomic_flag_"
)
# What every Python has loaded, whoever needs it: libm, libdl, libpthread and librt (glibc's manual, "Library
# Summary"), parts of libc from 2.34 on.
_OF_PROCESS = re.compile(
    rb"(?:dl(?:open|close|sym|vsym|error|addr1?|info|mopen|_iterate_phdr)|(?:pthread|sem|timer|mq|aio|shm|clock)_\w+"
    rb"|(?:a?(?:cos|sin|tan)(?:h|pi)?|atan2(?:pi)?|cbrt|ceil|copysign|drem|erfc?|exp(?:2|10|m1)?|fabs|fdim|finite"
    rb"|floor|fma|fmax|fmin|fmod|frexp|gamma|hypot|ilogb|isinf|isnan|[jy][01n]|ldexp|ll?rint|ll?round|lgamma|logb"
    rb"|log(?:2|10|1p)?|modf|nan|nearbyint|nextafter|nextdown|nexttoward|nextup|pow(?:10)?|remainder|remquo|rint"
    rb"|round(?:even)?|scalb(?:ln|n)?|significand|sincos|sqrt|tgamma|trunc|canonicalize|u?fromfpx?|llogb|matherr"
    rb"|(?:get|set)payload(?:sig)?|totalorder(?:mag)?|fm(?:ax|in)(?:mag|imum(?:_mag)?(?:_num)?)|conj"
    rb"|c(?:abs|arg|exp|imag|log(?:10)?|pow|proj|real|sqrt|a?(?:cos|sin|tan)h?)|f(?:add|div|fma|mul|sqrt|sub)"
    rb"|__(?:clog10|fpclassify|signbit|isnan|isinf|finite|issignaling|iscanonical|iseqsig))(?:f|l|f32x?|f64x?|f128)?"
    rb"(?:_r)?|(?:d|f32x?|f64x?)(?:add|div|fma|mul|sqrt|sub)(?:l|f32x?|f64x?|f128)|__\w+_finite|fe\w+"
    rb"|(?:__)?signgam|_LIB_VERSION)"
)
# Libraries of manylinux with symbols that have no version, and how their names begin. Sources: the headers
# that they come with (zlib.h, expat.h, glib.h, Xlib.h, ICElib.h, SMlib.h, gl.h, glx.h).
_OF_SYSTEM = {
    "libz.so": re.compile(rb"(?:adler32|compress|crc32|deflate|get_crc|gz|inflate|uncompress|z[A-Z]|zlib)"),
    "libexpat.so": re.compile(rb"XML_"),
    "libglib-2.0.so": re.compile(rb"g_|glib_"),
    "libgobject-2.0.so": re.compile(rb"g_"),
    "libgthread-2.0.so": re.compile(rb"g_"),
    "libX": re.compile(rb"_?X"),
    "libICE.so": re.compile(rb"_?Ice"),
    "libSM.so": re.compile(rb"_?Sm"),
    "libGL.so": re.compile(rb"gl"),
}
_OF_PYTHON = re.compile(rb"_?Py[A-Z_]")


_FOR_ALL = re.compile(rb"RTLD_GLOBAL|setdlopenflags")
_OF_ONE_PYTHON = re.compile(r"-((?:cp|pp|graalpy)3\d+)-(?!abi3-|none-)")


def go_together(first: str, second: str) -> bool:
    """Whether two wheels, by their file names, can be for one Python and one C library."""
    pythons = [set(_OF_ONE_PYTHON.findall(name)) for name in (first, second)]
    musl = ["musllinux" in name for name in (first, second)]
    glibc = ["manylinux" in name for name in (first, second)]
    same_python = not all(pythons) or bool(pythons[0] & pythons[1])
    return same_python and not (musl[0] and glibc[1]) and not (glibc[0] and musl[1])


class Program:
    """The libraries that are installed together, as the loader finds them."""

    def __init__(self, binaries: Iterable[Binary]) -> None:
        self._named: dict[tuple[str, str], list[Binary]] = {}  # by machine and name
        self._scopes: dict[int, tuple[tuple[Binary, ...], frozenset[str]]] = {}
        self._users: dict[int, list[Binary]] = {}
        self.binaries = [
            binary for binary in binaries if binary.format == "elf" and not binary.is_device_code
        ]
        for binary in self.binaries:
            for name in () if binary.is_program else binary.names:
                self._named.setdefault((binary.machine, name), []).append(binary)
        for binary in self.binaries:
            for name in binary.needed:
                for library in self.libraries_for(binary, name):
                    self._users.setdefault(id(library), []).append(binary)

    def libraries_for(self, binary: Binary, name: str) -> Sequence[Binary]:
        """The libraries that a name in DT_NEEDED may lead to: where a run path leads, or else every one."""
        libraries = self._named.get((binary.machine, name), ())
        if len(libraries) > 1:
            folders = {run_path_folder(installed_path(binary.path), path) for path in binary.run_paths}
            near = [
                library for library in libraries if installed_path(library.path).rpartition("/")[0] in folders
            ]
            return near or libraries
        return libraries

    def named(self, name: str) -> list[Binary]:
        """The libraries of a name, for every machine."""
        return [library for (_, known), those in self._named.items() if known == name for library in those]

    def scope(self, binary: Binary) -> tuple[tuple[Binary, ...], frozenset[str]]:
        """What is opened together with a binary, breadth first, and the names that lead to no library."""
        if id(binary) not in self._scopes:
            opened, absent, queue = {id(binary): binary}, set(), deque([binary])
            while queue:
                user = queue.popleft()
                for name in user.needed:
                    libraries = self.libraries_for(user, name)
                    absent |= set() if libraries else {name}
                    # What is too large to be read may have any symbol, as what is not among the files.
                    absent |= {name} if any(library.defines is None for library in libraries) else set()
                    new = [library for library in libraries if id(library) not in opened]
                    opened |= {id(library): library for library in new}
                    queue += new
            self._scopes[id(binary)] = (tuple(opened.values()), frozenset(absent))
        return self._scopes[id(binary)]

    def users(self, binary: Binary) -> Iterator[Binary]:
        """All that open a library, by way of others too."""
        seen, queue = {id(binary)}, [binary]
        while queue:
            for user in self._users.get(id(queue.pop()), ()):
                if id(user) not in seen:
                    seen.add(id(user))
                    queue.append(user)
                    yield user


def check(
    program: Program, binaries: Iterable[Binary], wheel: Path
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by binary of one wheel, and what is not known of its symbols.

    Args:
        program: the libraries of the wheel and of those that are loaded with it.
        binaries: those of the wheel.
        wheel: the wheel, whose files are searched where a module needs no library and wants symbols.
    """
    findings: list[Finding] = []
    unknown: set[bytes] = set()
    sources: set[str] = set()
    for binary in binaries:
        if binary.format != "elf" or binary.is_device_code or is_of_tests(binary.path):
            continue
        if binary.defines is None:
            sources.add(binary.path.rpartition("/")[2])
        missing, unsure, of = _unresolved(program, binary)
        loaded = [library.path.rpartition("/")[2] for library in program.scope(binary)[0][1:]]
        if missing and not loaded and _opens_for_all(wheel):
            missing, unsure, of = set(), unsure | missing, {*of, "libraries that its code opens for all"}
        unknown |= unsure
        sources |= of
        if missing:
            names = wording.some(sorted(name.decode("utf-8", "backslashreplace") for name in missing))
            having = (
                f"of what is loaded with it ({wording.some(loaded)})" if loaded else "that is loaded with it"
            )
            reason = f"it wants {names}, which nothing {having} has"
            fix = (
                "build it against what it is installed with, and link it with the library that has the symbol"
            )
            findings.append(
                Finding(code=FindingCode.SYMBOL_MISSING, member=binary.path, reason=reason, fix=fix)
            )
    text = f"whether {wording.some(sorted(sources))} have {wording.count(unknown, 'symbol')} that it wants"
    return tuple(findings), (text,) if unknown else ()


def _opens_for_all(wheel: Path) -> bool:
    """Whether code of a wheel opens libraries so that all find their symbols, as usearch does."""
    with Archive.open(wheel) as archive:
        names = (member.name for member in archive.members if member.name.endswith((".py", ".so")))
        return any(archive.search(name, _FOR_ALL) for name in names)


def _unresolved(program: Program, binary: Binary) -> tuple[set[bytes], set[bytes], set[str]]:
    """The symbols that nothing has; those of which it is not known, and who may have them."""
    left = {version: set(names) for version, names in binary.wants.items()}
    opened, absent = program.scope(binary)
    _take(left, opened)
    _take_from_system(left, binary, absent)
    if not any(left.values()):
        return set(), set(), set()
    # A library finds what its user has opened too; what is opened by its name alone, whatever is there.
    users = list(program.users(binary))
    absent &= frozenset(binary.needed)  # a linker takes symbols of what is needed itself
    for user in users:
        more, names = program.scope(user)
        _take(left, more)
        absent |= names & frozenset(user.needed)
    _take_from_system(left, binary, absent)
    missing = {name for version, names in left.items() if version for name in names}
    plain = left.get("", set())
    unknown: set[bytes] = set()
    sources: set[str] = set()
    by_name_alone = not any(
        user.is_module or (user.is_program and user is not binary) for user in (binary, *users)
    )
    if by_name_alone and (missing or plain):
        rest = {"": missing | plain}
        _take(rest, program.binaries)
        unknown = (missing | plain) - rest[""]
        sources = {"libraries that it does not need"} if unknown else set()
    for name in plain - unknown:
        of = [library for library in absent if _may_have(library, name)]
        if _OF_PYTHON.match(name):
            of = ["Python"]
        elif by_name_alone and (len(opened) == 1 or _OF_LIBSTDCPP.match(name)):
            of = ["whoever opens it"]  # as MPI, for MKL's libraries for it
        elif _OF_LIBC.fullmatch(name) and not any("libc." in library for library in binary.version_needs):
            of = of or ["the C library"]
        sources |= set(of)
        (unknown if of else missing).add(name)
    return missing - unknown, unknown, sources


def _may_have(library: str, name: bytes) -> bool:
    """Whether a library that is not among the files may have a symbol without a version."""
    if _VERSIONED.fullmatch(library):
        return False
    names = next((names for start, names in _OF_SYSTEM.items() if library.startswith(start)), None)
    return names is None or bool(names.match(name))


def _take(left: Mapping[str, set[bytes]], libraries: Iterable[Binary]) -> None:
    """Take away what libraries have."""
    for library in libraries:
        defines = library.defines or {}
        plain = defines.keys() <= {""}
        for version, names in left.items():
            if not names:
                continue
            if version and not plain:
                names.difference_update(defines.get(version, ()))
            else:  # any version will do where none is asked for, or the library has none
                names.difference_update(*defines.values())


def _take_from_system(left: Mapping[str, set[bytes]], binary: Binary, absent: Collection[str]) -> None:
    """Take away what libraries that are not among the files have, as far as their kind tells."""
    for library, versions in binary.version_needs.items():
        # The linker has seen the version in that library; the policy of the tag says whether systems have it.
        if library in absent:
            for version in versions:
                left.get(version, set()).clear()
    plain = left.get("", set())
    plain -= {name for name in plain if _OF_PROCESS.fullmatch(name)}
    if any(name.startswith(("libgcc_s.so", "libstdc++.so")) for name in absent):  # which needs the first
        plain -= {name for name in plain if name.startswith(b"_Unwind_")}
    if any(name.startswith("libstdc++.so") for name in absent):
        plain -= {name for name in plain if _OF_LIBSTDCPP.match(name)}
