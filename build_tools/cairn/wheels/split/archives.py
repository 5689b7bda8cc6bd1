"""Which archives a split writes, and which code is in each.

The runtime asks for the archive of a GPU's exact target, then with fewer of its features
(`gfx90a:sramecc+:xnack-`, `gfx90a:sramecc+`, `gfx90a:xnack-`, `gfx90a`), and takes the first that exists. One
that exists but lacks the code of a wrapper hides a later one that has it. So every archive is complete: for
each wrapper it has the code that its GPU would get from the library, also where that was compiled for fewer
features, or for a generic target. And where two exist that one GPU could ask for, the one for both is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import combinations as pairs
from pathlib import Path

from cairn import targets
from cairn.errors import WheelError
from cairn.formats.kpack import writer
from cairn.formats.kpack.archive import SUFFIX
from cairn.formats.kpack.reference import PLACEHOLDER, Reference, kernel_name_of
from cairn.formats.kpack.writer import Writer
from cairn.formats.offload import code_object
from cairn.formats.offload.record import Part
from cairn.formats.offload.unpacked import UnpackedBundle
from cairn.targets import TargetId
from cairn.wheels.metadata.wheel_info import WheelInfo

_FOLDER = ".kpack"
# Where files of the data folder go at last, of which these two are the folder that all else goes to.
_SITE = (".data/platlib/", ".data/purelib/")
_DATA = ".data/"
# Programs are installed into this folder of the prefix. A folder among them is an error to uv, so that their
# archives go there as data.
_SCRIPTS, _PROGRAMS = ".data/scripts/", ".data/data/bin/"
HEADERS = ".data/headers/"
"""What is in there, installers put into a folder that is named after the wheel."""

# Target IDs have two features, sramecc and xnack (LLVM's AMDGPUUsage.rst, "Target ID"). Each one more triples
# the archives, of which there is one for each way to have them.
_MOST_FEATURES = 4


class Place:
    """Where the archives of a library are, by the folders that installers make of a wheel's.

    Attributes:
        archives: path in the wheel of its archives, with `@GFXARCH@` for the target.
        library: the path of the library below its package.
    """

    def __init__(self, info: WheelInfo, path: str) -> None:
        """Find it for the library at a path in the wheel, of which the data folder is called `.data`.

        Raises:
            WheelError: in what the path begins with, the runtime would put the target of the GPU too, or no
                other wheel can bring a file to where the library is installed.
        """
        if path.startswith(HEADERS):
            raise WheelError(f"{path} is installed where no device wheel can have its code")
        scheme = next((start for start in _SITE if path.startswith(start)), "")
        rest = path.removeprefix(scheme)
        if rest.startswith(_DATA):
            scheme = "/".join(rest.split("/")[:2]) + "/"
            rest = rest.removeprefix(scheme)
        *folders, name = rest.split("/")
        top = f"{folders[0]}/" if folders else ""
        stem = f"{info.file_name.split('-', maxsplit=1)[0]}_{PLACEHOLDER}{SUFFIX}"
        if PLACEHOLDER in top + stem.replace(PLACEHOLDER, "", 1):
            raise WheelError(f"{path} has {PLACEHOLDER} in its path")
        base = "" if scheme in _SITE else _PROGRAMS if scheme == _SCRIPTS else scheme
        self.archives = f"{base}{top}{_FOLDER}/{stem}"
        up = "../" * max(len(folders) - 1, 0)
        self.library = "/".join((*folders[1:], name))
        self._search_path = f"{up}{_FOLDER}/{stem}"

    def reference(self, build: str) -> Reference:
        """What stands in the library in place of its code, which is of that build."""
        name = kernel_name_of(self.library, build)
        return Reference(kpack_search_paths=(self._search_path,), kernel_name=name)


def complete(offered: Iterable[TargetId]) -> tuple[TargetId, ...]:
    """The targets that need an archive of their own, where there is code for those that are offered.

    Raises:
        WheelError: it is for more features of a processor than any has.
    """
    every = set(offered)
    targets_needed: set[TargetId] = set()
    for processor in {target.processor for target in every}:
        features = {target.features for target in every if processor in targets.that_run(target.processor)}
        names = {feature[:-1] for some in features for feature in some}
        if len(names) > _MOST_FEATURES:
            raise WheelError(
                f"it has code for {len(names)} features of {processor}: {', '.join(sorted(names))}"
            )
        # Until nothing is new: with the codes for a GPU there is one that has the features of them all.
        while new := {both for one, other in pairs(features, 2) if (both := _union(one, other))} - features:
            features |= new
        targets_needed |= {TargetId(processor=processor, features=some) for some in features}
    return tuple(sorted(targets_needed, key=lambda target: (targets.sort_key(str(target)), str(target))))


def best(target: TargetId, offered: Sequence[TargetId]) -> int | None:
    """The number of the code that a GPU of a target gets; None where there is none for it."""
    fits = [
        (code.processor != target.processor, -len(code.features), number)
        for number, code in enumerate(offered)
        if target.processor in targets.that_run(code.processor) and set(code.features) <= set(target.features)
    ]
    return min(fits)[2] if fits else None


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...] | None:
    """The features of both; None where one has on what the other has off."""
    both = tuple(sorted({*first, *second}))
    return both if len({feature[:-1] for feature in both}) == len(both) else None


class Archives:
    """The archives of the libraries that look for them in one folder, while they are written."""

    def __init__(self, stack: ExitStack, folder: Path, group: str, offered: Iterable[TargetId]) -> None:
        """Begin an archive for each target, in `folder`."""
        self.paths: dict[str, Path] = {}
        self._writers: list[tuple[TargetId, Writer]] = []
        self._ordinals: dict[tuple[TargetId, str], int] = {}
        for number, target in enumerate(complete(offered)):
            path = folder / f"{number}{SUFFIX}"
            archive = writer.writing(path, group=group, family=target.processor, targets=[str(target)])
            self._writers.append((target, stack.enter_context(archive)))
            self.paths[str(target)] = path

    def add(self, kernel_name: str, content: UnpackedBundle, part: Part) -> None:
        """Write the code of one bundle, of which `part` is the record, for all wrappers that lead to it.

        Code that is in an archive already, from another bundle, is not written again.
        """
        entries = content.bundle.device_entries
        offered = [code_object.target_of_entry(entry.id) for entry in entries]
        for target, archive in self._writers:
            chosen = best(target, offered)
            if chosen is None:
                continue
            place = target, part.codes[chosen].sha256
            if place not in self._ordinals:
                self._ordinals[place] = archive.add(content.code(entries[chosen]), part.codes[chosen].size)
            for ordinal in part.wrappers:
                archive.name(kernel_name, ordinal, str(target), self._ordinals[place])
