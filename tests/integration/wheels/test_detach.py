"""Libraries as real linkers lay them out, loaded and run by the real loader without their device code."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cairn.formats.offload import detach
from cairn.formats.view import FileView
from helpers.formats import make_bundle, make_code_object
from helpers.kpack_runtime import build_library, build_stand_in, load

CODES = {
    "gfx942": make_code_object("gfx942", random.Random(1).randbytes(30_000)),  # noqa: S311 - fixed content
    "gfx90a:xnack+": make_code_object("gfx90a", b"with xnack" * 900),
}
BUNDLES = [make_bundle(CODES, *kind) for kind in ((0, 0), (1, 0), (2, 1), (3, 1))]
LEADS = [0, 1, 2, 3, 0, 2]
REFERENCE = b"\x82what leads to the archive"
LINKS = {
    "plain": (),
    "packed-relocations": ("-Wl,-z,pack-relative-relocs",),
    "lld": ("-fuse-ld=lld",),
    "lld-packed-relocations": ("-fuse-ld=lld", "-Wl,-z,pack-relative-relocs"),
    "lld-applied-relocations": ("-fuse-ld=lld", "-Wl,--apply-dynamic-relocs"),
    "huge-pages": ("-Wl,-z,max-page-size=0x200000",),
    "one-segment": ("-Wl,-z,noseparate-code",),
    "stripped": ("-s", "-Wl,-z,now"),
    "fixed-address": ("-fno-pie", "-no-pie"),
}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stand_in(tmp_path_factory.mktemp("stand-in"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("program", kind) for kind in LINKS] + [("libx.so", kind) for kind in LINKS if kind != "fixed-address"],
)
def test_a_library_loads_and_a_program_runs_without_its_code(
    kind: str, name: str, stand_in: Path, tmp_path: Path
) -> None:
    whole = build_library(tmp_path / name, BUNDLES, LEADS, stand_in, *LINKS[kind], program=name == "program")
    before = load(whole, stand_in)
    assert [wrapper.magic for wrapper in before] == [0x48495046] * len(LEADS)
    with whole.open("rb") as file:
        library = detach.read(FileView(file))
        assert library is not None
        assert library.leads == tuple(LEADS)
        (tmp_path / "host").mkdir()
        host = tmp_path / "host" / name
        undo = detach.detach(library, REFERENCE, host)
    shutil.copymode(whole, host)

    found = load(host, stand_in)
    assert [(w.magic, w.version, w.ordinal) for w in found] == [
        (0x4B504948, 1, number) for number in range(len(LEADS))
    ]
    assert all(wrapper.target.startswith(REFERENCE) for wrapper in found)
    if kind != "huge-pages":
        assert host.stat().st_size < whole.stat().st_size - sum(map(len, BUNDLES)) + 6 * 4096
    warnings = subprocess.run(["readelf", "-WlSrd", host], check=True, capture_output=True, text=True).stderr
    assert warnings == ""

    detach.attach(host, undo, tmp_path / "again")
    data, again, code = whole.read_bytes(), (tmp_path / "again").read_bytes(), library.code
    end = code.offset + code.size
    assert again == data[: code.offset] + bytes(code.size) + data[end:]
