"""Reading packages.toml, which assigns the files of a ROCm tree to SDK packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from cairn import datafile, requirements
from cairn.errors import UsageError

ComponentName = Literal["core", "libraries", "profiler", "devel"]
COMPONENTS: tuple[ComponentName, ...] = ("core", "libraries", "profiler", "devel")

WITH_SCRIPTS: tuple[ComponentName, ...] = ("core", "profiler")
"""The packages that can put commands on PATH."""
_SCRIPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a Name of POSIX's shell


class Component(datafile.Value):
    """The share of one SDK package.

    Attributes:
        files: globs over paths in the tree (`*` stays inside a folder, `**` does not).
        exclude: globs over paths that it does not take after all.
        artifacts: globs over `NAME_COMPONENT` of the artifacts it takes files from, when the tree is one
            of artifacts; `files` then narrows them.
        requires: requirements of the package, in addition to its exact siblings.
        scripts: commands that installing core or profiler puts on PATH, to the programs of the tree.
        reports: commands of `scripts` that describe the machine; they never unpack the development files.
        unversioned: globs over libraries that are also written without a version (`libx.so`), since programs
            open them by that name.
        prepend: variables of the commands, to folders of the package that are put in front of their value.
    """

    files: tuple[str, ...] = ("**",)
    exclude: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    scripts: Mapping[str, str] = msgspec.field(default_factory=dict)
    reports: tuple[str, ...] = ()
    unversioned: tuple[str, ...] = ()
    prepend: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Wrap(datafile.Value):
    """A program of the machine that appears in the SDK's tools as a small script.

    Attributes:
        path: where the script goes in the devel package.
        program: the absolute path of the real one.
        environment: variables set for it.
        unset: variables it must not see.
        hint: how to get it where it is missing.
    """

    path: str
    program: str
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    hint: str = ""


class Program(datafile.Value):
    """A program that a library of the SDK runs on the user's machine.

    Attributes:
        path: the absolute path that is compiled into the library.
        library: glob over the names of libraries; where none has the path in it, nothing is said of it.
        hint: how to get the program where it is missing.
    """

    path: str
    library: str
    hint: str


class Description(datafile.Value, tag_field="schema", tag="cairn.rocm-packages/1"):
    """How a ROCm tree becomes packages. A file goes to the first component that claims it.

    Attributes:
        core: the runtime and what it needs.
        libraries: the target-specific libraries.
        devel: headers, CMake files and tools; what the other packages hold is linked to.
        profiler: the profilers that are in a package of their own.
        relocate: folders of the tree that appear elsewhere in the packages; the longest match counts.
        preload: shortname of a library to a glob over library names (`libamdhip64.so.*`).
        preload_must_exist: refuse a tree without one of the libraries of `preload`.
        system: libraries that the user's machine has, in addition to those of the manylinux policy.
        wrap: programs of the machine that stand in for tools.
        programs: programs that `rocm-sdk test` looks for, since a library runs them.
        links: links of devel, beside those of the tree, to where they lead from `lib` and the like.
        texts: files of devel that are written where the tree has none, such as headers that tell ROCm's
            version: `{version}`, `{major}`, `{minor}` and `{patch}` in them are replaced.
        cmake: folders with a folder for each CMake package, from which its files count up to find the tree;
            they stay where they are, and `lib/cmake` gets files that include them.
    """

    core: Component
    libraries: Component
    devel: Component
    profiler: Component = msgspec.field(default_factory=lambda: Component(files=()))
    relocate: Mapping[str, str] = msgspec.field(default_factory=dict)
    preload: Mapping[str, str] = msgspec.field(default_factory=dict)
    preload_must_exist: bool = True
    system: tuple[str, ...] = ()
    wrap: tuple[Wrap, ...] = ()
    programs: tuple[Program, ...] = ()
    links: Mapping[str, str] = msgspec.field(default_factory=dict)
    texts: Mapping[str, str] = msgspec.field(default_factory=dict)
    cmake: tuple[str, ...] = ()

    def component(self, name: ComponentName) -> Component:
        """The component of this name."""
        component: Component = getattr(self, name)
        return component

    def relocated(self, path: str) -> str:
        """The path in the packages for a path of the tree."""
        for folder in sorted(self.relocate, key=len, reverse=True):
            if path == folder or path.startswith(f"{folder}/"):
                return (self.relocate[folder] + path[len(folder) :]).strip("/")
        return path


def read(path: Path) -> Description:
    """Read a packages.toml.

    Raises:
        UsageError: it is missing, malformed or of an unknown version.
    """
    description = datafile.from_plain(datafile.read_toml(path), Description, name=str(path))
    for wrap in description.wrap:
        _validate(wrap, path)
    for text in description.texts:
        _validate_place(text, "the name {} of a text", path)
    for name in COMPONENTS:
        component = description.component(name)
        for text in component.requires:
            _validate_requirement(text, path)
        _validate_scripts(component, name, path)
    return description


def _validate_requirement(text: str, path: Path) -> None:
    try:
        requirements.requirement(text)
    except ValueError as error:
        raise UsageError(f"{path}: {text!r} is not a requirement") from error
    # It becomes a line of METADATA.
    if not text.isprintable():
        raise UsageError(f"{path}: the requirement {text!r} has a line end or other control character")


def _validate_scripts(component: Component, name: ComponentName, path: Path) -> None:
    if component.scripts and name not in WITH_SCRIPTS:
        raise UsageError(
            f"{path}: [{name}] cannot have scripts", tip=f"only {' and '.join(WITH_SCRIPTS)} can"
        )
    for script, program in component.scripts.items():
        if not _SCRIPT.fullmatch(script):
            raise UsageError(f"{path}: {script!r} cannot be the name of a command")
        _validate_place(program, "the program {} of a command", path)
    if unknown := sorted(set(component.reports) - component.scripts.keys()):
        raise UsageError(f"{path}: [{name}] reports names {unknown[0]!r}, which is not in its scripts")


def _validate(wrap: Wrap, path: Path) -> None:
    for name in (*wrap.environment, *wrap.unset):
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{path}: {name!r} of the wrap {wrap.path} is not the name of a variable")
    if not wrap.program.startswith("/"):
        raise UsageError(f"{path}: the program {wrap.program!r} of a wrap must be an absolute path")
    _validate_place(wrap.path, "the path {} of a wrap", path)


def _validate_place(text: str, template: str, path: Path) -> None:
    place = PurePosixPath(text)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise UsageError(f"{path}: {template.format(repr(text))} must be inside the package")


def therock() -> Description:
    """The description of an artifact tree as TheRock builds it."""
    return read(Path(__file__).with_name("therock.toml"))


def debian() -> Description:
    """The description of the ROCm in Debian's packages."""
    return read(Path(__file__).with_name("debian.toml"))


def matches(path: str, globs: tuple[str, ...]) -> bool:
    """Whether one of the globs describes the whole of `path`."""
    # As in .gitignore: `**/` is any number of folders, none included, `**` anything, `*` and `?` stay in
    # one folder. Compiled each time: re caches the patterns.
    tokens = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    split = (re.split(r"(\*\*/|\*\*|\*|\?)", glob) for glob in globs)
    patterns = ("".join(tokens.get(part) or re.escape(part) for part in parts) for parts in split)
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def literal_folder(glob: str) -> str:
    """The folder every match of `glob` lies in; empty for the root of the tree."""
    parts = glob.split("/")
    wild = next((n for n, part in enumerate(parts) if any(c in part for c in "*?")), len(parts) - 1)
    return "/".join(parts[:wild])
