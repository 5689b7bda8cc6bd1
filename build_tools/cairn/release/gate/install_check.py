"""Installing a set the way users will, into environments that are thrown away.

`install` takes requirements and the URL of the only index, and gives a `Trial`: what was installed, or why
not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import isolation, process, venv
from cairn.errors import ProcessError

Installer = Literal["pip", "uv"]

_TIMEOUT = 3600.0  # seconds; a torch wheel of gigabytes on a slow disk takes minutes
_IGNORED_EXTRA = "does not provide the extra"  # pip and uv only warn, and install something incomplete


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How one installer did.

    Attributes:
        installer: which.
        problem: why the set cannot be installed, in one sentence; None if it can.
        installed: `name==version` of everything in the environment afterwards.
    """

    installer: Installer
    problem: str | None
    installed: tuple[str, ...] = ()

    @property
    def versions(self) -> frozenset[tuple[str, Version]]:
        """What is installed, by normalised name."""
        pairs = (line.split("==", 1) for line in self.installed)
        return frozenset((str(canonicalize_name(name)), Version(version)) for name, version in pairs)


def install(
    installer: Installer,
    requirements: Sequence[str],
    *,
    index_url: str,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Trial:
    """Install `requirements` from one index alone, untouched by the settings of the user who runs this.

    Args:
        installer: pip or uv.
        requirements: what to install.
        index_url: the only index.
        python: the interpreter to make the environment with; None is ours.
        environment: further variables for the installer.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cairn-trial-") as folder,
        isolation.own_home(index_url) as home,
    ):
        # Caches of its own: one that earlier installations filled would hide a file that is not on the index.
        env = isolation.variables(isolation.Isolation.INSTALLER, home)
        env |= {"UV_CACHE_DIR": str(Path(folder, "uv")), **(environment or {})}
        uv_pip = [venv.uv_program(), "pip"]
        try:
            inside = venv.create(Path(folder, "venv"), python=python, environ=env).python
            head: dict[Installer, list[str | Path]] = {
                # Neither a cache of downloads nor bytecode outlives the trial: of torch, half the time.
                "pip": [*venv.pip_command(inside), "--isolated", "--no-cache-dir", "--no-compile"],
                "uv": [*uv_pip, "install", "--no-config", "--python", inside],
            }
            installed = process.run(
                [*head[installer], "--index-url", index_url, *requirements],
                env=env,
                timeout=_TIMEOUT,
                hidden=isolation.credential_files(),
            )
            process.run([*uv_pip, "check", "--no-config", "--python", inside], env=env)
            frozen = process.run([*uv_pip, "freeze", "--no-config", "--python", inside], env=env)
        except ProcessError as error:
            return Trial(installer=installer, problem=_reason(error))
    ignored = next((line.strip() for line in installed.output.splitlines() if _IGNORED_EXTRA in line), None)
    names = tuple(line for line in frozen.output.splitlines() if "==" in line)
    return Trial(installer=installer, problem=ignored, installed=names)


def _reason(error: ProcessError) -> str:
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "no matching" in line.lower()]
    chosen = errors or lines[-3:] or [str(error)]
    return " ".join(chosen[:4])[:600]
