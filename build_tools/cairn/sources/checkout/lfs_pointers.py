"""Files of which a checkout has a Git LFS pointer in place of their content.

Git's own programs fetch no LFS objects, and nor does Cairn: its git knows no filters
(`cairn.sources.git.command`).
Source: the specification of pointers in git-lfs, docs/spec.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cairn.concurrency import side_by_side
from cairn.output import wording
from cairn.sources.git.repository import Repository
from cairn.sources.worktree.parts import Part, walk

_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_FILTER = b"filter=lfs"
_ATTRIBUTES = ".gitattributes"


def notes(root: Repository) -> Iterator[str]:
    """A line for people where files of the root or a submodule are pointers; nothing where none are."""
    found = [name for names in side_by_side(_of_part, walk(root)) for name in names]
    if found:
        yield (
            f"{wording.count(found, 'file')} of Git LFS came as a pointer, without the content: "
            f"{wording.some(found)} (in the checkout, `git lfs pull` fetches it)"
        )


def _of_part(part: Part) -> list[str]:
    own = part.repository
    # Nearly always in the root's own file; asking git in every submodule would take longer than all else.
    attributes = own.work_tree / _ATTRIBUTES
    if not attributes.is_file() or _FILTER not in attributes.read_bytes():
        return []
    listed = own.listed("ls-files", "-z", "--", ":(attr:filter=lfs)")
    return [part.named(name) for name in listed if _is_pointer(own, name)]


def _is_pointer(own: Repository, name: str) -> bool:
    path = own.work_tree / name
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_HEAD)) == _HEAD
