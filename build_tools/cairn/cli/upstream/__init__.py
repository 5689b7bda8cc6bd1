"""Scripts with upstream's names and flags (ROCm/TheRock, external-builds/pytorch and build_tools).

A function of a script's name makes its parser. It takes the script's own file: the stack.toml and the default
checkouts are beside that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser


def parsers() -> Iterator[ArgumentParser]:
    """Make the parser of each script, with the projects of the stack `pytorch`."""
    from cairn import stack
    from cairn.cli.upstream import build_prod_wheels, checkouts, pytorch_tests, scripts

    projects = stack.load(Path("pytorch")).projects
    yield build_prod_wheels.make_parser(Path("build_prod_wheels.py"), projects)
    for name in (project.name for project in projects):
        yield checkouts.pytorch_repo(name, Path(f"pytorch_{name}_repo.py"))
    yield checkouts.checkout_from_manifest(Path("checkout_from_manifest.py"))
    yield pytorch_tests.run_pytorch_smoke_tests(Path("run_pytorch_smoke_tests.py"))
    yield pytorch_tests.run_pytorch_tests(Path("run_pytorch_tests.py"))
    yield scripts.patch_fat_wheel(Path("patch_fat_wheel.py"), windows=False)
    yield scripts.patch_fat_wheel(Path("windows_patch_fat_wheel.py"), windows=True)
    yield scripts.sanity_check_wheel(Path("sanity_check_wheel.py"))
    yield scripts.fetch_artifacts(Path("fetch_artifacts.py"))
    yield scripts.build_python_packages(Path("build_python_packages.py"))
