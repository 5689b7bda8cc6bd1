"""Variables that the user gives to builds: `--build-env USE_FBGEMM=0`, for one project `torch:USE_FBGEMM=0`.

Builds see none of the caller's own build variables, so that two machines build alike. Those given here by
name are part of every key and are written into the manifest. So secrets are refused, and so is what Cairn
sets itself: the wheel would not be what its manifest says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import get_args

from cairn import venv
from cairn.build.inputs import variables
from cairn.build.model import CompilerCache
from cairn.errors import UsageError
from cairn.output import safe_text
from cairn.stack import Project, Stack

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a Name of POSIX's shell
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECRET = re.compile(
    r"(?:^|_)(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH"
    r"|API_?KEY|ACCESS_KEY|PRIVATE_KEY)(?:_|$)",
    re.IGNORECASE,
)
# What `variables.build_variables` sets for every build, or what would redirect one; with what to use.
_OURS = {
    "PATH": None,
    "VIRTUAL_ENV": None,
    "HOME": None,
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
# These change which interpreter, which packages or which libraries a build runs with.
_OURS_TOO = re.compile(r"PYTHON.*|PIP_.*|CAIRN_.*|GIT_.*|LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT")
# Which flag a placeholder of stack.toml follows (cairn.build.inputs.variables).
_FLAGS = {
    "targets": "--targets (--pytorch-rocm-arch)",
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
_SWITCHES = ("USE_", "BUILD_", "TORCH_", "PYTORCH_")


def parse(texts: Iterable[str], stack: Stack) -> dict[str, str]:
    """What the user wrote, as `NAME` or `project:NAME` to value; of two for one name the last counts.

    Raises:
        UsageError: it is not `NAME=VALUE`, the stack has no such project, it looks like a secret, or it is
            set by Cairn itself.
    """
    found: dict[str, str] = {}
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
        found[f"{project.name}:{name}" if project else name] = value
    return found


def not_passed(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Switches of builds in the caller's environment, which no build will see."""
    names = os.environ if environ is None else environ
    kept = venv.variables(venv.Isolation.BUILD, names)
    return tuple(sorted(name for name in names if name not in kept and name.startswith(_SWITCHES)))


def _refuse_secret(name: str, value: str) -> None:
    if _SECRET.search(name) or safe_text.mask(value) != value:
        raise UsageError(
            f"--build-env {name} looks like a secret, and would be written into the manifest",
            tip=f"set {name} in the environment of the command: builds see it there",
        )


def _refuse_ours(name: str, project: Project, stack: Stack) -> None:
    # A variable whose template has a placeholder follows a flag of ours, whatever its name is.
    templates = (variables.template_of(stack, project, for_cpu=for_cpu) for for_cpu in (False, True))
    template = next((each[name] for each in templates if name in each), "")
    # What a download would be given by, the user may give from elsewhere: then nothing is downloaded. And
    # paths of the environment and of the trees stand in compiler flags, which are the user's.
    found = variables.PLACEHOLDER.findall(template)
    own = ("environment", "site_packages", "source_dir", "stack_dir")
    placeholders = [name for name in found if name not in own and not name.startswith("download:")]
    if name not in _OURS and not placeholders and not _OURS_TOO.fullmatch(name):
        return
    instead = _OURS.get(name) or next((_FLAGS[p] for p in placeholders if p in _FLAGS), None)
    raise UsageError(
        f"{name} is set by Cairn itself for {project.name}: --build-env must not change it",
        tip=f"use {instead}" if instead else "leave it out",
    )
