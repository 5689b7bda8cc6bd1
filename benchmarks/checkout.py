"""Check out a repository of torch's size again, at a different hashtag: Cairn beside a plain recursive clone.

    python benchmarks/checkout.py
    python benchmarks/checkout.py --files 8000 --submodules 10 --rounds 1

Cairn's mirrors are filled by a first checkout of the other line, as in the life of a nightly or a developer.
Both sides run as child processes, in turn, from the same origin on this machine, which they reach by a
`file://` URL (without it, git makes hard links and transfers nothing); the median of the rounds counts.
"Same folder" is a checkout that is brought from one line to the other, "new folder" is made from nothing.
Then two checkouts of different lines run at once from empty mirrors, and every tree is compared with the
origin's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import checkout_repository
from checkout_repository import LINES
from wheel_measure import Cost, measured

BAR = 0.40  # of the plain clone's wall time

STACK = """\
schema = "cairn.stack/1"
name = "benchmark"
line = "{lines[0]}"
targets = ["cpu"]

[[projects]]
name = "torch"
distribution = "torch"
checkout_dir = "pytorch"
origin = {{ url = "{origin}" }}
hashtag = "{lines[0]}"
"""

CLONE = ("git", "-c", "protocol.file.allow=always", "clone", "--quiet", "--recursive")


def cairn(folder: Path, target: Path, line: str) -> list[str]:
    """The command that checks a line out into `target`."""
    program = [sys.executable, "-m", "cairn", "--quiet", "checkout", "torch", "--stack", str(folder)]
    return [*program, "--checkout-dir", str(target), "--repo-hashtag", line]


def git(folder: Path, *words: str) -> str:
    """What git says in a folder."""
    command = ["git", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def rounds(folder: Path, origin: Path, count: int) -> dict[str, list[Cost]]:
    """Both sides in turn."""
    first, second = LINES
    measured(cairn(folder, folder / "first", first))
    costs: dict[str, list[Cost]] = {"plain clone": [], "cairn, new folder": [], "cairn, same folder": []}
    for number in range(count):
        plain = folder / f"plain{number}"
        costs["plain clone"].append(measured([*CLONE, "--branch", second, f"file://{origin}", str(plain)]))
        check(origin, second, plain)
        shutil.rmtree(plain)
        ours = folder / f"ours{number}"
        costs["cairn, new folder"].append(measured(cairn(folder, ours, second)))
        check(origin, second, ours)
        # The folder that the first checkout made goes from line to line.
        costs["cairn, same folder"].append(measured(cairn(folder, folder / "first", second)))
        check(origin, second, folder / "first")
        measured(cairn(folder, folder / "first", first))
        shutil.rmtree(ours)
    return costs


def both_at_once(folder: Path, origin: Path) -> None:
    """Two lines at once, from mirrors that neither finds filled."""
    shutil.rmtree(os.environ["CAIRN_CACHE_DIR"])
    started = {
        line: subprocess.Popen(cairn(folder, folder / f"at once {number}", line), stdout=subprocess.DEVNULL)
        for number, line in enumerate(LINES)
    }
    for number, (line, child) in enumerate(started.items()):
        if child.wait():
            raise SystemExit(f"the checkout of {line} failed with {child.returncode}")
        trees = check(origin, line, folder / f"at once {number}")
        tree = git(origin, "rev-parse", f"{line}^{{tree}}")
        print(f"at once: {line} is right, tree {tree}, {trees} trees in all")


def check(origin: Path, line: str, target: Path) -> int:
    """Compare the files of a checkout and of every submodule with their origins; how many trees there were.

    Raises:
        SystemExit: one is different.
    """
    wanted = {"": git(origin, "rev-parse", f"{line}^{{tree}}")}
    for entry in git(origin, "ls-tree", "-r", line, "third_party").splitlines():
        commit, path = entry.split()[2], entry.partition("\t")[2]
        wanted[path] = git(origin.parent / f"{Path(path).name}.git", "rev-parse", f"{commit}^{{tree}}")
    for path, tree in wanted.items():
        here = target / path
        changed = git(here, "status", "--porcelain", "--ignore-submodules=all")
        found = git(here, "rev-parse", "HEAD^{tree}")
        if found != tree or changed:
            raise SystemExit(f"{here} has tree {found}, expected {tree}; {changed[:200]}")
    return len(wanted)


def report(costs: dict[str, list[Cost]]) -> bool:
    """Print the medians and the ratios; whether the bar is held."""
    walls = {name: statistics.median(cost.wall for cost in found) for name, found in costs.items()}
    peer = walls["plain clone"]
    print(f"{'':24}{'wall s':>10}{'CPU s':>10}{'of plain':>10}   every round")
    for name, found in costs.items():
        cpu = statistics.median(cost.cpu for cost in found)
        each = " ".join(f"{cost.wall:.2f}" for cost in found)
        print(f"{name:24}{walls[name]:10.2f}{cpu:10.2f}{walls[name] / peer:10.0%}   {each}")
    held = all(wall <= BAR * peer for name, wall in walls.items() if name != "plain clone")
    print(f"the bar is {BAR:.0%}: {'held' if held else 'MISSED'}")
    return held


def main() -> None:
    """Make the repository, measure, compare."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("--files", type=int, default=80_000)
    parser.add_argument("--submodules", type=int, default=40)
    parser.add_argument("--file-bytes", type=int, default=4_000, help="of one file, on average")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-benchmark-", dir=options.folder) as name:
        folder = Path(name)
        os.environ["CAIRN_CACHE_DIR"] = str(folder / "cache")
        size = checkout_repository.Size(
            files=options.files, submodules=options.submodules, file_bytes=options.file_bytes
        )
        origin = checkout_repository.make(folder / "origins", size)
        print(f"{options.files} files of {options.file_bytes} bytes, {options.submodules} submodules")
        (folder / "stack.toml").write_text(
            STACK.format(origin=f"file://{origin}", lines=LINES), encoding="utf-8"
        )
        held = report(rounds(folder, origin, options.rounds))
        both_at_once(folder, origin)
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
