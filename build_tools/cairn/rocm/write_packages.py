"""The packages of a layout as wheels, and `rocm` as an sdist."""

from __future__ import annotations

import json
import posixpath
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import __version__, files, requirements
from cairn.errors import UsageError, WheelError
from cairn.formats import cyclonedx
from cairn.formats.offload import code_object
from cairn.formats.zip.writer import New
from cairn.output import Progress
from cairn.rocm import archive, assign_files, binaries
from cairn.rocm.assign_files import Layout, Package, PackageMember
from cairn.rocm.debian import DebianPackage
from cairn.rocm.packages_toml import Description, Wrap, matches
from cairn.rocm.tree import RocmTree
from cairn.targets import families, in_order

_CMAKE = "lib/cmake"
# include() keeps `..` in CMAKE_CURRENT_LIST_FILE, which the included file takes folders off.
_CMAKE_INCLUDE = """\
get_filename_component(_cairn_real "${{CMAKE_CURRENT_LIST_DIR}}/{path}" ABSOLUTE)
include("${{_cairn_real}}")
"""
_REQUIRES_PYTHON = ">=3.10"
_PAYLOAD = Path(__file__).with_name("runtime")
_SCRIPTS = "_scripts.py"
_SCRIPT = """

def {function}() -> int:
    return start({name!r}, {path!r}, {file!r}, development={development}, in_devel={in_devel})
"""
_GENERATED = "Made by cairn rocm package"


class SdkRelease(msgspec.Struct, frozen=True, kw_only=True):
    """What all packages of one SDK have in common.

    Attributes:
        version: ROCm's version (PEP 440).
        families: family to its targets, the default family first.
        description: how the tree was shared out.
        tree: the tree.
        only: the processors whose device code the libraries keep; empty for all.
    """

    version: str
    families: Mapping[str, tuple[str, ...]]
    description: Description
    tree: RocmTree
    only: frozenset[str] = frozenset()


def wheel_name(package: Package, plan: Layout, release: SdkRelease) -> str:
    """The file name (PEP 427, with the name normalised as the binary distribution format says)."""
    with_binaries = [m.binary for m in package.members if m.binary]
    if package.component == "devel":  # its links lead into core, so it is no more portable than that
        with_binaries += [m.binary for m in plan.core.members if m.binary]
    tag = binaries.platform_tag(with_binaries)
    return f"{_escaped(package.distribution)}-{release.version}-py3-none-{tag}.whl"


def write_runtime_wheel(
    path: Path, package: Package, plan: Layout, release: SdkRelease, *, staging: Path, say: Progress
) -> None:
    """Write core or one libraries package; files whose RUNPATH must change are copied to `staging` first."""
    members = [New(name=f"{package.folder}/__init__.py", content=_init(release))]
    members += (
        New(
            name=f"{package.folder}/{m.path}",
            content=_staged(package, m, plan, release, staging, say),
            executable=m.executable,
        )
        for m in package.members
    )
    if rows := scripts_of(package, plan, release):
        members.append(
            New(name=f"{package.folder}/{_SCRIPTS}", content=_scripts_module(rows, package, release))
        )
    requires = [] if package.component == "core" else [f"{plan.core.distribution}=={release.version}"]
    _write(path, package, members, release, requires, say)


def scripts_of(package: Package, plan: Layout, release: SdkRelease) -> list[dict[str, str | bool]]:
    """For each command of a package, the arguments with which `runtime/_scripts.py` starts its program."""
    description, component = release.description, release.description.component(package.component)
    programs = {member.path: member.path for member in package.members}
    # A link of the tree: what it leads to is the program.
    homes = {member.source: member.path for member in package.members}
    for entry in release.tree.entries if component.scripts else ():
        source = release.tree.leads_to(entry) if entry.source.is_symlink() else None
        if source in homes:
            programs.setdefault(description.relocated(entry.path), homes[source])
    unpacked = {*(m.path for m in plan.devel.members), *(link.path for link in plan.links)}
    unpacked |= {*(wrap.path for wrap in description.wrap), *description.links}
    rows: list[dict[str, str | bool]] = []
    for name, program in component.scripts.items():
        path = description.relocated(program)
        row: dict[str, str | bool] = {"name": name, "path": path, "file": programs.get(path, "")}
        row["development"] = package.component == "core" and name not in component.reports
        rows.append(row | {"in_devel": path in unpacked, "function": _function(name)})
    return rows


def absent_programs(package: Package, plan: Layout, release: SdkRelease) -> tuple[str, ...]:
    """The commands of a package whose programs are neither in it nor among the development files."""
    rows = scripts_of(package, plan, release)
    return tuple(str(row["name"]) for row in rows if not row["file"] and not row["in_devel"])


def absent_packages(plan: Layout, release: SdkRelease) -> tuple[str, ...]:
    """The packages that packages.toml describes and the tree has no file for."""
    described = release.description
    return tuple(
        package.distribution
        for package in (*plan.libraries, plan.profiler)
        if not package.members and described.component(package.component).files
    )


def _scripts_module(rows: list[dict[str, str | bool]], package: Package, release: SdkRelease) -> bytes:
    prepend = release.description.component(package.component).prepend
    values = {"VERSION": release.version, "PREPEND": {name: list(prepend[name]) for name in prepend}}
    text = (_PAYLOAD / _SCRIPTS).read_text(encoding="utf-8")
    text += "\n\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())
    return "".join([text, *(_SCRIPT.format(**row) for row in rows)]).encode()


def _function(script: str) -> str:
    """The name of the function of a command, of which `+`, `-` and `.` cannot be part."""
    return "start_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in script)


def write_devel_wheel(path: Path, plan: Layout, release: SdkRelease, *, staging: Path, say: Progress) -> None:
    """Write devel: a tar of headers, CMake files, tools and links, unpacked when first asked for."""
    package = plan.devel
    # A tar inside the wheel, since wheels hold no links and pip would compile every Python file of the
    # tools. The package `rocm_sdk` unpacks it (runtime/_devel.py), and makes the links into the other
    # packages from links.json: where these are installed is known only then.
    tar = staging / "devel.tar"
    description = release.description
    wraps = [New(name=w.path, content=_wrapper(w), executable=True) for w in description.wrap]
    wraps += _cmake_includes(package, description)
    wraps += _texts(package, release)
    files = [
        New(name=m.path, content=_staged(package, m, plan, release, staging, say), executable=m.executable)
        for m in package.members
        if m.path not in {w.name for w in wraps}
    ]
    inner = [
        (link.path, posixpath.relpath(link.target, posixpath.dirname(link.path) or "."))
        for link in plan.links
        if link.component == "devel"
    ]
    names = [*(file.name for file in (*files, *wraps)), *(link.path for link in plan.links)]
    inner += [pair for pair in description.links.items() if _leads_into(pair, names)]
    archive.write_tar(tar, sorted([*files, *wraps, *inner], key=_name_of))
    across = [[link.path, link.component, link.target] for link in plan.links if link.component != "devel"]
    pure = package.folder.removeprefix("_")
    members = [
        New(name=f"{pure}/__init__.py", content=_init(release)),
        New(name=f"{pure}/devel.tar", content=tar),
        New(name=f"{pure}/links.json", content=json.dumps(across, indent=0).encode()),
    ]
    requires = [f"{plan.core.distribution}=={release.version}", f"rocm=={release.version}"]
    _write(path, package, members, release, requires, say)


def _leads_into(link: tuple[str, str], names: list[str]) -> bool:
    """Whether a link (its path, its target) leads to one of these files, or to a folder with one."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(link[0]), link[1]))
    return any(name == place or name.startswith(f"{place}/") for name in names)


def write_sdist(path: Path, plan: Layout, release: SdkRelease) -> None:
    """Write `rocm`: the `rocm_sdk` package and a build backend that chooses the dependencies."""
    top = f"rocm-{release.version}"
    payload = [path for path in _PAYLOAD.glob("*.py") if path.name != _SCRIPTS]
    files = {f"rocm_sdk/{path.name}": path.read_bytes() for path in payload}
    files["rocm_sdk/_version.py"] = _init(release)
    files["rocm_sdk/_dist.json"] = f"{json.dumps(_dist(plan, release), indent=2)}\n".encode()
    files["pyproject.toml"] = _PYPROJECT.encode()
    files["PKG-INFO"] = _PKG_INFO.format(version=release.version, python=_REQUIRES_PYTHON).encode()
    archive.write_sdist(path, [New(name=f"{top}/{name}", content=files[name]) for name in sorted(files)])


_PYPROJECT = """\
# The backend lies in this tree and needs nothing: installing must work with one index alone.
[build-system]
requires = []
build-backend = "rocm_sdk._backend"
backend-path = ["."]
"""
# The dependencies are known only when it is built (PEP 643).
_PKG_INFO = """\
Metadata-Version: 2.2
Name: rocm
Version: {version}
Requires-Python: {python}
Dynamic: Requires-Dist
Dynamic: Provides-Extra
"""


def _dist(plan: Layout, release: SdkRelease) -> dict[str, object]:
    # A package without a family serves each of them.
    libraries = {
        family: package
        for package in plan.libraries
        for family in ([package.family] if package.family else release.families)
    }
    # pip passes over an extra that it does not know, with a warning. So each extra is there, and names a
    # package that no index has where this SDK lacks it, which pip refuses. Where packages.toml claims no
    # libraries, none are missing.
    needed = {
        name: [f"{package.distribution}=={release.version}"]
        if package.members or release.description.libraries.files
        else []
        for name, package in libraries.items()
    }
    return {
        "version": release.version,
        "default_family": next(iter(release.families)),
        "families": {family: list(targets) for family, targets in release.families.items()},
        # Libraries for many targets are also those of each family that has no others.
        "groups": {
            name: family
            for family, covered in release.families.items()
            for name, members in families().items()
            if name not in release.families and set(members) <= set(covered)
        },
        "folders": {"core": plan.core.folder, "devel": plan.devel.folder, "profiler": plan.profiler.folder}
        | {f"libraries/{name}": p.folder for name, p in libraries.items() if p.members},
        "requires": [f"{plan.core.distribution}=={release.version}"],
        "extras": {
            "devel": [f"{plan.devel.distribution}=={release.version}"],
            "libraries": needed,
            "profiler": [f"{plan.profiler.distribution}=={release.version}"],
        },
        "devices": _devices(plan, release),
        "libraries": _shortnames(plan, release.description),
        "programs": _programs(plan, release.description),
    }


def _devices(plan: Layout, release: SdkRelease) -> dict[str, list[str]]:
    """Extras for the device code of the libraries, where it is in packages of its own."""
    processors = {name.partition(":")[0] for targets in release.families.values() for name in targets}
    return {
        f"device-{name}": [f"{package.distribution}[device-{name}]=={release.version}"]
        for package in plan.libraries
        if package.members and not package.family
        for name in (*in_order(processors), "all")
    }


def _programs(plan: Layout, description: Description) -> list[list[str]]:
    """The programs that libraries run: path, name of the library, how to get it."""
    return [
        [program.path, posixpath.basename(member.path), program.hint]
        for program in description.programs
        for package in (plan.core, *plan.libraries)
        for member in package.members
        if member.binary and matches(posixpath.basename(member.path), (program.library,))
        # Of a different release it may be built in a different way.
        if binaries.holds(member.source, f"{program.path}\0".encode())
    ]


def _shortnames(plan: Layout, description: Description) -> dict[str, list[str]]:
    """Shortname to component and path of the library it stands for."""
    owners: dict[str, list[str]] = {}
    missing: list[str] = []
    for shortname, glob in description.preload.items():
        candidates = [
            [package.component, member.path]
            for package in (plan.core, *plan.libraries)
            for member in package.members
            if member.binary and matches(posixpath.basename(member.path), (glob,))
        ]
        if candidates:
            owners[shortname] = candidates[0]
        else:
            missing.append(f"{shortname} ({glob})")
    # torch's `_rocm_init` asks for libraries by these names: one that is missing here fails on a user's
    # machine.
    if missing and description.preload_must_exist:
        raise UsageError(
            f"no library for the preload names {', '.join(missing)}", tip="correct [preload] in packages.toml"
        )
    return owners


def _staged(
    package: Package,
    member: PackageMember,
    plan: Layout,
    release: SdkRelease,
    staging: Path,
    say: Progress,
) -> Path:
    """The file of a member, with the run path it needs, and without the code that it shall not have."""
    if member.binary is None:
        return member.source
    run_path = assign_files.run_path_of(package, member, plan.core)
    trims = release.only and member.binary.section(code_object.SECTION) is not None
    if run_path == binaries.run_path(member.binary) and not trims:
        return member.source
    # A copy: the tree is the user's, and a file may have different run paths in different packages.
    copy = staging / package.folder / member.path
    copy.parent.mkdir(parents=True, exist_ok=True)
    # Trimmed first: patchelf holds a library twice in memory, and some of them have 2 GB.
    if trims:
        say(f"trim {member.path}")
        binaries.trim(member.source, release.only, copy)
    else:
        files.copy_into(member.source, copy)
    shutil.copymode(member.source, copy)
    if run_path != binaries.run_path(member.binary):
        binaries.set_run_path(copy, run_path)
    return copy


def _write(
    path: Path,
    package: Package,
    members: list[New],
    release: SdkRelease,
    requires: list[str],
    say: Progress,
) -> None:
    info = f"{_escaped(package.distribution)}-{release.version}.dist-info"
    tag = path.stem.split("-", 2)[2]  # NAME-VERSION-TAG.whl: no build tag here (PEP 427)
    wheel = f"Wheel-Version: 1.0\nGenerator: cairn {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    licences = _licences(package, release)
    metadata = [
        f"Metadata-Version: {'2.4' if licences else '2.1'}",
        f"Name: {package.distribution}",
        f"Version: {release.version}",
        "Summary: ROCm SDK",
        f"Requires-Python: {_REQUIRES_PYTHON}",
        *(f"License-File: {name}" for name in licences),
        *(f"Requires-Dist: {text}" for text in requires),
        *(f"Requires-Dist: {text}" for text in release.description.component(package.component).requires),
    ]
    head = [
        New(name=f"{info}/METADATA", content=("\n".join(metadata) + "\n").encode()),
        New(name=f"{info}/WHEEL", content=wheel.encode()),
        *(New(name=f"{info}/licenses/{name}", content=file) for name, file in licences.items()),
    ]
    if scripts := release.description.component(package.component).scripts:
        head.append(New(name=f"{info}/entry_points.txt", content=_entry_points(package, scripts)))
    if licences:
        bill = _bill_of_materials(package, release)
        head.append(New(name=f"{info}/{cyclonedx.NAME}", content=bill))
    # dist-info comes last, as PEP 427 recommends; the contents sorted, whatever the tree's order was.
    archive.write_wheel(path, [*sorted(members, key=_name_of), *head], dist_info=info, say=say)


def _entry_points(package: Package, scripts: Iterable[str]) -> bytes:
    module = f"{package.folder}.{_SCRIPTS.removesuffix('.py')}"
    lines = [f"{name} = {module}:{_function(name)}" for name in scripts]
    return ("\n".join(["[console_scripts]", *lines]) + "\n").encode()


def _packages_in(package: Package) -> list[DebianPackage]:
    """The packages of a distribution that its files come from."""
    return sorted({member.package for member in package.members if member.package is not None})


def _licences(package: Package, release: SdkRelease) -> dict[str, Path]:
    """The licences of what it is made of, by their names in the wheel (PEP 639)."""
    licences: dict[str, Path] = {}
    for part in _packages_in(package):
        path = release.tree.licence_of(part)
        if path is None:
            raise WheelError(
                f"{part.name} {part.version} comes without its licence",
                tip=f"add the package that has /usr/share/doc/{part.name}/copyright",
            )
        licences[f"{part.name}/copyright"] = path
    return licences


def _bill_of_materials(package: Package, release: SdkRelease) -> bytes:
    parts = [
        cyclonedx.component(part.name, part.version, part.purl, part.sha256) for part in _packages_in(package)
    ]
    return cyclonedx.document(
        canonicalize_name(package.distribution), release.version, sources=(), rocm_version=None, bundled=parts
    )


def _cmake_includes(package: Package, description: Description) -> list[New]:
    """A file in `lib/cmake` for each of a CMake package that is elsewhere.

    Not a link, nor the file itself: it finds the tree by counting folders up from where it is, some with
    links resolved and some not.
    """
    including = []
    for folder in description.cmake:
        for member in package.members:
            inside = member.path.removeprefix(f"{folder}/")
            if inside != member.path and inside.endswith(".cmake"):
                up = "../" * (inside.count("/") + 2)
                text = _CMAKE_INCLUDE.format(path=f"{up}{member.path}")
                including.append(New(name=f"{_CMAKE}/{inside}", content=text.encode()))
    return including


def _texts(package: Package, release: SdkRelease) -> list[New]:
    """The files whose text the description has, but for those that are in the tree."""
    version = requirements.version(release.version)
    values = {"major": version.major, "minor": version.minor, "patch": version.micro}
    present = {member.path for member in package.members}
    texts = []
    for name in sorted(release.description.texts.keys() - present):
        text = release.description.texts[name].replace("{version}", release.version)
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", str(value))
        texts.append(New(name=name, content=text.encode()))
    return texts


def _init(release: SdkRelease) -> bytes:
    return f'"""{_GENERATED}."""\n\n__version__ = "{release.version}"\n'.encode()


def _wrapper(wrap: Wrap) -> bytes:
    lines = ["#!/bin/sh"]
    lines += [f"unset {name}" for name in wrap.unset]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in wrap.environment.items()]
    name, program = posixpath.basename(wrap.path), shlex.quote(wrap.program)
    missing = f"{name}: no {wrap.program} on this machine" + (f"; {wrap.hint}" if wrap.hint else "")
    # Not echo: that of some shells reads backslashes and options in what it says.
    lines.append(f"[ -x {program} ] || {{ printf '%s\\n' {shlex.quote(missing)} >&2; exit 127; }}")
    lines.append(f'exec {program} "$@"')
    return ("\n".join(lines) + "\n").encode()


def _escaped(name: str) -> str:
    return canonicalize_name(name).replace("-", "_")


def _name_of(member: New | tuple[str, str]) -> str:
    return member[0] if isinstance(member, tuple) else member.name
