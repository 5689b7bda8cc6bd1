"""Variables that the user gives to builds: `--build-env USE_FBGEMM=0`, for one project `torch:USE_FBGEMM=0`.

Builds see none of the caller's own variables but a short list (`cairn.isolation`), so that two machines build
alike. Those given here by name are part of every key and are written into the manifest. So secrets are
refused, and so is what Cairn sets itself: the wheel would not be what its manifest says.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from cairn import isolation
from cairn.build.inputs import variables
from cairn.build.options import CompilerCache
from cairn.errors import UsageError
from cairn.output import safe_text
from cairn.stack import Project, Stack

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a Name of POSIX's shell
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# What `variables.build_variables` sets for every build, or what would redirect one; with what to use.
_OURS = {
    "PATH": None,
    "VIRTUAL_ENV": None,
    "HOME": None,
    "USERPROFILE": None,
    "SOURCE_DATE_EPOCH": None,
    "MAX_JOBS": "--jobs",
    "USE_ROCM": "--targets, which may be cpu",
    "USE_CUDA": "--targets",
    "FORCE_CUDA": "--targets",
    "TMPDIR": "the variable itself, before the command",
    "TEMP": "the variable itself, before the command",
    "TMP": "the variable itself, before the command",
    **dict.fromkeys(
        (f"CMAKE_{lang}_COMPILER_LAUNCHER" for lang in ("C", "CXX", "HIP")),
        " or ".join(f"--use-{cache}" for cache in get_args(CompilerCache)),
    ),
}
# These change which interpreter or packages a build runs with, or what every program of it does.
_OURS_TOO = re.compile(r"PYTHON.*|PIP_.*|CAIRN_.*|GIT_.*|LD_PRELOAD|LD_AUDIT")
TARGETS = "--targets (--pytorch-rocm-arch)"
"""What to use in place of a variable with the targets."""

# Which flag a placeholder of stack.toml follows (cairn.build.inputs.variables).
_FLAGS = {
    "targets": TARGETS,
    "version": "--version-suffix",
    "version_suffix": "--version-suffix",
    "build_number": "--pytorch-build-number",
    "jobs": "--jobs",
    "rocm_version": "--rocm-sdk-version",
    "rocm_home": "--rocm-sdk-version",
    "rocm_bin": "--rocm-sdk-version",
    "rocm_cmake": "--rocm-sdk-version",
    "on_or_off:flash_attention": "--enable-pytorch-flash-attention",
}
# What compilers, CMake and setuptools read wherever they run (GCC's manual, "Environment Variables";
# cmake-env-variables(7); setuptools' build_ext), and what chooses the libraries that programs start with.
_COMPILERS = (
    *("CC", "CXX", "HIPCXX", "AR", "LD", "NM", "RANLIB", "*FLAGS", "CCC_OVERRIDE_OPTIONS", "ARCHFLAGS"),
    *("CPATH", "*_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CMAKE_*", "SKBUILD_*", "PKG_CONFIG_*", "HIPCC_*", "HIP_PATH", "ROCM_PATH", "ROCM_HOME", "MAX_JOBS"),
)


def parse(texts: Iterable[str], stack: Stack) -> dict[str, str]:
    """The variables of `--build-env`, as `NAME` or `project:NAME` to value; the last of a name counts.

    Raises:
        UsageError: it is not `NAME=VALUE`, the stack has no such project, it looks like a secret, or it is
            set by Cairn itself.
    """
    values: dict[str, str] = {}
    for text in texts:
        left, sign, value = text.partition("=")
        prefix, colon, name = left.rpartition(":")
        project = stack.project(prefix) if colon else None
        if not sign or not _NAME.fullmatch(name):
            raise UsageError(
                f"--build-env {safe_text.mask(left)[:80]!r} is not NAME=VALUE",
                tip="write USE_FBGEMM=0, or torch:USE_FBGEMM=0 for one project",
            )
        if _CONTROL.search(value):
            raise UsageError(f"the value of --build-env {name} has a control character in it")
        _refuse_secret(name, value)
        for each in stack.projects if project is None else (project,):
            _refuse_ours(name, each, stack)
        values[f"{project.name}:{name}" if project else name] = value
    return values


def left_out(
    stack: Stack,
    named: Collection[str] = (),
    *,
    flags: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Variables of the caller that are known to change builds of a stack, and that no build will see.

    Args:
        stack: the stack; its words on variables (`Project.reads`, `environment`, `cmake`) say what is known.
        named: what `--build-env` gives to builds.
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
        if any(name == each.rpartition(":")[2] for each in named):
            continue
        ours = [flag for project in stack.projects if (flag := _ours(name, project, stack)) is not None]
        if not any(flag in flags for flag in ours):
            names.append(f"{name} ({ours[0]})" if ours and ours[0] else name)
    return tuple(names)


def _known_to(stack: Stack) -> Iterator[str]:
    tables = [stack.environment, *(t for p in stack.projects for t in (p.environment, p.cmake))]
    for system in ("linux", "windows"):
        for cpu in (True, False):
            yield from (name for table in tables for name in table.of(system, cpu=cpu))
    yield from (pattern for project in stack.projects for pattern in project.reads)


def _refuse_secret(name: str, value: str) -> None:
    if isolation.SECRET.search(name) or safe_text.mask(value) != value:
        raise UsageError(
            f"--build-env {name} looks like a secret, and would be written into the manifest",
            tip="builds get no secrets: fetch what needs one before, and name the folder where it is",
        )


def _refuse_ours(name: str, project: Project, stack: Stack) -> None:
    flag = _ours(name, project, stack)
    if flag is not None:
        raise UsageError(
            f"{name} is set by Cairn itself for {project.name}: --build-env must not change it",
            tip=f"use {flag}" if flag else "leave it out",
        )


def _ours(name: str, project: Project, stack: Stack) -> str | None:
    """The flag to use in place of a variable that Cairn sets, or an empty text; None for other variables."""
    # A variable whose template has a placeholder follows a flag of ours, whatever its name is.
    templates = (variables.template_of(stack, project, for_cpu=for_cpu) for for_cpu in (False, True))
    template = next((each[name] for each in templates if name in each), "")
    # What a download would be given by, the user may give from elsewhere: then nothing is downloaded. And
    # paths of the environment and of the trees stand in compiler flags, which are the user's.
    names = variables.PLACEHOLDER.findall(template)
    own = ("environment", "site_packages", "source_dir", "stack_dir")
    placeholders = [name for name in names if name not in own and not name.startswith("download:")]
    if name not in _OURS and not placeholders and not _OURS_TOO.fullmatch(name):
        return None
    return _OURS.get(name) or next((_FLAGS[p] for p in placeholders if p in _FLAGS), "")
