"""Wheels that are read where they lie: by parts, and with the answers that the file gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cairn.formats.zip.reader import Archive
from cairn.wheels.contents.summary import summarise_archive
from helpers.formats import make_elf
from helpers.range_server import RangeServer, serving_ranges
from helpers.wheels import LINUX, MakeWheel, cairn_wheel

UNREAD = ("targets", "libraries", "kind", "archives", "builds")
"""What nobody can tell without the libraries."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    with serving_ranges(tmp_path) as state:
        yield state


@pytest.fixture
def large(make_wheel: MakeWheel) -> Path:
    """A wheel of 2 MB that does not compress, with a name that has to be quoted in a URL."""
    data = b"".join(n.to_bytes(4, "little") * 3 + (n * n % 65521).to_bytes(4, "big") for n in range(1 << 17))
    return make_wheel(
        version="2.9.0+rocm7.10",
        tags=LINUX,
        files={
            "demo/version.py": b"git_version = '0123456789abcdef0123456789abcdef01234567'\n",
            "demo/lib.so": make_elf(soname="lib.so", needed=("libc.so.6",)) + data,
            ".kpack/demo_gfx942.kpack": b"KPAK" + data,
            "demo/kernels/a_gfx1100.hsaco": b"x" * 100,
        },
    )


def test_a_url_gives_what_the_file_gives(
    server: RangeServer, large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{server.url}/{quote(large.relative_to(tmp_path).as_posix())}"
    assert cairn_wheel("show", url, "--json") == 0
    remote = json.loads(capsys.readouterr().out)[0]
    with Archive.open(large) as archive:
        archive.raw.is_remote = True  # of the file, too, what needs no library
        here = json.loads(json.dumps(summarise_archive(archive).to_plain()))
    assert remote == here
    assert {name: remote[name] for name in UNREAD} == dict.fromkeys(UNREAD)
    assert remote["named_targets"] == ["gfx942", "gfx1100"]
    assert remote["record_problems"] == []
    assert remote["unread"] > 0
    assert len(server.requests) < 5
    assert server.sent < large.stat().st_size / 2
