"""The machine's part of a build's key: its compilers, and files outside the build that it may read.

Compilers and build systems look into folders that variables name (`CPATH`, `CMAKE_PREFIX_PATH`), into those
of the system, which packages fill, and into `/usr/local`, which people fill. All that could be read there
counts, rather than what a compiler says that it has read: not every build has it say so, and what was not
there (`__has_include`, the first of two folders) decides as well.

Without a known package manager to list the contents of the system's folders, a wheel is valid on one machine.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from cairn import files, isolation, platforms, process
from cairn.build.model import BuildRequest
from cairn.errors import CairnError, PrerequisiteError, ProcessError
from cairn.formats.zip import deflate
from cairn.interpreters import Interpreter
from cairn.stack import Carried, Project

# Filled by packages, whose versions stand for them; `/usr/local` is not.
_OF_PACKAGES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc", "/sys")
_LOCAL = "usr/local"
_LOCAL_FOLDERS = ("include", "lib/cmake", "lib/pkgconfig", "lib64/cmake", "lib64/pkgconfig", "share/cmake")
_LOCAL_LIBRARIES = ("lib", "lib64")
# Headers, what is linked, compilers and what runs them. A library that programs load has no part in a build
# but through the package that has its headers.
_DEVELOPMENT = re.compile(
    r".*-(dev|devel|headers)(:.*)?|(gcc|g\+\+|cpp|binutils|clang|llvm|libc6|glibc|libstdc\+\+|musl|linux-libc)"
    r".*|cmake.*|make|ninja.*|pkgconf.*|pkg-config"
)
_DPKG, _APK, _PACMAN = "var/lib/dpkg/status", "lib/apk/db/installed", "var/lib/pacman/local"
_RPM = ("var/lib/rpm", "usr/lib/sysimage/rpm")
_FIELD = re.compile(r"^(Package|Version|Architecture|Section|Status|P|V): ?(.*)$", re.MULTILINE)
_SEPARATORS = re.compile(r"[\s;:,=\"']+")
_FLAG = re.compile(r"^-[A-Za-z]+(?=/)")  # `-I/opt/include`
_MAPPED = re.compile(r"-f[a-z-]*prefix-map=[^\s\"']*")  # how paths are to look, not where something is
# Places that a build writes: what is in a cache decides how long it takes, not what comes of it.
_WRITTEN = re.compile(r"HOME|(.*_)?(CCACHE|SCCACHE|CACHE|TMP|TEMP|TMPDIR|LOG)(_.*)?", re.IGNORECASE)
_SETTLED = 2_000_000_000  # ns: what was written just now may be written again within a tick of the clock


def toolchain(
    python: Interpreter, *, host_compiler: bool, build_env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the identity of the toolchain for cache keys.

    Args:
        python: the interpreter that builds.
        host_compiler: ask the machine's own C++ compiler too; a build with the ROCm SDK brings one.
        build_env: the variables that the user gives to the build; `CXX` may be among them.
    """
    identity = isolation.compiler_variables()
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):  # of members that Cairn itself adds to a wheel
        identity["SOURCE_DATE_EPOCH"] = epoch
    identity["python"] = python.release
    # What is linked against a newer one does not load with an older one (PEP 600); containers share a cache.
    identity["libc"] = " ".join(platform.libc_ver())
    return identity | {"c++": _version(_compiler(build_env))} if host_compiler else identity


def toolchain_of_manifest(
    python: Interpreter, *, host_compiler: bool, build_env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Like `toolchain`, with the deflate library, which changes a wheel but must not cause a rebuild."""
    return toolchain(python, host_compiler=host_compiler, build_env=build_env) | {"deflate": deflate.engine()}


def require_host_compiler(build_env: Mapping[str, str] | None = None) -> str:
    """Return the machine's C++ compiler; `build_env` as in `toolchain`.

    Raises:
        PrerequisiteError: there is none.
    """
    compiler = _compiler(build_env)
    if shutil.which(shlex.split(compiler)[0]) is None:
        raise PrerequisiteError(
            f"this stack is built with the machine's C++ compiler, and there is no {compiler}",
            tip="install one, on Debian and Ubuntu: apt install g++",
        )
    return compiler


def _compiler(build_env: Mapping[str, str] | None) -> str:
    return (build_env or {}).get("CXX") or "g++"


@functools.cache
def _version(compiler: str) -> str:
    try:
        env = isolation.variables(isolation.Isolation.TOOL)
        return process.run([*shlex.split(compiler), "--version"], env=env).output.partition("\n")[0]
    except (PrerequisiteError, ProcessError):
        return "none"


def look_outside(
    variables: Mapping[str, str], *, inside: Collection[Path], root: Path = Path("/")
) -> dict[str, str | None]:
    """Return digests of what a build could read on this machine now, for its key.

    `packages` are those for development, None where no package manager is known. The others are each folder
    or file that variables name, and `/usr/local`.

    Args:
        variables: those of the build, and its settings; what placeholders stand for is an input by itself.
        inside: folders that are inputs by themselves: the tree, the environment, the SDK.
        root: where the system is.
    """
    texts = [text for name, text in variables.items() if not _WRITTEN.fullmatch(name)]
    paths = {path for text in texts for path in _paths(text) if not _is_covered(path, inside)}
    local = root / _LOCAL
    places = [*sorted(paths), *(local / name for name in _LOCAL_FOLDERS if (local / name).is_dir())]
    digests = {str(place): _digest(place, inside) for place in places}
    for name in _LOCAL_LIBRARIES:
        libraries = [path for path in sorted((local / name).glob("*")) if path.is_file()]
        if libraries:
            digests[str(local / name)] = _digest_of(local / name, libraries)
    return {"packages": _packages_digest(root), **digests}


def _paths(text: str) -> Iterator[Path]:
    """Yield the absolute paths in a variable: alone, in a list, or after a flag."""
    text = _MAPPED.sub("", text)
    words = {text, *text.split(os.pathsep), *(_FLAG.sub("", word) for word in _SEPARATORS.split(text))}
    for word in words:
        # No address, no placeholder, and not the folder of all folders.
        if re.match(r"/[^/{\n\0][^{\n\0]*$", word):
            yield Path(os.path.normpath(word))


def _is_covered(path: Path, inside: Collection[Path]) -> bool:
    is_ours = any(path.is_relative_to(folder) for folder in inside)
    of_packages = any(path.is_relative_to(folder) for folder in _OF_PACKAGES)
    return is_ours or (of_packages and not path.is_relative_to(f"/{_LOCAL}"))


def _digest(place: Path, inside: Collection[Path]) -> str:
    """Return a digest of a place: every file's path and content."""
    if place.is_dir():
        others = [folder for folder in inside if folder.is_relative_to(place)]
        paths = (
            path for path in files.walk(place) if not any(path.is_relative_to(folder) for folder in others)
        )
        return _digest_of(place, sorted(paths))
    return _digest_of(place.parent, [place]) if place.exists() else "nothing"


def _digest_of(folder: Path, paths: Iterable[Path]) -> str:
    """Return a digest of files; a file is read again only if its size, time or inode changed."""
    note = files.cache_dir() / "outside" / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]}.json"
    last_note = _read_note(note)
    marks: dict[str, list[object]] = {}
    digest = hashlib.sha256()
    for path in paths:
        name = os.fsencode(path.relative_to(folder)).hex()
        try:
            status = path.stat()
            mark: list[object] = [status.st_size, status.st_mtime_ns, status.st_ino]
            was = last_note.get(name, [])
            sha256 = str(was[-1]) if was[:-1] == mark else files.sha256_of(path)
            if time.time_ns() - status.st_mtime_ns > _SETTLED:
                marks[name] = [*mark, sha256]
        except OSError as error:  # a link to nowhere, or what this user may not read, and a compiler neither
            sha256 = error.strerror or "cannot be read"
        digest.update(f"{name} {sha256}\n".encode())
    if marks != last_note:
        files.write_text(note, json.dumps(marks))
    return digest.hexdigest()


def _read_note(note: Path) -> dict[str, list[object]]:
    try:
        marks = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}


def _packages_digest(root: Path) -> str | None:
    """Return a digest of the packages relevant to compiling, cached until the list of packages changes."""
    for place in (root / _DPKG, root / _APK, root / _PACMAN, *(root / name for name in _RPM)):
        if not place.exists():
            continue
        inner = [place, *(place.iterdir() if place.is_dir() else ())]
        status = {str(path): path.stat() for path in sorted(inner)}
        marks = [
            [name, status_of_file.st_size, status_of_file.st_mtime_ns, status_of_file.st_ino]
            for name, status_of_file in status.items()
        ]
        note = files.cache_dir() / "outside" / "packages.json"
        last_note = _read_note(note)
        if last_note.get("marks") == marks:
            return str(last_note["digest"][0])
        packages = _list_packages(place, root)
        if packages is None:
            return None
        digest = hashlib.sha256("\n".join(sorted(packages)).encode()).hexdigest()
        if time.time_ns() - max(status_of_file.st_mtime_ns for status_of_file in status.values()) > _SETTLED:
            files.write_text(note, json.dumps({"marks": marks, "digest": [digest]}))
        return digest
    return None


def _list_packages(place: Path, root: Path) -> list[str] | None:
    """List the packages in a database; None if it cannot be read."""
    try:
        if place == root / _PACMAN:
            return [path.name for path in place.iterdir() if path.is_dir()]
        if not place.is_dir():
            return _paragraphs(place.read_text(encoding="utf-8", errors="replace"))
        words = ("--root", str(root), "-qa", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}\n")
        return [line for line in process.run(["rpm", *words]).output.splitlines() if _is_development(line)]
    except (CairnError, OSError):
        return None


def _paragraphs(text: str) -> list[str]:
    """Split dpkg's or apk's list into packages, each a paragraph of fields."""
    packages = []
    for paragraph in text.split("\n\n"):
        fields = dict(_FIELD.findall(paragraph))
        name = fields.get("Package") or fields.get("P", "")
        if not name or not fields.get("Status", "ok installed").endswith("ok installed"):
            continue
        if _is_development(name) or fields.get("Section", "").rpartition("/")[2] in ("devel", "libdevel"):
            version = fields.get("Version") or fields.get("V")
            packages.append(f"{name} {version} {fields.get('Architecture', '')}")
    return packages


def _is_development(line: str) -> bool:
    return _DEVELOPMENT.fullmatch(line.partition(" ")[0]) is not None


def carried_digests(request: BuildRequest, project: Project) -> dict[str, str]:
    """Return path in the wheel to sha256 of each file that comes from the machine.

    Raises:
        PrerequisiteError: a file is missing.
    """
    sources = ((entry.path, _source_of(entry, request, project)) for entry in _carried(request, project))
    return {path: files.sha256_of(source) for path, source in sources if source is not None}


def missing_members(
    request: BuildRequest, project: Project, tree: Path, members: Collection[str]
) -> dict[str, Path]:
    """Return path in the wheel to the file that it gets, for those that a built wheel lacks.

    Args:
        request: the build.
        project: what was built.
        tree: its source tree, after the build.
        members: what the wheel has.

    Raises:
        PrerequisiteError: a file of the machine is missing.
    """
    missing: dict[str, Path] = {}
    for entry in _carried(request, project):
        source = _source_of(entry, request, project) if entry.variable else tree / entry.path
        if entry.path not in members and source is not None and source.is_file():
            missing[entry.path] = source
    return missing


def _carried(request: BuildRequest, project: Project) -> Iterator[Carried]:
    for entry in project.carries:
        on = entry.feature is None or entry.feature in request.features
        if on and entry.platform == platforms.here.stack_section():
            yield entry


def _source_of(entry: Carried, request: BuildRequest, project: Project) -> Path | None:
    if not entry.variable:
        return None
    folder = request.env_of(project).get(entry.variable) or os.environ.get(entry.variable, "")
    if not folder and not entry.required:
        return None
    name = entry.path.rpartition("/")[2]
    source = min(Path(folder).glob(entry.find or name), default=None) if folder else None
    if source is None:
        state = f"{folder} has none" if folder else "is not set"
        raise PrerequisiteError(
            f"{project.distribution} carries {name}, which {entry.variable} leads to; that {state}",
            tip=f"name its folder: --build-env {entry.variable}=FOLDER",
        )
    return source
