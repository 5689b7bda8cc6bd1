"""Wheels that a test describes in a few words, and what is done to them and read of them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st
from installer.sources import WheelFile

from cairn.cli.main import main
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.record import row_of
from cairn.wheels.rewrite import wheel as rewrite_wheel
from helpers.packing import pack

MakeWheel = Callable[..., Path]
"""`build_wheel` into a folder of the test: what the fixture `make_wheel` gives."""
LINUX = ("cp311-cp311-manylinux_2_28_x86_64",)
Change = Callable[[bytes], bytes] | bytes | None


def cairn_wheel(*arguments: str | Path) -> int:
    """`cairn wheel …` in this process; returns the exit code."""
    return main(["wheel", *map(str, arguments)])


def build_wheel(
    folder: Path,
    *,
    name: str = "demo",
    version: str = "1.0",
    tags: Sequence[str] = ("py3-none-any",),
    build: str = "",
    requires: Sequence[str] = ("triton==3.5.0", "filelock"),
    files: Mapping[str, bytes] | None = None,
    executables: Sequence[str] = (),
    pure: bool | None = None,
) -> Path:
    info = f"{name}-{version}.dist-info"
    content = dict(files if files is not None else {f"{name}/__init__.py": b"VALUE = 1\n"})
    requirements = "".join(f"Requires-Dist: {text}\n" for text in requires)
    content[f"{info}/licenses/LICENSE"] = b"free\n"
    content[f"{info}/sboms/a.cdx.json"] = b"{}\n"
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nX-Odd: kept\n"
        f"Requires-Python: >=3.9\n{requirements}Provides-Extra: fast\n"
        "License-File: LICENSE\n\n# Demo é\n\nVersion: not a header\n"
    ).encode()
    lines = "".join(f"Tag: {tag}\n" for tag in tags)
    numbered = f"Build: {build}\n" if build else ""
    purity = str(all(tag.endswith("-any") for tag in tags) if pure is None else pure).lower()
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {purity}\n{lines}{numbered}".encode()
    )
    content[f"{info}/entry_points.txt"] = b"[console_scripts]\ndemo = timeit:main\n"
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(sorted(set(column))) for column in columns)
    path = folder / "-".join((name, version, *((build,) if build else ()), f"{tag}.whl"))
    return pack(path, content, executables)


def members_of(path: Path) -> dict[str, bytes]:
    """The members of a wheel, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def altered(wheel: Path, changes: Mapping[str, Change], *, record: bool = False) -> Path:
    """Write a wheel again with these members changed, added, or left out where they became None.

    RECORD stays as it was, or with `record` says what there is now, which makes a lie harder to see.
    """
    before = members_of(wheel)
    content = dict(before)
    for name, change in changes.items():
        new = change(content[name]) if callable(change) else change
        if new is None:
            del content[name]
        else:
            content[name] = new
    assert content != before
    if record:
        content = {name: data for name, data in content.items() if not name.endswith(".dist-info/RECORD")}
    with zipfile.ZipFile(wheel) as archive:
        executables = [info.filename for info in archive.infolist() if info.external_attr >> 16 & 0o111]
    return pack(wheel, content, executables, record=record)


def unpack(site: Path, *wheels: Path) -> Path:
    """The folder with the files of wheels, as an installer leaves those that stay under their names."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


def pip_install(*words: str | Path, pip: Sequence[str | Path] = ()) -> None:
    """pip without an index and without anybody's settings; `pip` are words before its command."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    command = [sys.executable, "-m", "pip", *pip, "install", "--no-index", "--no-deps", *words]
    subprocess.run(command, check=True, capture_output=True, env=env | {"PIP_CONFIG_FILE": os.devnull})


def call(library: Path, function: str) -> str:
    """What a function of a library returns in a process of its own, or why it cannot be called."""
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).{function})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def with_empty_blocks(wheel: Path, name: str, count: int = 100) -> Path:
    """Write a wheel again with `count` empty blocks of deflate before the content of one member."""
    with zipfile.ZipFile(wheel) as archive:
        content = {info: archive.read(info) for info in archive.infolist()}
    body, table = b"", b""
    for info, data in content.items():
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = (b"\0\0\0\xff\xff" * count if info.filename == name else b"") + packer.compress(data)
        packed += packer.flush()
        numbers = (0, 8, 0, 0x21, zlib.crc32(data), len(packed), len(data), len(info.filename), 0)
        local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, *numbers)
        central = struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 0x314, 20, *numbers, 0, 0, 0, info.external_attr, len(body)
        )
        table += central + info.filename.encode()
        body += local + info.filename.encode() + packed
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(content), len(content), len(table), len(body), 0)
    wheel.write_bytes(body + table + end)
    return wheel


def lie_about_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rows of RECORD that an edit writes name other bytes than there are."""
    monkeypatch.setattr(rewrite_wheel, "row_for", lambda new, *_: row_of(new.name, bytes(32), 1))


def assert_sound(wheel: Path) -> None:
    """The archive unpacks, and `installer` finds RECORD right to the last byte."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
    with WheelFile.open(wheel) as source:
        source.validate_record(validate_contents=True)


def validated(path: Path) -> wheel_info.WheelInfo:
    """The wheel's info, once it is known to be sound."""
    assert_sound(path)
    info = wheel_info.read(path)
    assert info.tags == info.wheel_tags
    assert (
        info.dist_info
        == f"{path.name.split('-')[0]}-{wheel_info.parse_file_name(path.name).version}.dist-info"
    )
    return info


NUMBERS = st.one_of(st.integers(0, 12), st.integers(95, 105))
RELEASES = st.tuples(st.one_of(st.integers(1, 12), st.integers(95, 105)), NUMBERS, NUMBERS)
COMMITS = st.from_regex(r"[a-f][0-9a-f]{6,39}", fullmatch=True)
STAGES = st.sampled_from(
    ["", "rc1", "rc2", "rc9", "rc10", "a20251124", "a20251124+bkc.20251126", "a20260501", "b1", ".dev0"]
)


@st.composite
def rocm_versions(draw: st.DrawFn, first_major: int = 1) -> str:
    release = draw(RELEASES.filter(lambda r: r[0] >= first_major))
    stage = draw(STAGES)
    commit = f"+{draw(COMMITS)}" if stage == ".dev0" and draw(st.booleans()) else ""
    return ".".join(map(str, release)) + stage + commit
