"""A build backend that only repeats the metadata an sdist already states; nothing of the sdist is run.

pip asks a project's backend for its metadata before it hands out an sdist, which would run the sdist's
`setup.py`. `sdist` puts a copy of this file in the place of setuptools' backend for that moment.
Standard library only: it runs in a process of pip's, where Cairn may not be importable.
"""

from __future__ import annotations

import email.parser
import sys
from pathlib import Path

# What pip calls for a project without a pyproject.toml (PEP 517).
__legacy__ = sys.modules[__name__]


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:  # noqa: ARG001 - PEP 517
    """Return no requirements: reading a file needs none."""
    return []


def prepare_metadata_for_build_wheel(
    metadata_directory: str,
    config_settings: object = None,  # noqa: ARG001 - PEP 517
) -> str:
    """Write the sdist's own PKG-INFO as a wheel's METADATA; return the folder's name (PEP 517).

    Raises:
        FileNotFoundError: the sdist has no PKG-INFO.
    """
    text = Path("PKG-INFO").read_text(encoding="utf-8")
    fields = email.parser.HeaderParser().parsestr(text)
    name = str(fields["Name"]).replace("-", "_")
    folder = Path(metadata_directory, f"{name}-{fields['Version']}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(text, encoding="utf-8")
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: cairn\n", encoding="utf-8")
    return folder.name
