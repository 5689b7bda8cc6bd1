"""Launcher scripts in front of the compilers of a build, in a folder of their own.

    launch              puts the cache in front of the compiler that its arguments begin with
    bin/g++, bin/cc, …  each compiler on PATH, through `launch`: for setuptools and torch's cpp_extension
    bin/cmake           CMake without `bin`: it takes `launch` as its launcher, and the compilers as they are
    hip/bin/clang++, …  the clang that hipcc calls (`HIP_CLANG_PATH`), through `launch`; beside it hip/lib

CMake must not see `bin`, because projects write the path of the compiler into what they make
(`torch.__config__` shows it), and what comes through the cache must be the same bytes as without it.

The folder stays at its path: CMake keeps the launcher's path in the CMakeCache.txt of a tree.

A build finds torch's headers in its environment: at a different path for each Python, family and build, so
that a compiler cache never finds again what was compiled against them. So a package's headers get a folder
that is named by their content, made of hard links. The launchers name it in place of the environment's, for
builds whose flags map the environment away (`-ffile-prefix-map`): elsewhere the path is part of the product.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cairn import files, isolation, owned, process
from cairn.build.build_options import CompilerCache
from cairn.errors import CairnError
from cairn.venv import VirtualEnvironment

# `g++`, `x86_64-linux-gnu-gcc-12`, `clang++-19`; not `gcc-ar`, `gcov`, `clang-format`.
_NAME = re.compile(
    r"(?:[a-z0-9_]+(?:-[a-z0-9_]+)*-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[0-9][0-9.]*)?"
)
_CLANG = re.compile(r"clang(?:\+\+)?(?:-[0-9][0-9.]*)?")
# Programs that the driver starts, and that make the object file; clang, where a script stands before it.
_PARTS = ("cc1", "cc1plus", "as", "clang")
_OF_CLANG = re.compile(r"=> (\S*/lib(?:LLVM|clang)\S*)")  # in what ldd(1) prints
_TIMEOUT = 60.0  # seconds


def compilers_on_path(path: str) -> dict[str, Path]:
    """Find the compilers on a PATH: the first file of each name."""
    compilers: dict[str, Path] = {}
    for folder in filter(None, path.split(os.pathsep)):
        with contextlib.suppress(OSError):  # PATH may name folders that are not there
            for file in Path(folder).iterdir():
                if (
                    _NAME.fullmatch(file.name)
                    and file.name not in compilers
                    and os.access(file, os.X_OK)
                    and file.is_file()
                ):
                    compilers[file.name] = file
    return compilers


def is_clang(name: str) -> bool:
    """Whether a file name is that of a clang driver."""
    return _CLANG.fullmatch(name) is not None


def hip_clang(variables: Mapping[str, str], sdk_root: Path | None) -> Path | None:
    """Return the folder of the clang that hipcc calls; None without hipcc.

    Args:
        variables: of the build.
        sdk_root: of the ROCm SDK.
    """
    if clang_path := variables.get("HIP_CLANG_PATH"):
        return Path(clang_path)
    for place in ("lib/llvm/bin", "llvm/bin"):  # since ROCm 6, and before
        if sdk_root is not None and (sdk_root / place / "clang++").exists():
            return sdk_root / place
    home = variables.get("ROCM_HOME") or variables.get("ROCM_PATH")
    hipconfig = Path(home, "bin", "hipconfig") if home else Path("hipconfig")
    try:
        result = process.run(
            [hipconfig, "--hipclangpath"],
            env=variables,
            timeout=_TIMEOUT,
            separate_stderr=True,
        )
    except CairnError:
        return None
    folder = Path(result.output.strip())
    return folder if folder.is_absolute() and folder.is_dir() else None


def device_libraries(variables: Mapping[str, str], sdk_root: Path | None) -> Path | None:
    """Return the folder of the bitcode that clang links into device code by default."""

    def folders_of(*names: str) -> list[Path]:
        return [Path(variables[name]) for name in names if variables.get(name)]

    homes = [*filter(None, [sdk_root]), *folders_of("ROCM_PATH", "ROCM_HOME"), Path("/usr")]
    below = ("lib/llvm/amdgcn/bitcode", "amdgcn/bitcode", "lib/*/amdgcn/bitcode")  # ROCm 6, before, Debian
    by_default = (path for home in homes for place in below for path in sorted(home.glob(place)))
    return next(
        (
            path
            for path in (*folders_of("HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH"), *by_default)
            if any(path.glob("*.bc"))
        ),
        None,
    )


def keeps_device_code(compiler: Path) -> bool:
    """Whether a compiler's device code may be cached.

    That takes a clang whose preprocessor says all that there is to know, for host and targets alike. A script
    counts as one where it says which clang it starts.
    """
    if not _is_script(compiler):
        return True
    started = Path(_output([str(compiler), "-print-prog-name=clang"]).strip())
    return started.is_absolute() and started.is_file() and not _is_script(started)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


@functools.cache
def digest_of(compiler: Path) -> str:
    """Return a digest of a compiler's files: its driver, the programs that it starts, their libraries."""
    real = compiler.resolve()
    # `c++` and `x86_64-linux-gnu-g++-12` are one file. (A ccache that is called so is a different matter.)
    if real != compiler and _NAME.fullmatch(real.name):
        return digest_of(real)
    parts = {real}
    for name in _PARTS:
        path = Path(_output([str(compiler), f"-print-prog-name={name}"]).strip())
        parts |= {path.resolve()} if path.is_absolute() and path.is_file() else set()
    ours = (part for part in sorted(parts) if "clang" in part.name or "llvm" in part.name)
    linked = (_OF_CLANG.findall(_output(["ldd", str(part)])) for part in ours)
    parts |= {Path(library).resolve() for libraries in linked for library in libraries}
    digests = sorted(f"{path.name} {_sha256(path)}" for path in parts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


@functools.cache
def _sha256(path: Path) -> str:
    return files.sha256_of(path)


def _output(command: list[str]) -> str:
    try:
        with isolation.own_home() as home:  # a package of the build may have brought it
            return process.run(
                command,
                env=isolation.variables(isolation.Isolation.BUILD, home),
                check=False,
                timeout=_TIMEOUT,
                separate_stderr=True,
            ).output
    except CairnError:  # no such program, or it may not be run
        return ""


# In sh, since it runs for each file that is compiled: Python takes longer to start than the cache to answer.
_LAUNCH = """\
#!/bin/sh
# Puts {program} in front of a compiler: launch COMPILER ARGUMENT...  Written by Cairn for one build.
stranger=  # a compiler whose device code is not kept
case $1 in
    {here}/*) exec "$@" ;;  # comes here again, by itself
{identities}
    *) identity={unknown} ;;
esac

# What is device code, which the device libraries are part of, though no preprocessor ever names them.
libraries={libraries}
device= before= site= shared= sources=
for word do
    case $before$word in
        --offload-arch*|*.hip|-xhip|'-x hip') device=1 ;;
        --rocm-device-lib-path=*|--hip-device-lib-path=*) libraries=${{word#*=}} ;;
        --rocm-path=*) libraries=${{word#*=}}/amdgcn/bitcode ;;
        -ffile-prefix-map={site}=*) site=${{word#-ffile-prefix-map={site}=}} shared=1 ;;
    esac
    case $word in  # absolute: sccache's server, in another folder, is who reads them
        -*) ;;
        /*.hip|/*.cu|/*.c|/*.cc|/*.cpp|/*.cxx) [ -f "$word" ] && sources=$sources{separator}$word ;;
        *.hip|*.cu|*.c|*.cc|*.cpp|*.cxx) [ -f "$word" ] && sources=$sources{separator}$PWD/$word ;;
    esac
    before=
    case $word in -x) before='-x ' ;; esac
done
[ "$device" ] && [ "$stranger" ] && exec "$@"

# Headers of packages, at paths that are the same in every environment.
if [ "$shared" ]; then
    before=
    for word do
        shift
        case $before$word in
{headers}
        esac
        before=
        case $word in -I|-isystem|-iquote|-idirafter) before=-I ;; esac
        set -- "$@" "$word"
    done
{maps}
fi
{tree}
extra=
if [ "$device" ]; then
    # Whatever the preprocessor makes of two targets and a host: two sources are never the same.
    extra=${{sources#{separator}}}
    for file in "$libraries"/*.bc; do
        [ -f "$file" ] && extra=${{extra:+$extra{separator}}}$file
    done
fi
{run}
"""
# Ccache makes names below the tree relative (`base_dir`). What is left is the folder that the compiler is
# called in, for debugging information: ccache takes it as this flag makes it, and does not look at the flag.
_TREE = """
compiles=
for word do
    case $word in -c) compiles=1 ;; esac
done
[ "$compiles" ] && set -- "$@" -ffile-prefix-map={tree}=.
"""
_CCACHE = """\
[ "$extra" ] && export CCACHE_EXTRAFILES="$extra${{CCACHE_EXTRAFILES:+{separator}$CCACHE_EXTRAFILES}}"
CCACHE_COMPILERCHECK=$identity
export CCACHE_COMPILERCHECK
exec {cache} "$@"
"""
# sccache sends device code to the workers of sccache-dist, which have no device libraries, and fails. A call
# with a variable that is not UTF-8 it compiles here, and keeps (dist/mod.rs, `osstring_tuples_to_strings`).
_SCCACHE = """\
[ "$device" ] && CAIRN_COMPILES_HERE=$(printf '\\377') && export CAIRN_COMPILES_HERE
[ "$extra" ] && export SCCACHE_EXTRAFILES="$extra${{SCCACHE_EXTRAFILES:+{separator}$SCCACHE_EXTRAFILES}}"
SCCACHE_C_CUSTOM_CACHE_BUSTER=$identity
export SCCACHE_C_CUSTOM_CACHE_BUSTER
exec {cache} "$@"
"""
_COMPILER = """\
#!/bin/sh
exec {launch} {compiler} "$@"
"""
_CMAKE = """\
#!/bin/sh
# CMake has a launcher of its own for each language. Written by Cairn for one build.
PATH={path}
export PATH
{compilers}
exec cmake "$@"
"""


class Launchers(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a folder of launchers.

    Attributes:
        folder: where they are, the same for each build of a tree.
        program: which cache.
        cache: its program.
        path: the PATH of the build.
        compilers: name on PATH to file.
        chosen: the variables `CC` and `CXX` of the build, where it has them.
        hip_clang: the folder of the clang that hipcc calls; None without one.
        device_libraries: the folder of the bitcode that is linked into device code by default; None for none.
        site_packages: of the environment the build runs in.
        headers: packages there to the folders that stand for it (`shared_headers`).
        tree: the folder whose path is no part of what is compiled; None for none.
    """

    folder: Path
    program: CompilerCache
    cache: Path
    path: str
    compilers: Mapping[str, Path]
    chosen: Mapping[str, str] = msgspec.field(default_factory=dict)
    hip_clang: Path | None = None
    device_libraries: Path | None = None
    site_packages: Path
    headers: Mapping[str, Path] = msgspec.field(default_factory=dict)
    tree: Path | None = None

    @property
    def launch(self) -> Path:
        """The script for CMake's `<LANG>_COMPILER_LAUNCHER` and for hipcc's."""
        return self.folder / "launch"

    @property
    def bin(self) -> Path:
        """The folder that comes first on PATH."""
        return self.folder / "bin"

    @property
    def hip_bin(self) -> Path:
        """The folder that replaces that of hipcc's clang."""
        return self.folder / "hip" / "bin"


def write(plan: Launchers) -> None:
    """Write the launchers, in place of an earlier build's."""
    owned.empty_folder(plan.folder)
    programs = plan.hip_clang.iterdir() if plan.hip_clang is not None else ()
    hip = {path.name: path for path in programs if is_clang(path.name)}
    _script(plan.launch, _launch(plan, hip))
    for name, compiler in plan.compilers.items():
        _compiler(plan.bin / name, compiler, plan)
    if shutil.which("cmake", path=plan.path):
        as_it_was = [f"{name}={shlex.quote(text)}" for name, text in plan.chosen.items()]
        as_it_was += [f"unset {name}" for name in ("CC", "CXX") if name not in plan.chosen]
        text = _CMAKE.format(path=shlex.quote(plan.path), compilers="\n".join(as_it_was))
        _script(plan.bin / "cmake", text)
    if plan.hip_clang is not None:
        plan.hip_bin.mkdir(parents=True)
        for path in plan.hip_clang.iterdir():
            if path.name in hip:
                _compiler(plan.hip_bin / path.name, path, plan)
            else:
                (plan.hip_bin / path.name).symlink_to(path)
        # hipcc looks for clang's headers and libraries beside the folder of its programs.
        (plan.hip_bin.parent / "lib").symlink_to(plan.hip_clang.parent / "lib")


def _launch(plan: Launchers, hip: Mapping[str, Path]) -> str:
    compilers = {*plan.compilers.values(), *hip.values()}
    prefix = "string:" if plan.program == "ccache" else ""
    identities = [
        f"    {shlex.quote(str(path))}) identity={prefix}{digest_of(path)}"
        f"{'' if keeps_device_code(path) else ' stranger=1'} ;;"
        for path in sorted(compilers)
    ]
    rules, maps = [], []
    for package, folder in plan.headers.items():
        old, new = shlex.quote(f"{plan.site_packages}/{package}"), shlex.quote(f"{folder}/{package}")
        rules += [
            f"            -isystem{old}/*include*) word=-isystem{new}${{word#-isystem{old}}} ;;",
            f"            -I{old}/*include*)",
            "                case $word in",
            f"                    -I*) word=-I{new}${{word#-I{old}}} ;;",
            f"                    *) word={new}${{word#{old}}} ;;",
            "                esac ;;",
        ]
        maps.append(f'    set -- "$@" -ffile-prefix-map={shlex.quote(str(folder))}="$site"')
    run = _CCACHE if plan.program == "ccache" else _SCCACHE
    mapped = plan.tree is not None and plan.program == "ccache"
    separator = os.pathsep
    return _LAUNCH.format(
        program=plan.program,
        here=shlex.quote(str(plan.folder)),
        identities="\n".join(identities),
        unknown="content" if plan.program == "ccache" else "''",
        libraries=shlex.quote(str(plan.device_libraries or "/nonexistent")),
        site=shlex.quote(str(plan.site_packages)),
        headers="\n".join(rules) or "            *) ;;",
        maps="\n".join(maps) or "    :",
        tree=_TREE.format(tree=shlex.quote(str(plan.tree))) if mapped else "",
        separator=separator,
        run=run.format(cache=shlex.quote(str(plan.cache)), separator=separator),
    )


def _compiler(script: Path, compiler: Path, plan: Launchers) -> None:
    launch, quoted = shlex.quote(str(plan.launch)), shlex.quote(str(compiler))
    _script(script, _COMPILER.format(launch=launch, compiler=quoted))


def _script(path: Path, text: str) -> None:
    files.write_text(path, text)
    path.chmod(0o755)


def shared_headers(environment: VirtualEnvironment, folder: Path) -> Mapping[str, Path]:
    """Return folders of shared headers for the packages of an environment that have headers.

    Args:
        environment: with packages installed.
        folder: where such folders are kept.

    Returns:
        The name of a top-level folder of site-packages that has headers, to a folder that has just it.
    """
    packages: dict[str, dict[str, str]] = {}
    for distribution in importlib.metadata.distributions(path=[str(environment.site_packages)]):
        for file in distribution.files or ():
            # RECORD has the digest of each file, so that none needs to be read. What it names may be
            # elsewhere (`../../../include`, or absolute), or nowhere: pip keeps a wheel's lines of no file.
            inside = not (file.is_absolute() or ".." in file.parts) and "include" in file.parts[1:-1]
            if inside and file.hash is not None and (environment.site_packages / file).is_file():
                packages.setdefault(file.parts[0], {})[file.as_posix()] = file.hash.value
    return {
        name: _headers_folder(environment.site_packages, headers, folder)
        for name, headers in sorted(packages.items())
    }


def _headers_folder(site: Path, headers: Mapping[str, str], folder: Path) -> Path:
    lines = "".join(f"{digest} {name}\n" for name, digest in sorted(headers.items()))
    place = folder / hashlib.sha256(lines.encode()).hexdigest()[:24]
    with files.locked(folder / "headers.lock"):
        if not place.is_dir():
            with files.folder_beside(place) as part:
                for name in headers:
                    target = part / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    try:
                        os.link(site / name, target)
                    except OSError:  # on a different file system, or one without links
                        files.copy_into(site / name, target)
    return place
