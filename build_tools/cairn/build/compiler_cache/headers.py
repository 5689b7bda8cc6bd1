"""Headers of installed packages at a path that only their content decides.

A build finds torch's headers in its environment: at a different path for each Python, family and build, so
that a compiler cache never finds again what was compiled against them. Here a package's headers get a folder
that is named by their content, made of hard links. The launchers name it in place of the environment's, for
builds whose flags map the environment away (`-ffile-prefix-map`): elsewhere the path is part of the product.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path

from cairn import files
from cairn.venv import VirtualEnvironment


def shared(environment: VirtualEnvironment, folder: Path) -> Mapping[str, Path]:
    """Folders that stand for the site-packages of an environment, by the package whose headers they have.

    Args:
        environment: with packages installed.
        folder: where such folders are kept.

    Returns:
        The name of a top-level folder of site-packages that has headers, to a folder that has just it.
    """
    packages: dict[str, dict[str, str]] = {}
    for distribution in importlib.metadata.distributions(path=[str(environment.site_packages)]):
        for file in distribution.files or ():
            # RECORD has the digest of each file, so that none needs to be read.
            if file.hash is not None and "include" in file.parts[1:-1]:
                packages.setdefault(file.parts[0], {})[file.as_posix()] = file.hash.value
    return {
        name: _folder(environment.site_packages, headers, folder)
        for name, headers in sorted(packages.items())
        if name not in ("..", ".")
    }


def _folder(site: Path, headers: Mapping[str, str], folder: Path) -> Path:
    listed = "".join(f"{digest} {name}\n" for name, digest in sorted(headers.items()))
    place = folder / hashlib.sha256(listed.encode()).hexdigest()[:24]
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
