"""Run in a process that multiprocessing has spawned, before anything of the program's (see `processes`)."""

from __future__ import annotations

import sys
from pathlib import Path

# What `processes` gives to `runpy.run_path`.
given = globals()

folder = str(Path(given["package"]).parent)
if folder not in sys.path:
    sys.path.append(folder)

import torchdevice  # noqa: E402 - found on the path that was just made

torchdevice.enable(given["target"], count=given["count"], strict=given["strict"], features=given["features"])
