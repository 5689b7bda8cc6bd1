"""Figures of how the code is laid out, to be compared before and after walls are moved.

    python benchmarks/structure.py count                      lines, comments, modules per folder
    python benchmarks/structure.py trace -- SCRIPT ARGS       modules and frames that a command passes through

`trace` runs the script in this interpreter and watches every call, in every thread. A module counts when one
of its functions ran (being imported is not enough); frames is how deep calls of Cairn's own functions lay
inside one another. Programs that the command starts are not watched.
"""

from __future__ import annotations

import argparse
import io
import runpy
import sys
import threading
import tokenize
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "build_tools" / "cairn"
_LINES_WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def count() -> None:
    """Print lines, the share of lines with a comment, and folders by their number of modules."""
    lines = comments = code = 0
    sizes = []
    folders: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        with_comment, with_code = _kinds_of_line(text)
        comments += len(with_comment)
        code += len(with_code)
        lines += text.count("\n")
        sizes.append(text.count("\n"))
        if path.name != "__init__.py":
            folders[path.parent.relative_to(PACKAGE.parent).as_posix()] += 1
    print(
        f"{len(sizes)} modules, {lines} lines, {code} with code, {comments} with a comment: "
        f"{comments / lines:.1%} of all, {comments / code:.1%} of code"
    )
    print(f"lines of a module: median {sorted(sizes)[len(sizes) // 2]}, largest {max(sizes)}")
    for folder, number in folders.most_common():
        print(f"{number:4} {folder}")


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


class Trace:
    """Which modules of Cairn ran, and how deep their frames lay."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
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
    print(f"{len(watch.modules)} modules, {len(watch.deepest)} frames", file=sys.stderr)
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
    commands.add_parser("count")
    tracing = commands.add_parser("trace")
    tracing.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.what == "count":
        count()
    else:
        trace(options.words[1:] if options.words[:1] == ["--"] else options.words)


if __name__ == "__main__":
    main()
