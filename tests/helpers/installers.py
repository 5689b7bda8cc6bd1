"""pip, uv and installer, asked whether they install a wheel, and what they then leave behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

# pip's own program, many times in one process: it is asked line by line, and answers with its exit status.
_PIP = """
import os, sys
from pip._internal.cli.main import main
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
for line in sys.stdin:
    wheel, folder = line.rstrip("\\n").split("\\t")
    try:
        status = main(["install", "-qqq", "--isolated", "--no-deps", "--no-index", "--no-compile",
                       "--disable-pip-version-check", "--no-input", "--target", folder, wheel])
    except BaseException:
        status = 1
    print(status, file=answers, flush=True)
"""
# What each writes for itself.
_NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock"}


class Installers:
    """Ask installers; each installs into a folder of its own, which holds what it left of the last wheel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        self._env = env | {"PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(folder / "cache")}
        self._pip = subprocess.Popen(
            [sys.executable, "-c", _PIP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._env,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pip.communicate()

    def installer(self, wheel: Path) -> bool:
        """Whether `installer` takes a wheel, RECORD and contents validated."""
        target = self._empty("installer")
        schemes = {"purelib": "", "platlib": "", "headers": "include", "scripts": "bin", "data": ""}
        places = {scheme: str(target / place) for scheme, place in schemes.items()}
        destination = SchemeDictionaryDestination(places, interpreter=sys.executable, script_kind="posix")
        try:
            with warnings.catch_warnings(), WheelFile.open(wheel) as source:
                warnings.simplefilter("ignore")
                if source.data_dir in source._zipfile.namelist():
                    return False  # of a file in place of that folder it would never come to an end
                source.validate_record()
                install(source, destination, {})
        except Exception:  # noqa: BLE001 - it dies of many
            return False
        return True

    def pip(self, wheel: Path) -> bool:
        """Whether `pip install` takes a wheel."""
        assert self._pip.stdin
        assert self._pip.stdout
        print(wheel, self._empty("pip"), sep="\t", file=self._pip.stdin, flush=True)
        return self._pip.stdout.readline() == "0\n"

    def uv(self, *wheels: Path) -> bool:
        """Whether `uv pip install` takes all of these wheels."""
        command = [
            shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv",
            "pip",
            "install",
            "--quiet",
        ]
        command += ["--no-config", "--offline", "--no-index", "--no-deps", "--python", sys.executable]
        command += ["--target", str(self._empty("uv")), *map(str, wheels)]
        return not subprocess.run(command, check=False, capture_output=True, env=self._env).returncode

    def left_by(self, name: str) -> dict[str, bytes]:
        """The files that one of them has left, but for its notes and the scripts that it wrote itself."""
        folder = self._folder / name
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in _NOTES)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    def _empty(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder


def refused(installers: Installers, wheels: Sequence[Path]) -> Iterator[Path]:
    """The wheels that uv does not take; all at once, then by halves."""
    if not wheels or installers.uv(*wheels):
        return
    if len(wheels) == 1:
        yield wheels[0]
        return
    half = len(wheels) // 2
    yield from refused(installers, wheels[:half])
    yield from refused(installers, wheels[half:])
