"""The version of a fat wheel, and the file in which the package tells its own."""

from __future__ import annotations

import ast

from cairn.errors import WheelError
from cairn.wheels import metadata
from cairn.wheels.archive import Archive

_MARK = "fat"


def fat_version(version: str) -> str:
    """The version of the fat wheel of a linked one: `2.9.0+fat.rocm7.10.0` of `2.9.0+rocm7.10.0`.

    `fat` stands first, so that the ROCm versions behind it compare as before, and pip, where one index has
    both kinds, goes on to prefer the linked one.

    Raises:
        WheelError: it is the version of a fat wheel already.
    """
    parsed = metadata.parsed_version(version)
    local = parsed.local or ""
    if _MARK in local.split("."):
        raise WheelError(
            f"{version} is the version of a fat wheel already", tip="start from the linked wheel"
        )
    return f"{parsed.public}+{'.'.join(part for part in (_MARK, local) if part)}"


def version_file(archive: Archive, package: str, old: str, new: str) -> dict[str, bytes]:
    """Path in the wheel to the new content of the package's version.py, where it says `__version__ = "…"`.

    Args:
        archive: the wheel.
        package: the package.
        old: the version so far; a file that says another one is left alone.
        new: the version to say.
    """
    member = f"{package}/version.py"
    if member not in archive:
        return {}
    source = archive.read(member)
    try:
        found = [node for node in ast.parse(source).body if _says(node, old)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    lines = source.splitlines(keepends=True)
    for node in found:
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line.replace(old.encode(), new.encode(), 1)
    return {member: b"".join(lines)} if found else {}


def _says(node: ast.stmt, version: str) -> bool:
    """Whether a statement on one line is `__version__ = "…"` of that version."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.lineno != node.end_lineno:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = any(isinstance(target, ast.Name) and target.id == "__version__" for target in targets)
    return named and isinstance(node.value, ast.Constant) and node.value.value == version
