"""Puts what `cairn ci init` writes into the wheel; everything else is in pyproject.toml."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SHIPPED = runpy.run_path(str(ROOT / "build_tools/cairn/pipeline/repository/shipped.py"))


class BuildWithShippedFiles(build_py):
    """Copies them into the package; an editable installation reads them where they are."""

    def run(self) -> None:
        """Build the package, and copy them."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "cairn", SHIPPED["FOLDER"])
        for name, path in SHIPPED["of_checkout"](ROOT):
            self.mkpath(str((target / name).parent))
            self.copy_file(str(path), str(target / name))


setup(cmdclass={"build_py": BuildWithShippedFiles})
