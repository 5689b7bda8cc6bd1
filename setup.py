"""What pyproject.toml cannot say: the version, and the archive of what a wheel holds besides the package."""

import re
import runpy
import subprocess
from email import message_from_string
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SHIPPED = runpy.run_path(str(ROOT / "build_tools/cairn/shipped.py"))
NEXT = runpy.run_path(str(ROOT / "build_tools/cairn/__init__.py"))["__version__"]
TAG = re.compile(r"v((?:\d+\.)*)(\d+)-(\d+)-(g[0-9a-f]+)")


def version() -> str:
    """Return the version: of the sdist, of the tag `v1.2.3`, or of what comes after it; else the next one."""
    info = ROOT / "PKG-INFO"
    if info.is_file():
        return str(message_from_string(info.read_text(encoding="utf-8"))["Version"])
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return NEXT
    match = TAG.fullmatch(described)
    if match is None:  # no tag yet, or no repository
        return NEXT
    start, last, commits, commit = match.groups()
    return f"{start}{last}" if commits == "0" else f"{start}{int(last) + 1}.dev{commits}+{commit}"


VERSION = version()


class BuildWithShippedFiles(build_py):
    """Writes both into the package; an editable installation reads the files where they are."""

    def run(self) -> None:
        """Build the package, and add them."""
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib, "cairn")
        SHIPPED["pack"](ROOT, package / SHIPPED["ARCHIVE"])
        text = (package / "__init__.py").read_text(encoding="utf-8")
        text = text.replace(f'__version__ = "{NEXT}"', f'__version__ = "{VERSION}"')
        (package / "__init__.py").write_text(text, encoding="utf-8")


setup(version=VERSION, cmdclass={"build_py": BuildWithShippedFiles})
