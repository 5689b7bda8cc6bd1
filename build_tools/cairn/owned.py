"""Mark the files and folders that Cairn made: it never removes or replaces one without its mark.

`empty_folder` and `empty_places` make room for output, `replace_files` replaces a set of files; each
refuses, before it changes anything, where a name is taken by something that is not ours. The mark is the
file `.cairn-made`. In a folder that is ours as a whole it says just that; where we share a folder with the
user, it lists the files that are ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from cairn import files
from cairn.errors import SystemFailureError, UsageError
from cairn.output import wording

MARK = ".cairn-made"
_LOCK = ".cairn-run.lock"
_TEXT = "Cairn made this, and will replace it when the command runs again.\n"


def empty_folder(path: Path) -> None:
    """Make an empty folder at `path`, in place of an earlier one of ours.

    Raises:
        UsageError: something else is there.
    """
    if os.path.lexists(path) and not _is_empty(path):
        if not _is_marked(path):
            raise _foreign(path.parent, [path.name])
        # The mark stays: a run that is killed while it removes gigabytes must find its folder again.
        for child in path.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            elif child.name != MARK:
                child.unlink()
    path.mkdir(parents=True, exist_ok=True)
    # Written before anything else, so that a run which is killed now does not leave a folder that looks
    # foreign.
    files.write_text(path / MARK, _TEXT)


def empty_places(folder: Path, *, of_files: Collection[str], of_folders: Collection[str]) -> None:
    """Make room in a folder for what a command writes there; everything else in it stays.

    Args:
        folder: made when missing.
        of_files: names of files that are to be written; an earlier run's are removed.
        of_folders: names of folders; they are empty afterwards.

    Raises:
        UsageError: one of the names is taken by something that Cairn did not make; nothing was removed then.
    """
    mark = folder / MARK
    entries = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
    foreign = [
        n for n in of_files if os.path.lexists(folder / n) and (n not in entries or (folder / n).is_dir())
    ]
    for name in of_folders:
        path = folder / name
        if os.path.lexists(path) and not _is_empty(path) and not _is_marked(path):
            foreign.append(name)
    if foreign:
        raise _foreign(folder, foreign)
    files.write_text(mark, "\n".join([_TEXT.strip(), *sorted({*entries, *of_files} - {_TEXT.strip()}), ""]))
    for name in of_files:
        (folder / name).unlink(missing_ok=True)
    for name in of_folders:
        empty_folder(folder / name)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other runs of Cairn from writing into a folder for as long as the block takes.

    Raises:
        UsageError: one is at it; it is not waited for, since it would be replaced then.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(files.locked(folder / _LOCK, timeout=0))
        except SystemFailureError as error:
            raise UsageError(
                f"another run is writing into {folder}", tip="name a different folder, or wait for its end"
            ) from error
        yield


def replace_files(folder: Path, source: Path) -> None:
    """Move every file below `made` into a folder, in place of those that the last call moved there.

    Raises:
        UsageError: a name is taken by a file of the user's, or one of ours was edited since; nothing was
        changed then.
    """
    mark = folder / MARK
    lines = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
    entries = {tuple(line.split("  ", 1)) for line in lines if "  " in line}
    new = {(files.sha256_of(p), p.relative_to(source).as_posix()) for p in source.rglob("*") if p.is_file()}
    foreign = []
    for name in {name for _, name in entries | new}:
        path = folder / name
        is_file = path.is_file() and not path.is_symlink()
        if os.path.lexists(path) and not (is_file and (files.sha256_of(path), name) in entries | new):
            foreign.append(name)
    if foreign:
        raise _foreign(folder, foreign)
    files.write_text(mark, _bullet_list(entries | new))  # old and new: a run that is killed below owns both
    names = {name for _, name in new}
    for name in {name for _, name in entries} - names:
        (folder / name).unlink(missing_ok=True)
    for name in names:
        files.copy(source / name, folder / name)
    files.write_text(mark, _bullet_list(new))


def _bullet_list(paths: Collection[tuple[str, ...]]) -> str:
    return "".join(f"{digest}  {name}\n" for digest, name in sorted(paths))


def _is_marked(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and (path / MARK).is_file()


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _foreign(folder: Path, names: Collection[str]) -> UsageError:
    return UsageError(
        f"{folder} has {wording.some(sorted(names))}, which Cairn did not make",
        tip="name a different folder, or move that away",
    )
