"""The environment variables of a build: of stack.toml, with its placeholders, and of the user.

A user names variables by `--build-env USE_FBGEMM=0`, for one project `torch:USE_FBGEMM=0`. Builds see none of
the caller's own but a short list (`cairn.isolation`), so that two machines build alike. Those given by name
are part of every key and are written into the manifest. So secrets are refused, and so is what Cairn sets
itself: the wheel would not be what its manifest says.

| placeholder | meaning |
| --- | --- |
| `{version}` | the version the wheel gets, base and suffix; `{version_suffix}` the suffix alone |
| `{build_number}` | `--pytorch-build-number` |
| `{version:NAME}` | the version of a project this one needs, as built |
| `{requirements}` | exact requirements, joined by a vertical bar |
| `{targets}` | GPU targets, joined by `;` |
| `{rocm_version}`, `{rocm_home}`, `{rocm_bin}`, `{rocm_cmake}` | the ROCm SDK and its folders |
| `{rocm_device_extras}` | extras of `rocm`, a comma before each, for device code in packages of its own |
| `{jobs}` | compile jobs that this build may run at once |
| `{environment}` | the folder of the virtual environment that the build runs in |
| `{site_packages}` | where that environment has its packages |
| `{download:NAME}` | the folder of one of the project's `downloads` |
| `{source_dir}` | the folder of the tree that is built |
| `{stack_dir}` | the folder of the stack.toml; what is named below it is an input, like the tree |
| `{on_or_off:FEATURE}` | `ON` where the feature is enabled, else `OFF` |
| `{PATH}` | `PATH` as it was |
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from cairn import files, isolation, platforms
from cairn.build.build_options import CompilerCache
from cairn.build.model import BuildRequest
from cairn.errors import ProblemsError, UsageError
from cairn.output import safe_text
from cairn.rocm import install as rocm
from cairn.stack import Project, Stack, recipe
from cairn.targets import in_order, parse_target_id
from cairn.venv import VirtualEnvironment
from cairn.wheels.metadata import device_names

PLACEHOLDER = re.compile(r"\{(?P<name>[A-Za-z_]+(?::[A-Za-z0-9_-]+)?)\}")
# For a build that must fetch nothing: what it tries to fetch fails at once, as no one listens at port 9.
_NO_NETWORK = {
    **dict.fromkeys(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1"),
    "GIT_ALLOW_PROTOCOL": "file",  # git's documentation, "protocol.allow": ssh knows no proxy
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a Name of POSIX's shell
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# What `build_variables` sets for every build, or what would redirect one; with what to use.
_OURS = {
    **dict.fromkeys(("PATH", "VIRTUAL_ENV", "HOME", "USERPROFILE", "SOURCE_DATE_EPOCH")),
    "MAX_JOBS": "--jobs",
    "USE_ROCM": "--targets, which may be cpu",
    **dict.fromkeys(("USE_CUDA", "FORCE_CUDA"), "--targets"),
    **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "the variable itself, before the command"),
    **dict.fromkeys(
        (f"CMAKE_{lang}_COMPILER_LAUNCHER" for lang in ("C", "CXX", "HIP")),
        " or ".join(f"--use-{cache}" for cache in get_args(CompilerCache)),
    ),
}
# These change which interpreter or packages a build runs with, or what every program of it does.
_OURS_TOO = re.compile(r"PYTHON.*|PIP_.*|CAIRN_.*|GIT_.*|LD_PRELOAD|LD_AUDIT")
TARGETS_FLAG = "--targets (--pytorch-rocm-arch)"
"""What to use in place of a variable with the targets."""
# Which flag a placeholder of stack.toml follows.
_FLAGS = {
    "targets": TARGETS_FLAG,
    **dict.fromkeys(("version", "version_suffix"), "--version-suffix"),
    "build_number": "--pytorch-build-number",
    "jobs": "--jobs",
    **dict.fromkeys(("rocm_version", "rocm_home", "rocm_bin", "rocm_cmake"), "--rocm-version"),
    "on_or_off:flash_attention": "--enable-pytorch-flash-attention",
}
_OFF = ("", "0", "OFF", "NO", "FALSE", "N")  # false in CMake (cmake-language, "if")
# What compilers, CMake and setuptools read wherever they run (GCC's manual, "Environment Variables";
# cmake-env-variables(7); setuptools' build_ext), and what chooses the libraries that programs start with.
_COMPILERS = (
    *("CC", "CXX", "HIPCXX", "AR", "LD", "NM", "RANLIB", "*FLAGS", "CCC_OVERRIDE_OPTIONS", "ARCHFLAGS"),
    *("CPATH", "*_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CMAKE_*", "SKBUILD_*", "PKG_CONFIG_*", "HIPCC_*", "HIP_PATH", "ROCM_PATH", "ROCM_HOME", "MAX_JOBS"),
)


def template_of(stack: Stack, project: Project, *, for_cpu: bool) -> Mapping[str, str]:
    """Return the unexpanded variables that stack.toml gives a project on this platform."""
    system = platforms.here.stack_section()
    # Each may replace what the one before says; all of the project's come after all of the stack's.
    return {**stack.environment.of(system, cpu=for_cpu), **project.environment.of(system, cpu=for_cpu)}


def cmake_settings(project: Project, values: Mapping[str, str], *, request: BuildRequest) -> dict[str, str]:
    """Return the entries that the project's CMakeCache.txt must have, from stack.toml or the user."""
    templates = project.cmake.of(platforms.here.stack_section(), cpu=request.for_cpu)
    env = request.env_of(project)
    expanded = expand_all(templates, values, where=f"cmake of {project.name}")
    return {name: env.get(name, value) for name, value in expanded.items()}


def stack_files(stack: Stack, project: Project, *, for_cpu: bool) -> dict[str, str]:
    """Return the files beside stack.toml that a project's variables and settings name, with their sha256.

    Args:
        stack: the stack.
        project: one of its projects.
        for_cpu: the build is without ROCm.

    Returns:
        Path below the stack's folder to sha256; all files of a folder that is named.

    Raises:
        UsageError: there is no such file.
    """
    root = Path(stack.folder)
    texts = [*template_of(stack, project, for_cpu=for_cpu).values(), *project.config_settings.values()]
    digests: dict[str, str] = {}
    for name in sorted({name for text in texts for name in recipe.paths_in(text, root)}):
        place = root / name
        if not place.exists():
            raise UsageError(
                f"{project.name} names {place}, which does not exist", tip="correct the stack.toml"
            )
        for path in files.walk(place) if place.is_dir() else (place,):
            if "__pycache__" not in path.parts:
                digests[path.relative_to(root).as_posix()] = files.sha256_of(path)
    return digests


def placeholder_values(
    request: BuildRequest,
    project: Project,
    *,
    base_version: str | None,
    built: Mapping[str, str],
    source_dir: Path,
) -> dict[str, str]:
    """Return the values of the placeholders.

    Args:
        request: the build.
        project: which one of it.
        base_version: of the project's own version file; None where it has none.
        built: versions of the projects that are already built.
        source_dir: the folder whose build backend is called.
    """
    values = {
        "version_suffix": request.suffix_of(project),
        "build_number": request.build_number,
        # A list of CMake, and what torch.utils.cpp_extension splits PYTORCH_ROCM_ARCH at.
        "targets": "" if request.for_cpu else ";".join(request.targets),
        "source_dir": str(source_dir),
        "stack_dir": request.stack.folder,
        "jobs": str(max(1, request.jobs)),
        "PATH": os.environ.get("PATH", os.defpath),
    }
    values |= {f"version:{name}": version for name, version in built.items()}
    for name in request.stack.features:
        values[f"on_or_off:{name}"] = "ON" if name in request.features else "OFF"
    if base_version is not None:
        values["version"] = base_version + values["version_suffix"]
    if request.sdk is not None:
        info = request.sdk.info
        values |= {
            "rocm_version": info.version,
            "rocm_home": str(info.root),
            "rocm_bin": str(info.bin),
            "rocm_cmake": str(info.cmake),
            "rocm_device_extras": "",
        }
        if not request.split and rocm.device_packages(request.sdk.environment) is not None:
            # Wheels without device wheels require the SDK's device code themselves.
            processors = in_order({parse_target_id(target).processor for target in request.targets})
            extras = [f",{device_names.extra_of(name)}" for name in processors]
            values["rocm_device_extras"] = "".join(extras)
    return values


def exact_requirements(
    project: Project, values: Mapping[str, str], *, request: BuildRequest
) -> tuple[str, ...]:
    """Return the pins that the project's METADATA must have.

    A pin on a project that is not part of this build (`{version:triton}` without triton) is dropped.
    """
    templates = (*project.requires, *(() if request.for_cpu else project.requires_rocm))
    absent = [f"{{version:{p.name}}}" for p in request.stack.projects if f"version:{p.name}" not in values]
    present = [text for text in templates if not any(name in text for name in absent)]
    return tuple(expand(text, values, where=f"requires of {project.name}") for text in present)


def build_variables(
    project: Project,
    environment: VirtualEnvironment,
    values: Mapping[str, str],
    *,
    request: BuildRequest,
    epoch: int,
    home: Path,
) -> dict[str, str]:
    """Return the complete environment of the build backend.

    Args:
        project: what is built.
        environment: the virtual environment it is built in; its programs come first on PATH.
        values: of the placeholders, `requirements` included.
        request: the build.
        epoch: seconds since 1970 that every time stamp in the wheel gets (`SOURCE_DATE_EPOCH`).
        home: its own (`isolation.own_home`).
    """
    variables = isolation.variables(isolation.Isolation.BUILD, home)
    variables["PATH"] = path_of(environment, values, request=request)
    variables |= {
        "VIRTUAL_ENV": str(environment.path),  # where CMake's FindPython looks first
        "PYTHONNOUSERSITE": "1",
        # Generators that iterate over sets write the same file each time.
        "PYTHONHASHSEED": "0",
        # Time stamps in archives and __DATE__ (reproducible-builds.org/specs/source-date-epoch).
        "SOURCE_DATE_EPOCH": str(epoch),
        # Read by torch's tools/setup_helpers/cmake.py, torch.utils.cpp_extension and triton's setup.py.
        "MAX_JOBS": values["jobs"],
    }
    if "makeflags" in values:  # the tools take their jobs from there, unless they are given a number
        variables["MAKEFLAGS"] = values["makeflags"]
        del variables["MAX_JOBS"]
    if request.pip.offline:
        variables |= _NO_NETWORK
    templates = template_of(request.stack, project, for_cpu=request.for_cpu)
    # A tree that does without a download does without the variables that name it.
    absent = [f"{{download:{d.name}}}" for d in project.downloads if f"download:{d.name}" not in values]
    templates = {name: text for name, text in templates.items() if not any(each in text for each in absent)}
    expanded = expand_all(templates, values, where=f"environment of {project.name}")
    # The later wins: the stack over Cairn, and --build-env (see `parse_build_env`) over the stack.
    return {**variables, **expanded, **request.env_of(project)}


def path_of(environment: VirtualEnvironment, values: Mapping[str, str], *, request: BuildRequest) -> str:
    """Return the `PATH` of a build: its environment's programs first, then those of the ROCm SDK."""
    head = [str(environment.bin)]
    if request.sdk is not None:
        head.append(str(request.sdk.info.bin))
    return os.pathsep.join([*head, values["PATH"]])


def expand(template: str, values: Mapping[str, str], *, where: str) -> str:
    """Replace every placeholder in `template`.

    Args:
        template: text of a stack.toml.
        values: placeholder name to text.
        where: what the template belongs to, for the error.

    Raises:
        UsageError: a placeholder that has no value here.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in values:
            raise UsageError(f"{where}: no value for the placeholder {{{name}}}")
        return values[name]

    return PLACEHOLDER.sub(value, template)


def expand_all(templates: Mapping[str, str], values: Mapping[str, str], *, where: str) -> Mapping[str, str]:
    """Expand every value of a mapping."""
    return {name: expand(text, values, where=f"{where}, {name}") for name, text in templates.items()}


def parse_build_env(texts: Iterable[str], stack: Stack) -> dict[str, str]:
    """Parse `--build-env` into `NAME` or `project:NAME` to value; the last one of a name wins.

    Raises:
        UsageError: it is not `NAME=VALUE`, the stack has no such project, it looks like a secret, or it is
            set by Cairn itself.
        ProblemsError: several are set by Cairn itself, by different flags.
    """
    values: dict[str, str] = {}
    for text in texts:
        left, sign, value = text.partition("=")
        prefix, colon, name = left.rpartition(":")
        project = stack.project(prefix) if colon else None
        if not sign or not _SHELL_NAME.fullmatch(name):
            raise UsageError(
                f"--build-env {safe_text.mask(left)[:80]!r} is not NAME=VALUE",
                tip="write USE_FBGEMM=0, or torch:USE_FBGEMM=0 for one project",
            )
        if _CONTROL.search(value):
            raise UsageError(f"the value of --build-env {name} has a control character in it")
        if isolation.SECRET.search(name) or safe_text.mask(value) != value:
            raise UsageError(
                f"--build-env {name} looks like a secret, and would be written into the manifest",
                tip="builds get no secrets: fetch what needs one before, and name the folder where it is",
            )
        values[f"{project.name}:{name}" if project else name] = value
    _refuse_ours(values, stack)
    return values


def _refuse_ours(values: Mapping[str, str], stack: Stack) -> None:
    """Refuse variables that Cairn sets itself; those that follow the same flag are in one error."""
    refused: dict[tuple[str, str], list[str]] = {}
    for text, value in values.items():
        prefix, _, name = text.rpartition(":")
        for project in (stack.project(prefix),) if prefix else stack.projects:
            if (flag := _ours(name, project, stack, value)) is not None:
                names = refused.setdefault((project.name, flag), [])
                names += [name] if name not in names else []
                break
    problems = [
        UsageError(
            f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} set by Cairn itself for {builder}: "
            "--build-env must not change that",
            tip=f"use {flag}" if flag else "leave it out",
        )
        for (builder, flag), names in refused.items()
    ]
    if problems:
        many = ProblemsError(f"{len(problems)} problems, and nothing was built", problems=problems)
        raise problems[0] if len(problems) == 1 else many


def unseen_by_builds(
    stack: Stack,
    passed: Collection[str] = (),
    *,
    flags: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the caller's variables that would change builds of a stack but are not passed to them.

    Args:
        stack: the stack; its words on variables (`Project.reads`, `environment`, `cmake`) say what is known.
        passed: what `--build-env` gives to builds.
        flags: those of `_FLAGS` that were given, and count in place of a variable.
        environ: the caller's environment; ours by default.

    Returns:
        Each name, with the flag to use for it where that is not `--build-env`.
    """
    caller = os.environ if environ is None else environ
    seen = isolation.variables(isolation.Isolation.BUILD, Path(os.devnull), base=caller)
    patterns = [*_COMPILERS, *_known_to(stack)]
    names = []
    for name in sorted(set(caller) - set(seen)):
        if not caller[name] or not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if any(name == each.rpartition(":")[2] for each in passed):
            continue
        flags_of = (_ours(name, project, stack, caller[name]) for project in stack.projects)
        ours = [flag for flag in flags_of if flag is not None]
        if not any(flag in flags for flag in ours):
            names.append(f"{name} ({ours[0]})" if ours and ours[0] else name)
    return tuple(names)


def _known_to(stack: Stack) -> Iterator[str]:
    tables = [stack.environment, *(t for p in stack.projects for t in (p.environment, p.cmake))]
    for system in ("linux", "windows"):
        for cpu in (True, False):
            yield from (name for table in tables for name in table.of(system, cpu=cpu))
    yield from (pattern for project in stack.projects for pattern in project.reads)


def _ours(name: str, project: Project, stack: Stack, value: str) -> str | None:
    """Return the flag to use for a variable that Cairn sets, possibly empty; None for other variables.

    Args:
        name: the variable.
        project: one that would be built with it.
        stack: the stack of the project.
        value: what the user asks for; for a feature that is off, the flag is its `--no-` form.
    """
    # A variable whose template has a placeholder follows a flag of ours, whatever its name is.
    templates = (template_of(stack, project, for_cpu=for_cpu) for for_cpu in (False, True))
    template = next((each[name] for each in templates if name in each), "")
    # What a download would be given by, the user may give from elsewhere: then nothing is downloaded. And
    # paths of the environment and of the trees stand in compiler flags, which are the user's.
    names = PLACEHOLDER.findall(template)
    tokens = ("environment", "site_packages", "source_dir", "stack_dir")
    placeholders = [name for name in names if name not in tokens and not name.startswith("download:")]
    if name not in _OURS and not placeholders and not _OURS_TOO.fullmatch(name):
        return None
    placeholder = next((name for name in placeholders if name in _FLAGS), "")
    flag = _OURS.get(name) or _FLAGS.get(placeholder, "")
    is_off = placeholder.startswith("on_or_off:") and value.upper() in _OFF
    return flag.replace("--", "--no-", 1) if is_off else flag
