"""Entry points must lead to something: a module of the wheel, and in that what they name.

A wheel's requirements may bring modules too, and Python may make names while it runs. Only what cannot be
there counts: a module missing from a package whose files are all in the wheel, a name that nothing in the
text of its module can define. A script that leads nowhere is a finding; a plugin may never be asked for.

Source: packaging.python.org, "Entry points specification".
"""

from __future__ import annotations

import ast
import re
import sys
import warnings

from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import places
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.verify.findings import Finding, FindingCode

SCRIPTS = ("console_scripts", "gui_scripts")
_REFERENCE = re.compile(
    r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(?::\s*([A-Za-z_]\w*)[\w.]*)?\s*(?:\[[^\]]*\])?"
)
_MODULE_FILES = (".py", ".pyc", ".pyd", ".so")
_LARGEST = 1 << 20  # bytes of a module that is parsed
# A package with one of these may find its modules elsewhere (pkgutil, pkg_resources, importlib).
_FINDS_ELSEWHERE = (b"__path__", b"declare_namespace", b"meta_path", b"path_hooks")
# A module with one of these may have names that no statement of it binds.
_BINDS_UNSEEN = (
    b"globals",
    b"__getattr__",
    b"exec",
    b"sys.modules",
    b"setattr",
    b"__dict__",
    b"vars",
    b"locals",
)


def check(archive: Archive, info: WheelInfo) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by entry point, and those that a requirement would have to bring."""
    files = {places.installed(member.name): member.name for member in archive.members if not member.is_dir}
    if any(path.endswith(".pth") and "/" not in path for path in files):
        return (), ()  # site.py may find modules anywhere
    findings, elsewhere = [], []
    for group, points in info.entry_points.items():
        for name, text in points.items():
            match = _REFERENCE.fullmatch(text.strip())
            if match is None:
                continue  # a script's is judged by `installability`; other groups may have any text
            problem = _problem(archive, info, files, match[1], match[2])
            if problem is None:
                continue
            if problem:
                reason = f"{name} of {group} leads to {text.strip()}: {problem}"
                fix = "name what is there, or ship the module"
                path = f"{info.dist_info}/entry_points.txt"
                code = FindingCode.ENTRY_POINT if group in SCRIPTS else FindingCode.OPTIONAL_PLUGIN
                findings.append(Finding(code=code, member=path, reason=reason, fix=fix))
            else:
                elsewhere.append(match[1].split(".")[0])
    unknown = [
        f"whether a requirement has {top}, which entry points name" for top in dict.fromkeys(elsewhere)
    ]
    return tuple(findings), tuple(unknown)


def _problem(
    archive: Archive, info: WheelInfo, files: dict[str, str], module: str, attribute: str | None
) -> str | None:
    """What is wrong; None where nothing is known to be, an empty text where a requirement may bring it."""
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names:
        return None
    for count in range(1, len(parts) + 1):
        path = "/".join(parts[:count])
        if _is_there(files, path):
            continue
        if count == 1:
            return "" if info.requires_dist else f"the wheel has no module {parts[0]}, and requires nothing"
        package = _source(archive, files, "/".join(parts[: count - 1]) + "/__init__.py")
        # One without a file of its own may have parts in other wheels (PEP 420).
        if package is None or any(mark in package for mark in _FINDS_ELSEWHERE):
            return None
        return f"the wheel has no module {'.'.join(parts[:count])}"
    path = "/".join(parts)
    text = _source(archive, files, f"{path}/__init__.py") or _source(archive, files, f"{path}.py")
    if attribute is None or text is None or _may_bind(text, attribute):
        return None
    # A submodule is an attribute too, once it was imported.
    return None if _is_there(files, f"{path}/{attribute}") else f"nothing there defines {attribute}"


def _is_there(files: dict[str, str], path: str) -> bool:
    """Whether there is a module or a folder at a path."""
    folder, _, stem = path.rpartition("/")
    return any(
        file.startswith(f"{path}/")
        or (
            file.startswith(f"{path}.")
            and file.rpartition("/")[0] == folder
            and file.rpartition("/")[2].split(".")[0] == stem
            and file.endswith(_MODULE_FILES)
        )
        for file in files
    )


def _source(archive: Archive, files: dict[str, str], path: str) -> bytes | None:
    if path not in files or archive.member(files[path]).size > _LARGEST:
        return None
    return archive.read(files[path])


def _may_bind(text: bytes, name: str) -> bool:
    """Whether a module may have a name, which is certain not to be so where no statement could bind it."""
    if any(mark in text for mark in _BINDS_UNSEEN):
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old syntax, which is theirs
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # for another Python
    return any(name in bound or "*" in bound for bound in map(_bound, ast.walk(tree)))


def _bound(node: ast.AST) -> tuple[str, ...]:
    """The names that a node binds, wherever it stands: more than the module's own do no harm."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return tuple((alias.asname or alias.name).split(".")[0] for alias in node.names)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
        return (node.name or "",)
    return ()
