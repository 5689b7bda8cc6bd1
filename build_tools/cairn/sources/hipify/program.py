"""The hipify program of a project, run as a person would run it, and watched."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import process
from cairn.errors import ProcessError, SourceError
from cairn.output import Progress
from cairn.stack import HipifyKind

BUILD_AMD = "tools/amd_build/build_amd.py"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_WATCH = Path(__file__).with_name("watch_script.py")

# All that stays of the caller's environment, so that no PYTHONPATH or ROCM_HOME of theirs steers hipify.
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What was seen while the hipify program ran; see `watch_script`."""

    read: frozenset[str]
    unsupported: Mapping[str, str]


def execute(tree: Path, kind: HipifyKind, *, python: Path, say: Progress) -> Notes:
    """Run the program in a tree, which it edits.

    Args:
        tree: the working tree.
        kind: which program.
        python: the interpreter it runs in.
        say: is told the last line of its output.

    Raises:
        SourceError: there is no such program, or it failed.
    """
    if kind == "build_amd" and not (tree / BUILD_AMD).is_file():
        raise SourceError(
            f"{tree} has no {BUILD_AMD}", tip="is it a checkout of torch? else pass --no-hipify"
        )
    with tempfile.TemporaryDirectory(prefix="cairn-hipify-") as folder:
        notes = Path(folder, "notes.json")
        # Isolated (-I), so that a folder `torch` in the tree is not taken for the installed one.
        isolated = ["-IB", "-X", "utf8"] if kind == "torch-utils" else []
        program = BUILD_AMD if kind == "build_amd" else "--torch-utils"
        try:
            # The folder matters: build_amd.py names some of the files it edits relative to it.
            process.run(
                [python, *isolated, _WATCH, notes, program],
                cwd=tree,
                env=_environment(),
                on_line=lambda line: say(_COLOUR.sub("", line)),
            )
        except ProcessError as error:
            reason = _dangling(tree, error.output) or (error.output.splitlines() or [str(error)])[-1]
            raise SourceError(f"hipify of {tree} failed: {reason}", tip=_tip(kind, error.output)) from error
        if not notes.exists():
            # It has left by a way that skips every end of Python's (os._exit).
            return Notes(read=frozenset(), unsupported={})
        data = json.loads(notes.read_text(encoding="utf-8"))
    return Notes(read=frozenset(data["read"]), unsupported=data["unsupported"])


def _dangling(tree: Path, output: str) -> str | None:
    """What is said of a file that Python did not find because it is a link to nowhere."""
    for name in re.findall(r"No such file or directory: '([^']+)'", output):
        path = tree / name
        if path.is_symlink() and not path.exists():
            shown = Path(os.path.relpath(path, tree)).as_posix()
            return f"{shown} is a dangling link: there is no {os.readlink(path)}"  # noqa: PTH115 - as written
    return None


def _tip(kind: HipifyKind, output: str) -> str:
    if kind == "torch-utils" and "No module named 'torch" in output:
        return "name an interpreter that has torch (--python)"
    return "what it wrote has been undone; repair the sources, or pass --no-hipify"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUTF8": "1",
    }
