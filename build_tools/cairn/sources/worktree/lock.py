"""The lock of a checkout: one run of Cairn at a time works in it, be it a checkout, a build or a patch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cairn import files, platforms
from cairn.output import console

_WAIT = 4 * 3600.0  # seconds; the other run may be at the first fetch of a big repository


@contextlib.contextmanager
def hold(checkout_dir: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock a checkout against other runs of Cairn; `on_wait` is called if another run holds it.

    Without `on_wait` the user is told: the other run may be a build of hours.

    Programs started in the block end with us, even if we are killed: git and hipify would go on writing
    over what somebody edits then. The lock is a file in the cache folder, so that the checkout need not be
    there yet.
    """
    name = hashlib.sha256(os.fsencode(checkout_dir.resolve())).hexdigest()[:16]
    lock = files.cache_dir() / "checkouts" / f"{name}.lock"

    def waiting() -> None:
        console.current().info(f"waiting for another run that works in {checkout_dir}")

    with files.locked(lock, timeout=_WAIT, on_wait=on_wait or waiting), platforms.here.guarding():
        yield
