"""Figures of how the code is laid out, to be compared before and after walls are moved.

    python benchmarks/structure.py count [--json]             each wing: modules, code, functions, lines
    python benchmarks/structure.py trace -- SCRIPT ARGS       modules, functions, frames of a command

A line of code is one that is neither blank nor only a comment nor part of a docstring. A function's length
counts its lines from `def` to its end, docstring and comments included.

`trace` runs the script in this interpreter and watches every call, in every thread. A module counts when one
of its functions ran (being imported is not enough); frames is how deep calls of Cairn's own functions lay
inside one another. Programs that the command starts are not watched.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import runpy
import statistics
import sys
import threading
import tokenize
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "build_tools" / "cairn"
WINGS = ("release", "cli", "testing", "wheels", "build", "sources", "pipeline", "formats")
_LINES_WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Figures:
    """What is counted of a wing: `lengths` are lines of functions, `widths` characters of lines of code."""

    modules: int = 0
    code: int = 0
    comments: int = 0
    lengths: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)

    def add(self, other: Figures) -> None:
        """Take another's figures in."""
        self.modules += other.modules
        self.code += other.code
        self.comments += other.comments
        self.lengths += other.lengths
        self.widths += other.widths
        self.libraries |= other.libraries

    def row(self) -> dict[str, object]:
        """The figures as they are shown."""
        return {
            "modules": self.modules,
            "code": self.code,
            "comments": self.comments,
            "functions": len(self.lengths),
            "median": statistics.median(self.lengths or [0]),
            "longest": max(self.lengths, default=0),
            "line": round(statistics.fmean(self.widths or [0]), 1),
            "libraries": sorted(self.libraries),
        }


def count() -> dict[str, Figures]:
    """The figures of each wing; `the base` is the rest: store, rocm, images and the like."""
    wings: dict[str, Figures] = defaultdict(Figures)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        wings[parts[0] if parts[0] in WINGS else "the base"].add(_figures(path))
    for figures in list(wings.values()):
        wings["all"].add(figures)
    return {name: wings[name] for name in (*WINGS, "the base", "all")}


def _figures(path: Path) -> Figures:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    comments, code = _kinds_of_line(text)
    lengths = []
    libraries = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = (
                node.body[0] if node.body and ast.get_docstring(node, clean=False) is not None else None
            )
            if docstring is not None:
                code -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        libraries |= {name.partition(".")[0] for name in names}
    libraries -= {"cairn", *sys.stdlib_module_names}
    return Figures(
        1, len(code), len(comments), lengths, [len(lines[number - 1]) for number in code], libraries
    )


def _kinds_of_line(text: str) -> tuple[set[int], set[int]]:
    """The numbers of the lines that have a comment, and of those that have code (docstrings too)."""
    with_comment: set[int] = set()
    with_code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            with_comment.add(token.start[0])
        elif token.type not in _LINES_WITHOUT_CODE:
            with_code.update(range(token.start[0], token.end[0] + 1))
    return with_comment, with_code


def show(wings: dict[str, Figures]) -> None:
    """Print a table of the wings, then the libraries that each imports."""
    print(
        f"{'wing':10}{'modules':>8}{'code':>8}{'comments':>9}{'functions':>10}{'median':>7}{'longest':>8}{'line':>6}"
    )
    for name, figures in wings.items():
        row = figures.row()
        print(
            f"{name:10}{row['modules']:>8}{row['code']:>8,}{row['comments']:>9,}{row['functions']:>10,}"
            f"{row['median']:>7}{row['longest']:>8}{row['line']:>6}"
        )
    for name, figures in wings.items():
        print(f"{name}: {', '.join(sorted(figures.libraries)) or 'no libraries'}")


class Trace:
    """Which modules of Cairn ran, and how deep their frames lay."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.functions: set[str] = set()
        self.deepest: tuple[str, ...] = ()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function: see `sys.setprofile`."""
        if event != "call" or not _ours(frame):
            return
        stack = []
        current: FrameType | None = frame
        while current is not None:
            if current.f_code.co_name == "<module>" and _module(current) != "__main__":
                return  # what runs while a module is imported is not a step of the command
            if _ours(current):
                stack.append(f"{_module(current)}.{current.f_code.co_qualname}")
            current = current.f_back
        self.modules.add(_module(frame))
        self.functions.add(stack[0])
        if len(stack) > len(self.deepest):
            self.deepest = tuple(reversed(stack))


def _ours(frame: FrameType) -> bool:
    return _module(frame).split(".")[0] == "cairn" and frame.f_code.co_name not in {"<module>", "<genexpr>"}


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def trace(words: list[str]) -> None:
    """Run a script as `python SCRIPT ARGS` would, then print what it passed through."""
    watch = Trace()
    sys.argv = words
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        print(f"exit code {ended.code}", file=sys.stderr)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    print(
        f"{len(watch.modules)} modules, {len(watch.functions)} functions, {len(watch.deepest)} frames",
        file=sys.stderr,
    )
    for name in sorted(watch.modules):
        print(f"  {name}", file=sys.stderr)
    print("deepest:", file=sys.stderr)
    for name in watch.deepest:
        print(f"  {name}", file=sys.stderr)


def main() -> None:
    """Count or trace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="what")
    counting = commands.add_parser("count")
    counting.add_argument("--json", action="store_true", help="print the figures as JSON")
    tracing = commands.add_parser("trace")
    tracing.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.what == "count":
        wings = count()
        if options.json:
            print(json.dumps({name: figures.row() for name, figures in wings.items()}, indent=2))
        else:
            show(wings)
    else:
        trace(options.words[1:] if options.words[:1] == ["--"] else options.words)


if __name__ == "__main__":
    main()
