"""The changes of binaries in a fat wheel: each finds its libraries inside, under their names there.

A library from the tree gets the run path `$ORIGIN`, the folder that all of them lie in; one of the wheel
keeps the run paths that stay inside the wheel, and gets one to that folder.

Code for other targets is taken out of a plain offload bundle: its entries get ids that name no device, and
the code becomes zeros, which cost next to nothing in a wheel. A compressed bundle stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cairn import files
from cairn.errors import WheelError
from cairn.formats import patch
from cairn.formats import view as formats_view
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object
from cairn.formats.patch import Patch
from cairn.targets import TargetId
from cairn.wheels.contents.binaries import Binary, run_path_folder, run_path_to
from cairn.wheels.fat import target_names
from cairn.wheels.fat.libraries import BundledLibrary, LibraryBundle
from cairn.wheels.fat.recipe import Recipe
from cairn.wheels.rewrite import elf
from cairn.wheels.rewrite.elf import BinaryEdit

_SDK_FOLDER = "_rocm_sdk_"
_MOST_ZEROS = 40  # times what is left of a library


def own_edits(own: Iterable[Binary], bundle: LibraryBundle, package: str) -> Iterator[tuple[str, BinaryEdit]]:
    """What must change in the wheel's own binaries, so that they find the libraries inside.

    PE files have no run path: `_rocm_init.py` adds the folder when the package is imported.
    """
    bundled = {library.name for library in bundle.libraries}
    for binary in own:
        names = {name: bundle.names.get(name, name) for name in binary.needed}
        uses = not bundled.isdisjoint(names.values())
        to_sdk = any(_SDK_FOLDER in path for path in binary.run_paths)
        if binary.format == "pe" or not (uses or to_sdk):
            continue
        # Run paths to the SDK's packages would be searched first, and find any ROCm that is installed there.
        folders = [path for path in binary.run_paths if _stays_inside(binary.path, path)]
        folders += [run_path_to(binary.path, f"{package}/lib")] if uses else []
        change = BinaryEdit(
            run_path=tuple(dict.fromkeys(folders)),
            replace_needed={old: new for old, new in names.items() if old != new},
        )
        if change.changes(binary):
            yield binary.path, change


def _stays_inside(member: str, path: str) -> bool:
    """Whether a run path leads into the wheel itself."""
    folder = run_path_folder(member, path)
    return folder is not None and not folder.startswith(("..", _SDK_FOLDER))


def added(
    bundle: LibraryBundle, recipe: Recipe, package: str, targets: Sequence[TargetId], folder: Path
) -> Iterator[tuple[str, Path]]:
    """Path in the wheel to the file of each library; those that change get copies in `folder`.

    Raises:
        WheelError: one of them cannot be changed.
    """
    for number, library in enumerate(bundle.libraries):
        source = Path(library.binary.path)
        change = _edit_of(library.binary, bundle.names)
        if change is not None or library.trimmed:
            copy = folder / str(number)
            files.copy_into(source, copy)
            copy.chmod(source.stat().st_mode | 0o200)
            try:
                if library.trimmed:
                    _trim(copy, targets)
                if change is not None:
                    elf.change(copy, change)
            except WheelError as error:
                raise WheelError(f"{source} cannot be bundled: {error}", tip=error.tip) from error
            source = copy
        # Wheels cannot have links: a library that is also opened as libnuma.so is there twice.
        for name in (library.name, *recipe.aliases.get(library.name, ())):
            yield f"{package}/lib/{name}", source


def _edit_of(binary: Binary, names: Mapping[str, str]) -> BinaryEdit | None:
    """What must change in a library of the tree; None where nothing must, and for DLLs."""
    # DT_NEEDED may name a link of the tree (libamdhip64.so), and in the wheel there are only SONAMEs.
    renames = {name: names[name] for name in binary.needed if name in names}
    change = BinaryEdit(run_path=("$ORIGIN",), replace_needed=renames)
    return change if binary.format == "elf" and change.changes(binary) else None


def trimmed(library: BundledLibrary, targets: Sequence[TargetId]) -> BundledLibrary:
    """The library, with the code for other targets marked as to be taken out.

    Where next to nothing of the library would be left, it stays as it is: a file of zeros unpacks to so many
    times its size that readers of wheels take it for a bomb.
    """
    codes = library.binary.code_objects
    removed = tuple(c for c in codes if not (c.compressed or target_names.serves((c.target,), targets)))
    size = library.binary.size - sum(code.size for code in removed)
    return library if size * _MOST_ZEROS < library.binary.size else replace(library, trimmed=removed)


def _trim(path: Path, targets: Sequence[TargetId]) -> None:
    """Take the code for other targets out of a file of our own."""
    with formats_view.opening(path) as view:
        bundles = list(code_object.bundles_of(view))
    patches: list[Patch] = []
    for bundle in bundles:
        if bundle.packing is not None:  # CCOB: its sizes and its hash would have to be made anew
            continue
        ids = {e.id for e in bundle.device_entries}
        others = {i for i in ids if not target_names.serves((code_object.target_of_entry(i),), targets)}
        ranges = [(e.offset, e.offset + e.size) for e in bundle.entries if e.id not in others]
        for entry in (e for e in bundle.entries if e.id in others):
            patches.append(Patch(at=bundle.at + entry.id_at, data=offload_bundle.INERT_PREFIX))
            # Entries may share their bytes, and a lying table may point at itself.
            shared = any(entry.offset < end and begin < entry.offset + entry.size for begin, end in ranges)
            if entry.offset >= bundle.table_size and not shared:
                patches.append(Patch(at=bundle.at + entry.offset, zeros=entry.size))
    patch.apply(path, patches)
