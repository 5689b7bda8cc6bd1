"""The changes of binaries in a fat wheel: each finds its libraries inside, under their names there."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cairn.errors import WheelError
from cairn.targets import TargetId
from cairn.wheels.fat import trim
from cairn.wheels.fat.binaries import Binary
from cairn.wheels.fat.libraries import Bundle
from cairn.wheels.fat.recipe import Recipe
from cairn.wheels.rewrite import elf
from cairn.wheels.rewrite.elf import BinaryEdit

_SDK_FOLDER = "_rocm_sdk_"


def own_edits(own: Iterable[Binary], bundle: Bundle, package: str) -> Iterator[tuple[str, BinaryEdit]]:
    """What must change in the wheel's own binaries, so that they find the libraries inside."""
    bundled = {binary.name for binary in bundle.libraries}
    for binary in own:
        if binary.library is None:
            continue
        parsed = binary.library.elf
        names = {name: bundle.names.get(name, name) for name in parsed.needed}
        uses = not bundled.isdisjoint(names.values())
        paths = (*parsed.rpath, *parsed.runpath)
        if not uses and not any(_SDK_FOLDER in path for path in paths):
            continue
        place = _relative(binary.path, f"{package}/lib")
        kept = [path for path in paths if _stays_inside(binary.path, path)]
        change = BinaryEdit(
            run_path=tuple(dict.fromkeys([*kept, place] if uses else kept)),
            replace_needed={old: new for old, new in names.items() if old != new},
        )
        if change.changes(parsed):
            yield binary.path, change


def _relative(member: str, folder: str) -> str:
    path = posixpath.relpath(folder, posixpath.dirname(member) or ".")
    return "$ORIGIN" if path == "." else f"$ORIGIN/{path}"


def _stays_inside(member: str, path: str) -> bool:
    """Whether a run path leads into the wheel itself."""
    head, _, rest = path.replace("${ORIGIN}", "$ORIGIN").partition("/")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return head == "$ORIGIN" and not place.startswith(("..", _SDK_FOLDER))


def added(
    bundle: Bundle, recipe: Recipe, package: str, targets: Sequence[TargetId], folder: Path
) -> Iterator[tuple[str, Path]]:
    """Path in the wheel to the file of each library; those that change get copies in `folder`.

    Raises:
        WheelError: one of them cannot be changed.
    """
    for number, binary in enumerate(bundle.libraries):
        change = _change(binary, bundle.names)
        source = Path(binary.path)
        if change is not None or binary.trimmed:
            source = _changed_copy(binary, change, targets, folder / str(number))
        for name in (binary.name, *recipe.aliases.get(binary.name, ())):
            yield f"{package}/lib/{name}", source


def _change(binary: Binary, names: Mapping[str, str]) -> BinaryEdit | None:
    if binary.library is None:
        return None
    renames = {name: names[name] for name in binary.needed if name in names}
    change = BinaryEdit(run_path=("$ORIGIN",), replace_needed=renames)
    return change if change.changes(binary.library.elf) else None


def _changed_copy(binary: Binary, change: BinaryEdit | None, targets: Sequence[TargetId], copy: Path) -> Path:
    shutil.copy(binary.path, copy)
    copy.chmod(copy.stat().st_mode | 0o200)
    try:
        if binary.trimmed:
            trim.trim(copy, targets)
        if change is not None:
            elf.change(copy, change)
    except WheelError as error:
        raise WheelError(f"{binary.path} cannot be bundled: {error}", tip=error.tip) from error
    return copy
