"""A folder of patches: which repository each is for, and whether it goes beneath hipify's commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError, UsageError

_STAGES = ("base", "hipified")


@dataclass(frozen=True, kw_only=True)
class Series:
    """The patches for one repository, in the order in which they apply.

    Attributes:
        base: for upstream's own files: they go beneath hipify's commit.
        hipified: for what hipify made of them.
    """

    base: tuple[Path, ...] = ()
    hipified: tuple[Path, ...] = ()


def read(
    folder: Path, *, parts: Collection[str], root_names: Collection[str], is_hipified: bool
) -> Mapping[str, Series]:
    """Every `*.patch` below a folder, by the path of its repository (empty for the root).

    Two layouts are read. That of `cairn patches export`: the root's patches in the folder itself, those of a
    submodule in a folder of its path. And that of ROCm/TheRock (external-builds/pytorch/patches, one patch
    set): `NAME/base` and `NAME/hipified`, where NAME is that of the root's repository or the path of a
    submodule.

    Args:
        folder: of the patches.
        parts: the paths of the repositories in the checkout.
        root_names: what the root's repository may be called.
        is_hipified: patches that do not say when they apply are for a hipified tree.

    Raises:
        UsageError: there are no patches.
        SourceError: there are patches for a submodule that is not there.
    """
    found: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.patch")):
        parent = path.parent.relative_to(folder).as_posix()
        owner, stage = _place("" if parent == "." else parent, parts, root_names)
        found[owner, stage or ("hipified" if is_hipified else "base")].append(path)
    if not found:
        raise UsageError(
            f"{folder} has no *.patch",
            tip="name a folder that `cairn patches export` made, or one of TheRock's",
        )
    if unknown := sorted({owner for owner, _ in found} - set(parts)):
        raise _unknown(folder, unknown[0], root_names)
    owners = sorted({owner for owner, _ in found})
    return {
        owner: Series(base=tuple(found[owner, "base"]), hipified=tuple(found[owner, "hipified"]))
        for owner in owners
    }


def _place(parent: str, parts: Collection[str], root_names: Collection[str]) -> tuple[str, str | None]:
    if parent in parts:
        return parent, None
    owner, _, last = parent.rpartition("/")
    if last not in _STAGES:
        return parent, None
    return ("" if owner in root_names and owner not in parts else owner), last


def _unknown(folder: Path, owner: str, root_names: Collection[str]) -> SourceError:
    first, _, rest = owner.partition("/")
    if rest in root_names or rest.startswith("third_party/"):
        return SourceError(
            f"{folder} has several patch sets, such as {first}", tip=f"name one of them: {folder / first}"
        )
    return SourceError(
        f"the checkout has no submodule {owner}, for which {folder} has patches",
        tip="check it out with its submodules, or leave their folder out; the root's own patches are in "
        f"the folder itself, or below {' or '.join(sorted(root_names))}",
    )
