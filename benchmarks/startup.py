"""How long a program takes to say how it is used: CPU time of every `--help`, beside `pip --version`.

    python benchmarks/startup.py

Each command line is run several times; the figures are the least time of user and system together, in
seconds. What is loaded meanwhile is held by `tests/unit/cli/test_imports.py`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.cli import main as program

SCRIPTS = Path(__file__).resolve().parents[1] / "external-builds" / "pytorch"
BAR = 0.15
RUNS = 5


def seconds(command: Sequence[str]) -> float:
    """CPU time of a program, of which nothing but the time counts."""
    taken = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.prog
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for child in action.choices.values():
                yield from _commands(child)


def main() -> int:
    """Measure and print; 1 where something takes longer than the bar."""
    cairn = [sys.executable, "-m", "cairn"]
    lines = {"cairn --version": [*cairn, "--version"]}
    for name in _commands(program.make_parser(whole=True)):
        lines[f"{name} --help"] = [*cairn, *name.split()[1:], "--help"]
    for path in sorted(SCRIPTS.glob("*.py")):
        lines[f"{path.name} --help"] = [sys.executable, str(path), "--help"]
    build = SCRIPTS / "build_prod_wheels.py"
    lines[f"{build.name} build --help"] = [sys.executable, str(build), "build", "--help"]
    print(f"{'python -c pass':42} {seconds([sys.executable, '-c', 'pass']):6.3f}")
    print(f"{'pip --version':42} {seconds([sys.executable, '-m', 'pip', '--version']):6.3f}")
    slowest = 0.0
    for name, command in lines.items():
        taken = seconds(command)
        slowest = max(slowest, taken)
        print(f"{name:42} {taken:6.3f}")
    return int(slowest > BAR)


if __name__ == "__main__":
    sys.exit(main())
