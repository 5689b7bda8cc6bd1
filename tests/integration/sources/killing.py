"""Checks a repository out again and again, killed at one step after the other and repaired after each.

Run as a program, with options as a JSON object. A step is whatever changes the disk: a program started, a
file opened for writing, renamed or removed. Each attempt is a fork that kills itself, with SIGKILL, at its
step; what it leaves is then repaired by a run that nothing disturbs, and compared.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from cairn.files import cache_dir
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Origin, Project

EVENTS = {
    "subprocess.Popen",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Steps:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.count = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & WRITING):
            self.count += 1
            if self.count == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def attempt(request: CheckoutRequest, fatal: int) -> bool:
    """Whether a run was killed at this step; one that has fewer steps ends as it should."""
    child = os.fork()
    if child == 0:
        sys.addaudithook(Steps(fatal))
        checkout(request)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def look(request: CheckoutRequest, done: Checkout) -> dict[str, Any]:
    """What a checkout came out as."""

    def git(*words: str) -> str:
        command = ["git", "-c", "safe.directory=*", *words]
        found = subprocess.run(command, cwd=done.path, capture_output=True, text=True, check=True)
        return found.stdout

    git("fsck", "--strict", "--connectivity-only")
    return {
        "commits": (done.commit, done.hipify_commit, done.tree),
        "submodules": [(m.path, m.commit, m.hipify_commit, m.tree) for m in done.submodules],
        "status": git("status", "--porcelain"),
        "locks": [str(p) for p in request.checkout_dir.rglob("*.lock")],
        "parts": [str(p) for p in request.checkout_dir.rglob("*.part")],
    }


def put_back(places: dict[Path, Path]) -> None:
    """Have what each attempt starts from: nothing at all, or a checkout of something else."""
    for before, place in places.items():
        shutil.rmtree(place, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, place, symlinks=True)


def main() -> None:
    """Kill, repair and compare, at every `stride`-th step from `first` to `last`."""
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    names = {"name": "torch", "distribution": "torch", "checkout_dir": "x", "hashtag": "x"}
    project = Project(**names, origin=Origin(url="x"), hipify="build_amd")
    request = CheckoutRequest(
        project=project,
        checkout_dir=folder / "checkout",
        origin=options["origin"],
        hashtag=options["to"],
        jobs=1,
    )
    places = {folder / "before": request.checkout_dir, folder / "before cache": cache_dir()}
    if options["from"]:
        checkout(dataclasses.replace(request, hashtag=options["from"]))
        for before, place in places.items():
            shutil.copytree(place, before, symlinks=True)
    put_back(places)
    wanted = look(request, checkout(request))
    fatal, killed, wrong = options["first"], 0, []
    while fatal <= options["last"]:
        put_back(places)
        if not attempt(request, fatal):
            break
        killed += 1
        found = look(request, checkout(request))
        if found != wanted:
            wrong.append({"step": fatal, "found": found, "wanted": wanted})
        fatal += options["stride"]
    sys.stdout.write(json.dumps({"killed": killed, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    main()
