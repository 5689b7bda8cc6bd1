"""Notes of the cache entries that running builds use, so that a trim leaves them.

A build learns early which wheels it will take and links them into its output hours later. So every process
notes the keys that it was given, in a file of its own beside a lock that it holds while it lives: whoever can
take that lock knows that the process is gone, however it ended. The environments of builds are noted alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from cairn import files

_FOLDER = ".in-use"
_of_root: dict[Path, _Note] = {}


class _Note:
    """The file of this process in one folder."""

    def __init__(self, root: Path) -> None:
        folder = root / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.pid = os.getpid()
        self.path = folder / f"{self.pid}-{secrets.token_hex(4)}.keys"
        self._uses: dict[str, int] = {}
        self._lock = files.try_lock(self.path.with_suffix(".lock"))  # open while the process lives

    def add(self, key: str) -> None:
        self._uses[key] = self._uses.get(key, 0) + 1
        if self._uses[key] == 1:
            with self.path.open("a", encoding="ascii") as file:
                file.write(f"{key}\n")

    def drop(self, key: str) -> None:
        self._uses[key] = self._uses.get(key, 0) - 1
        if self._uses[key] <= 0:
            del self._uses[key]
            self.path.write_text("".join(f"{key}\n" for key in self._uses), encoding="ascii")


def note(root: Path, key: str) -> None:
    """Keep an entry until this process ends, or has called `forget` as often.

    This and the other two functions must be called under the lock of the folder.
    """
    note_file = _of_root.get(root)
    if note_file is None or note_file.pid != os.getpid() or not note_file.path.parent.is_dir():
        note_file = _of_root[root] = _Note(root)
    note_file.add(key)


def forget(root: Path, key: str) -> None:
    """Undo one `note` of this process."""
    if (note_file := _of_root.get(root)) is not None and note_file.pid == os.getpid():
        note_file.drop(key)


def keys(root: Path) -> frozenset[str]:
    """Return the keys that living processes use, this one included."""
    used: set[str] = set()
    for path in (root / _FOLDER).glob("*.lock"):
        noted = path.with_suffix(".keys")
        lock = files.try_lock(path)
        if lock is None:
            with contextlib.suppress(FileNotFoundError):  # it has noted none yet
                used.update(noted.read_text(encoding="ascii").split())
            continue
        noted.unlink(missing_ok=True)
        os.close(lock)
        path.unlink(missing_ok=True)
    return frozenset(used)
