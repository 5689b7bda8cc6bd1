"""A folder that somebody else fills and empties all the time, as pip does with `site-packages`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_CHURN = """
import itertools, os, shutil, sys
folder = sys.argv[1]
for number in itertools.count():
    package = os.path.join(folder, f"p{number % 4}-1.dist-info")
    os.makedirs(os.path.join(package, "a", "b"), exist_ok=True)
    for name in ("x", "a/y", "a/b/z", ".t.1.part"):
        with open(os.path.join(package, name), "w") as file:
            file.write("text")
    shutil.rmtree(package)
"""


@contextlib.contextmanager
def churned(folder: Path) -> Iterator[None]:
    """Have a process fill and empty folders below this one until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", _CHURN, str(folder)]) as process:
        try:
            yield
        finally:
            process.kill()


def again_and_again(call: Callable[[], object], *, seconds: float = 0.7) -> None:
    """Call it for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call()
