"""What changed between two wheels."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn.formats import kpack
from cairn.formats.image import Symbol
from cairn.formats.kpack import without_build
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.requirements import neutral as neutral_requirement
from cairn.requirements import specifiers
from cairn.wheels.contents import code_archives
from cairn.wheels.interface import changes
from cairn.wheels.interface.changes import Delta, PythonChange, TargetChange, change
from cairn.wheels.interface.model import FileState, Interface, Library
from cairn.wheels.interface.read import read_interface

__all__ = ["Delta", "Difference", "between", "diff"]

_FIELDS = ("name", "version", "build", "variant", "tags", "requires_python", "extras")
# auditwheel and delvewheel put the beginning of a hash into the names of libraries that they graft.
# They add another one where a wheel is repaired again.
_GRAFTED = re.compile(r"(?:-[0-9a-f]{8,64})+(?=\.(?:so|dll|dylib))")
# Symbols whose names hold a hash of their source file: nvcc's and clang's own, for device code.
_OF_BUILD = re.compile(
    r"__(?:cudaRegisterLinkedBinary|fatbinwrap|hip_cuid|hip_fatbin|hip_gpubin_handle|hip_module|NV_MODULE_ID)\w*|"
    r".*_INTERNAL_[0-9a-f]{8}_.*|.*_GLOBAL__N__[0-9a-f]{8}_.*"
)
# What every library that instantiates the standard library's templates, or has it in it, exports, and nobody
# binds to; guards of its variables and its clones for transactions too.
_OF_STANDARD_LIBRARY = re.compile(r"_Z(?:GTt|GV|GR)?N?K?(?:St|S[abdios]|9__gnu_cxx)|_ZT[ISV]N?S")


class LibraryChange(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the two versions of a binary that both wheels contain.

    Attributes:
        member: its path in the newer wheel.
        before: its path in the older one, where that is different.
        size: bytes in both.
        needed: libraries.
        run_paths: folders.
        targets: targets of its device code.
        version_needs: symbol versions, as `libc.so.6: GLIBC_2.28`; DLLs have none.
        exports: symbols that others can bind to, with their versions as `name@VERSION`, but for weak ones.
        weak_exports: inline functions and templates, which those who use them mostly have, too; those of the
            C++ standard library are left out.
        imports: symbols that it does not load without.
        compilers: what made it.
        soname: the name that others find it by, before and after.
    """

    member: str
    before: str = ""
    size: tuple[int, int]
    needed: Delta
    run_paths: Delta
    targets: Delta
    version_needs: Delta
    exports: Delta = Delta()
    weak_exports: Delta = Delta()
    imports: Delta = Delta()
    compilers: Delta = Delta()
    soname: Delta = Delta()


class ArchiveChange(msgspec.Struct, frozen=True, kw_only=True):
    """The differences in a kpack archive that both wheels contain, by `library#wrapper` and target.

    Attributes:
        member: its path.
        targets: that it has code for.
        code: what has code in only one of them.
        changed: what has different code.
        same: how many have the same.
    """

    member: str
    targets: Delta
    code: Delta
    changed: tuple[str, ...]
    same: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two wheels; the version in folder names does not count.

    Attributes:
        before, after: their file names.
        fields: name of the field to its two values; other spellings of one value are no difference.
        size: bytes of the wheels.
        unpacked_size: bytes of their members.
        requirements: likewise; an exact one of the wheel's own version is the same in every version.
        entry_points: as `console_scripts: demo = demo.cli:main`.
        licences: licence expressions, classifiers and files.
        files: files that only one has.
        renamed: files with the same content under another path: the older path to the newer one.
        changed: files with other bytes.
        modes: files whose run bit changed.
        libraries: binaries that differ in what others see of them.
        exports: symbols that no library of the wheel has any more, or had before; weak ones left out.
        operators: as `aten::add.Tensor(Tensor self) -> Tensor`; one with another schema is in both.
        targets: targets of device code.
        kernels: kernels by target.
        compilers: what made the libraries.
        python: public Python names; None where one of the wheels was read without them.
        archives: kpack archives that differ in what a runtime finds in them.
        order: whether the same members are in a different order, or have other times.
        unread: what could not be read, and so not compared.
    """

    before: str
    after: str
    fields: Mapping[str, tuple[str, ...]]
    size: tuple[int, int]
    unpacked_size: tuple[int, int]
    requirements: Delta
    entry_points: Delta
    licences: Delta
    files: Delta
    renamed: Mapping[str, str]
    changed: tuple[str, ...]
    modes: tuple[str, ...]
    libraries: tuple[LibraryChange, ...]
    exports: Delta
    operators: Delta
    targets: Delta
    kernels: tuple[TargetChange, ...]
    compilers: Delta
    python: PythonChange | None
    archives: tuple[ArchiveChange, ...]
    order: bool
    unread: tuple[str, ...]


def diff(first: Path, second: Path, *, python: bool = True) -> Difference:
    """Compare two wheels; for `python` see `read_interface`.

    Raises:
        WheelError: one of them cannot be read.
    """
    with collector_paused():
        return between(read_interface(first, python=python), read_interface(second, python=python))


def between(before: Interface, after: Interface) -> Difference:
    """Compare two wheels that were read; of two listings what these tell.

    Raises:
        WheelError: a kpack archive that both have cannot be unpacked.
    """
    old, new = _files(before), _files(after)
    # The CRC of the central directory stands for the content, so that only binaries are unpacked.
    both = old.keys() & new.keys()
    changed = tuple(sorted(path for path in both if _has_other_bytes(old[path], new[path])))
    is_listing = before.is_listing or after.is_listing
    same = [_sameness([old[path].digest == new[path].digest != "" for path in both.difference(changed)])]
    files = change(old, new)
    renamed = dict(_renamed(files, old, new))
    arrived = set(renamed.values())
    requirements = change(old_requirements := _requirements(before), new_requirements := _requirements(after))
    return Difference(
        before=before.file_name,
        after=after.file_name,
        fields={
            name: (_text(getattr(before, name)), _text(getattr(after, name)))
            for name in _FIELDS
            if _value_of(before, name) != _value_of(after, name)
        },
        size=(before.size, after.size),
        unpacked_size=(before.unpacked_size, after.unpacked_size),
        requirements=Delta(
            removed=tuple(old_requirements[key] for key in requirements.removed),
            added=tuple(new_requirements[key] for key in requirements.added),
        ),
        entry_points=change(_entry_points(before), _entry_points(after)),
        licences=change(before.licences, after.licences),
        files=Delta(
            removed=tuple(path for path in files.removed if path not in renamed),
            added=tuple(path for path in files.added if path not in arrived),
        ),
        renamed=renamed,
        changed=changed,
        modes=tuple(sorted(path for path in both if old[path].executable != new[path].executable)),
        libraries=tuple(_library_changes(before, after, renamed)),
        exports=_exports(before.libraries, after.libraries),
        operators=change(_operators(before), _operators(after)),
        targets=change(before.targets, after.targets),
        kernels=changes.kernels(before.kernels, after.kernels),
        compilers=change(_compilers(before), _compilers(after)),
        python=changes.python(before.python, after.python) if before.python and after.python else None,
        archives=() if is_listing else tuple(_archive_changes(before, after, changed)),
        order=[(path, state.stamp) for path, state in old.items()]
        != [(path, state.stamp) for path, state in new.items()],
        unread=tuple(dict.fromkeys((*before.unread, *after.unread, *(same if is_listing else ())))),
    )


def neutral(path: str, info: Interface) -> str:
    """The path without its version and hashes: `demo-*.dist-info` for `demo-1.0.dist-info`."""
    stem = info.dist_info.removesuffix(".dist-info")
    top, slash, rest = path.partition("/")
    for end in (".dist-info", ".data"):
        if top == stem + end:
            return f"{stem.rpartition('-')[0]}-*{end}{slash}{rest}"
    return _GRAFTED.sub("-*", path)


def _has_other_bytes(old: FileState, new: FileState) -> bool:
    """Whether content differs: by size, CRC-32, or the hashes that both RECORDs claim."""
    a, b = old.digest, new.digest
    comparable = a and b and a.partition("=")[0] == b.partition("=")[0]
    return old[:2] != new[:2] or bool(comparable and a != b)


def _sameness(by_hash: Sequence[bool]) -> str:
    """Say what the files were compared by that are the same."""
    hashed = sum(by_hash)
    return (
        f"the bytes of the {len(by_hash)} files that are the same: {hashed} by the hashes in RECORD, "
        f"{len(by_hash) - hashed} by size and CRC-32"
    )


def _files(info: Interface) -> dict[str, FileState]:
    return {neutral(path, info): state for path, state in info.files.items()}


def _requirements(info: Interface) -> dict[str, str]:
    # A host wheel requires each of its device wheels in its own version, thrice (PEP 508 pins: `==`).
    own_version = re.compile(rf"=={re.escape(info.version)}(?![\w.+!*-])")
    return {own_version.sub("==*", neutral_requirement(text)): text for text in info.requires_dist}


def _value_of(info: Interface, field: str) -> object:
    value = getattr(info, field)
    if field == "name":
        return canonicalize_name(value)
    if field == "extras":
        return set(map(canonicalize_name, value))
    if field == "tags":
        return set(value)
    if field == "requires_python" and value is not None:
        with contextlib.suppress(ValueError):
            return frozenset(specifiers(value))  # a SpecifierSet cannot be compared with what is none
    return value


def _entry_points(info: Interface) -> list[str]:
    groups = info.entry_points.items()
    return [f"{group}: {name} = {place}" for group, names in groups for name, place in names.items()]


def _renamed(
    files: Delta, old: Mapping[str, FileState], new: Mapping[str, FileState]
) -> Iterator[tuple[str, str]]:
    """The files that moved: same content, and the same name in another folder before any other."""
    # By content, then by name: thousands of files may have the content of one licence.
    places: dict[tuple[int, int], dict[str, deque[str]]] = {}
    for path in files.added:
        if new[path].size:
            by_name = places.setdefault(new[path][:2], {})
            by_name.setdefault(path.rpartition("/")[2], deque()).append(path)
    for path in files.removed:
        if by_name := places.get(old[path][:2], {}):
            name = path.rpartition("/")[2]
            name = name if name in by_name else next(iter(by_name))
            yield path, by_name[name].popleft()
            if not by_name[name]:
                del by_name[name]


def _library_changes(
    before: Interface, after: Interface, renamed: Mapping[str, str]
) -> Iterator[LibraryChange]:
    old = {(neutral(library.path, before), library.machine): library for library in before.libraries}
    new = {(neutral(library.path, after), library.machine): library for library in after.libraries}
    pairs = {key: key for key in old.keys() & new.keys()}
    # A library that was rebuilt under the name of its next version: `libfoo.so.1` and `libfoo.so.2`.
    rest = {_stem(key): key for key in new.keys() - old.keys()}
    for key in sorted(old.keys() - new.keys()):
        match = (renamed.get(key[0], ""), key[1])
        match = match if match in new else rest.pop(_stem(key), match)
        if match in new:
            pairs[key] = match
    for key, match in sorted(pairs.items()):
        a, b = old[key], new[match]
        content = before.files.get(a.path, ())[:2]
        if key == match and content and content == after.files.get(b.path, ())[:2]:
            continue  # most of a wheel's libraries in a night: to compare 75,000 symbols of each takes long
        library_change = LibraryChange(
            member=b.path,
            before=a.path if key != match else "",
            size=(a.size, b.size),
            needed=change(map(_plain, a.needed), map(_plain, b.needed)),
            run_paths=change(a.run_paths, b.run_paths),
            targets=change(a.targets, b.targets),
            version_needs=change(_versions(a), _versions(b)),
            exports=_exports([a], [b]),
            weak_exports=_exports([a], [b], weak=True),
            imports=change(map(_shown_symbol, _imported(a)), map(_shown_symbol, _imported(b))),
            compilers=change(a.compilers, b.compilers),
            soname=change(_soname(a), _soname(b)),
        )
        differs = any(value for value in structs.astuple(library_change) if isinstance(value, Delta))
        if differs or key != match:
            yield library_change


def _stem(key: tuple[str, str]) -> tuple[str, str]:
    return re.sub(r"(\.so)[\d.]*$|-?[\d.]+(\.dylib|\.dll)$", r"\1\2", key[0]), key[1]


def _plain(name: str) -> str:
    return _GRAFTED.sub("-*", name)


def _soname(library: Library) -> tuple[str, ...]:
    return (_plain(library.soname),) if library.soname else ()


def _exports(old: Iterable[Library], new: Iterable[Library], *, weak: bool = False) -> Delta:
    before, after = (
        frozenset().union(*(library.exports for library in libraries if not library.is_program))
        for libraries in (old, new)
    )

    def shown(symbols: Iterable[Symbol]) -> Iterator[str]:
        for symbol in symbols:
            counts = symbol.weak is weak and not _OF_STANDARD_LIBRARY.match(symbol.name)
            if counts and not _OF_BUILD.fullmatch(symbol.name):
                yield _shown_symbol(symbol)

    # libtorch_cpu has 75,000, of which few differ.
    return change(shown(before - after), shown(after - before))


def _imported(library: Library) -> Iterator[Symbol]:
    return (symbol for symbol in library.imports if not symbol.weak)


def _shown_symbol(symbol: Symbol) -> str:
    return f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name


def _operators(info: Interface) -> set[str]:
    return {f"{operator.qualified}{operator.schema}" for operator in info.operators}


def _compilers(info: Interface) -> set[str]:
    return {text for library in info.libraries for text in library.compilers}


def _archive_changes(before: Interface, after: Interface, changed: Iterable[str]) -> Iterator[ArchiveChange]:
    for path in changed:
        if not path.endswith(kpack.SUFFIX):
            continue
        a, b = _code_of(before, path), _code_of(after, path)
        both = a.keys() & b.keys()
        differing = sorted(_shown(place) for place in both if a[place] != b[place])
        archive_change = ArchiveChange(
            member=path,
            targets=change((arch for _, arch in a), (arch for _, arch in b)),
            code=change(map(_shown, a), map(_shown, b)),
            changed=tuple(differing),
            same=len(both) - len(differing),
        )
        if archive_change.targets or archive_change.code or archive_change.changed:
            yield archive_change


def _code_of(info: Interface, path: str) -> dict[tuple[str, str], str]:
    """The digests of the code in a kpack archive, by names that do not change with each build."""
    path_of_file = next(name for name in info.files if neutral(name, info) == path)
    with Archive.open(info.path) as archive:
        digests = code_archives.digests(archive, path_of_file)
    return {(without_build(key), arch): sha256 for (key, arch), sha256 in digests.items()}


def _shown(place: tuple[str, str]) -> str:
    """A wrapper and a target: `lib/libtorch_hip.so#3 gfx942`."""
    return " ".join(place)


def _versions(binary: Library) -> list[str]:
    return [
        f"{_plain(name)}: {version}"
        for name, versions in binary.version_needs.items()
        for version in versions
    ]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
