"""Run paths and needed libraries changed in real libraries, which are then loaded."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.wheels.rewrite.elf import BinaryEdit, change
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, verify
from helpers.kpack_runtime import compiler
from helpers.wheels import call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="builds and loads Linux libraries")

Compile = Callable[..., bytes]
MANY = ("$ORIGIN/../a/rather/long/way/round", "$ORIGIN/lib")


@pytest.fixture(scope="module")
def pair(compile_library: Compile) -> dict[str, bytes]:
    inner = compile_library("libinner.so.1", "int inner(void) { return 41; }")
    source = "int inner(void);\nint outer(void) { return inner() + 1; }"
    outer = compile_library("libouter.so", source, links=("-l:libinner.so.1",))
    return {"inner": inner, "outer": outer}


def write(folder: Path, pair: dict[str, bytes], name: str = "libinner.so.1") -> Path:
    (folder / "lib").mkdir()
    (folder / "lib" / name).write_bytes(pair["inner"])
    outer = folder / "libouter.so"
    outer.write_bytes(pair["outer"])
    return outer


def test_a_run_path_is_added_shortened_and_removed(pair: dict[str, bytes], tmp_path: Path) -> None:
    outer = write(tmp_path, pair)
    assert "cannot open shared object file" in call(outer, "outer()")
    change(outer, BinaryEdit(run_path=MANY))
    assert call(outer, "outer()") == "42"
    grown = outer.stat().st_size
    change(outer, BinaryEdit(run_path=("$ORIGIN/lib",)))
    assert elf.read_file(outer).rpath == ("$ORIGIN/lib",)
    assert outer.stat().st_size == grown  # the text was there already, as the end of another
    assert call(outer, "outer()") == "42"
    change(outer, BinaryEdit(run_path=()))
    assert (elf.read_file(outer).rpath, elf.read_file(outer).runpath) == ((), ())
    assert "cannot open shared object file" in call(outer, "outer()")


def test_a_needed_library_is_renamed(pair: dict[str, bytes], tmp_path: Path) -> None:
    outer = write(tmp_path, pair, "libanother-1234.so.1")
    renamed = BinaryEdit(
        run_path=("$ORIGIN/lib",),
        replace_needed={"libinner.so.1": "libanother-1234.so.1", "libc.so.6": "libc.so.6"},
    )
    change(outer, renamed)
    assert "libanother-1234.so.1" in elf.read_file(outer).needed
    assert call(outer, "outer()") == "42"


PHDRS = """
#define _GNU_SOURCE
#include <link.h>
static char zeros[20000];
char *tell(int number) { return zeros + number; }
static int look(struct dl_phdr_info *info, size_t size, void *found) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *one = info->dlpi_phdr + i;
        unsigned long at = (unsigned long)zeros - info->dlpi_addr - one->p_vaddr;
        if (one->p_type == PT_LOAD && at < one->p_memsz) *(int *)found = info->dlpi_phnum;
    }
    return 0;
}
int outer(void) { int found = 0; dl_iterate_phdr(look, &found); return found; }
"""


@pytest.mark.parametrize("stripped", [False, True])
def test_the_program_headers_are_found_in_memory(tmp_path: Path, stripped: bool) -> None:  # noqa: FBT001
    """What unwinds the stack for an exception asks for them, and a page of the file may be .bss in memory."""
    library = tmp_path / "libouter.so"
    (tmp_path / "x.c").write_text(PHDRS)
    # Where GNU ld lays it out: the last segment is data, then .bss.
    command = [compiler(), "-shared", "-fPIC", "-s", "-o", library, tmp_path / "x.c"]
    subprocess.run(command, check=True)
    data = library.read_bytes()
    with library.open("rb") as file:
        parsed = ELFFile(file)
        end = max(s.header.p_offset + s.header.p_filesz for s in parsed.iter_segments("PT_LOAD"))
        count = parsed.num_segments()
    if stripped:  # as by `strip --strip-section-headers`: nothing stands behind the last segment
        cut = bytearray(data[:end])
        cut[40:48], cut[58:64] = bytes(8), bytes(6)
        library.write_bytes(cut)
    assert call(library, "outer()") == str(count)
    change(library, BinaryEdit(run_path=MANY))
    assert call(library, "outer()") == str(count + 1)


def test_symbol_versions_follow_their_library(compile_library: Compile, tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint outer(void) { puts(""); return 42; }'
    library = tmp_path / "libouter.so"
    library.write_bytes(compile_library("libouter.so", source))
    before = elf.read_file(library)
    assert "libc.so.6" in before.version_needs
    change(library, BinaryEdit(replace_needed={"libc.so.6": "libmusl.so.9"}))
    after = elf.read_file(library)
    assert after.version_needs == {
        name.replace("libc.so.6", "libmusl.so.9"): versions for name, versions in before.version_needs.items()
    }


def test_tools_read_what_was_changed(pair: dict[str, bytes], tmp_path: Path) -> None:
    outer = write(tmp_path, pair)
    change(outer, BinaryEdit(run_path=MANY))
    with outer.open("rb") as file:
        parsed = ELFFile(file)
        section = parsed.get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        assert [tag.rpath for tag in section.iter_tags("DT_RPATH")] == [":".join(MANY)]
        symbols = parsed.get_section_by_name(".dynsym")
        assert "outer" in {symbol.name for symbol in symbols.iter_symbols()}
        loads = [s for s in parsed.iter_segments() if s["p_type"] == "PT_LOAD"]
        assert all((s["p_vaddr"] - s["p_offset"]) % s["p_align"] == 0 for s in loads)
        assert [s["p_vaddr"] for s in loads] == sorted(s["p_vaddr"] for s in loads)


def test_patchelf_changes_what_a_loader_starts(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(sys.executable, program)
    if elf.read_file(program).interpreter:
        change(program, BinaryEdit(run_path=MANY))
        assert elf.read_file(program).rpath == MANY


def test_a_wheel_with_changed_binaries(
    pair: dict[str, bytes], pack: Callable[..., Path], accepted: Callable[[Path], None], tmp_path: Path
) -> None:
    tag = "py3-none-manylinux_2_28_x86_64"
    members = {"demo/libouter.so": pair["outer"], "demo/lib/libinner.so.1": pair["inner"]}
    wheel = pack(members, tag=tag)
    edit = Edit(version="1.1", binaries={"demo/libouter.so": BinaryEdit(run_path=("$ORIGIN/lib",))})
    made = edit_wheel(wheel, edit, tmp_path / "out")
    accepted(made)
    assert verify(made, Expectation()) == ()
    assert call(tmp_path / f"site-{made.stem}" / "demo" / "libouter.so", "outer()") == "42"
    assert [path.name for path in (tmp_path / "out").iterdir()] == [made.name]
    with pytest.raises(WheelError, match="two ways"):
        edit_wheel(wheel, Edit(binaries=edit.binaries, remove_files=("demo/libouter.so",)), tmp_path / "out")


def test_broken_headers_are_refused_by_name(pair: dict[str, bytes], tmp_path: Path) -> None:
    chance = random.Random(4)  # noqa: S311 - the same damage each time
    path = tmp_path / "broken.so"
    for _ in range(400):
        data = bytearray(pair["outer"])
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(0, 0x300)] = chance.randrange(256)
        path.write_bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])
        try:
            change(path, BinaryEdit(run_path=MANY, replace_needed={"libinner.so.1": "libother.so"}))
        except WheelError:
            continue
        assert elf.read_file(path).rpath == MANY
