from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from cairn.testing.builtin_smoke import environment
from cairn.wheels.contents.binaries import Binary
from helpers.formats import make_elf


def library(folder: Path, name: str, **parts: Any) -> Binary:
    path = folder / f"{name}.so"
    path.write_bytes(make_elf(soname=path.name, **parts))
    return environment.read_binaries([path])[0]


def test_a_library_of_this_machine_alone_is_missing(tmp_path: Path) -> None:
    needed = ("libc.so.6", "shipped.so", "libselinux.so.1", "ld-linux-x86-64.so.2")
    user, shipped = library(tmp_path, "user", needed=needed), library(tmp_path, "shipped")
    assert environment.missing_libraries(user, [user, shipped]) == ("libselinux.so.1",)
    assert environment.missing_libraries(user, [user]) == ("shipped.so", "libselinux.so.1")


def test_a_symbol_comes_from_what_is_linked_however_far_and_from_the_program(tmp_path: Path) -> None:
    far = library(tmp_path, "far", defined=("of_far",), needed=("near.so",))  # in a circle
    near = library(tmp_path, "near", defined=("of_near",), needed=("far.so",))
    other = library(tmp_path, "other", defined=("of_other",), weak=("of_nobody",))
    program = library(tmp_path, "program", defined=("PyErr_Format",), needed=("base.so",))
    base = library(tmp_path, "base", defined=("of_base",))
    wanted = ("of_far", "of_near", "PyErr_Format", "of_base")
    user = library(tmp_path, "user", symbols=wanted, weak=("of_nobody",), needed=("near.so",))
    greedy = library(tmp_path, "greedy", symbols=("of_other", "of_nobody", "of_near"), needed=("near.so",))
    passed_over = library(tmp_path, "passed", symbols=("anything",), needed=("not-here.so",))
    everything = (far, near, other, program, base, user, greedy, passed_over)
    found = environment.missing_symbols(
        [user, greedy, passed_over, other], around=everything, program=Path(program.path)
    )
    # `other` has one of the two, but `greedy` is not linked to it; and what `other` lacks, it may lack.
    assert found == {greedy.path: ("of_nobody", "of_other")}


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel what is loaded")
def test_what_this_python_has_loaded_lacks_nothing() -> None:
    for name in ("ctypes", "ssl"):  # with libraries of their own
        importlib.import_module(name)
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = {Path(line.split(maxsplit=5)[5]) for line in lines if " r-xp " in line and "/" in line}
    loaded = environment.read_binaries(sorted(path for path in mapped if path.exists()))
    own = [binary for binary in loaded if "lib-dynload" in binary.path]
    assert own
    program = Path(sys.executable).resolve()
    assert environment.missing_symbols(own, around=loaded, program=program) == {}
