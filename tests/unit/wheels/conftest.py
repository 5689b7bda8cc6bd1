"""Wheels made by the standard library's zipfile, so that our writer is never its own judge."""

from __future__ import annotations

import base64
import hashlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import zstandard

MakeWheel = Callable[..., Path]
BASE = 0x180000000
SECTION_AT = 0x1000


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def add_member(archive: zipfile.ZipFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
    info.external_attr = (stat.S_IFREG | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


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
    pure: bool = True,
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
    purity = "true" if pure else "false"
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {purity}\n{lines}{numbered}".encode()
    )
    content[f"{info}/entry_points.txt"] = b"[console_scripts]\ndemo = demo:main\n"
    rows = "".join(f"{_csv(path)},{record_hash(data)},{len(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = f"{rows}{info}/RECORD,,\n".encode()
    columns = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(sorted(set(column))) for column in columns)
    path = folder / "-".join((name, version, *((build,) if build else ()), f"{tag}.whl"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in content.items():
            add_member(archive, member, data, 0o755 if member in executables else 0o644)
    return path


def _csv(path: str) -> str:
    return f'"{path}"' if "," in path else path


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    def make(**properties: object) -> Path:
        return build_wheel(tmp_path / "wheels", **properties)  # type: ignore[arg-type]

    return make


class ElfFile:
    """A shared library put together byte by byte."""

    def __init__(self, **properties: object) -> None:
        self.soname = str(properties.get("soname", ""))
        self.needed: Sequence[str] = properties.get("needed", ())  # type: ignore[assignment]
        self.runpath = str(properties.get("runpath", ""))
        self.rpath = str(properties.get("rpath", ""))
        self.versions: Mapping[str, Sequence[str]] = properties.get("versions", {})  # type: ignore[assignment]
        self.symbols: Sequence[str] = properties.get("symbols", ())  # type: ignore[assignment]
        self.weak: Sequence[str] = properties.get("weak", ())  # type: ignore[assignment]
        self.defined: Sequence[str] = properties.get("defined", ())  # type: ignore[assignment]
        self.lookalikes: Sequence[str] = properties.get("lookalikes", ())  # type: ignore[assignment]
        self.pie = bool(properties.get("pie"))
        self.hash = str(properties.get("hash", "sysv"))
        self.sections: Mapping[str, bytes] = properties.get("sections", {})  # type: ignore[assignment]
        self.interpreter = bool(properties.get("interpreter"))
        self.machine = int(properties.get("machine", 62))  # type: ignore[call-overload]
        self.flags = int(properties.get("flags", 0x4C if self.machine == 224 else 0))  # type: ignore[call-overload]
        self.abi_version = int(properties.get("abi_version", 4))  # type: ignore[call-overload]

    def build(self) -> bytes:
        strings = bytearray(b"\0")

        def text(value: str) -> int:
            strings.extend(value.encode() + b"\0")
            return len(strings) - len(value.encode()) - 1

        symbols = bytes(24)
        kinds = ((self.symbols, 0x10, 0), (self.weak, 0x20, 0), (self.defined, 0x10, 1))
        for names, info, section in kinds:
            for symbol in names:
                symbols += struct.pack("<IBBHQQ", text(symbol), info, 0, section, 0, 0)
        entries = [(1, text(name)) for name in self.needed]
        entries += [(14, text(self.soname))] if self.soname else []
        entries += [(15, text(self.rpath))] if self.rpath else []
        entries += [(29, text(self.runpath))] if self.runpath else []
        entries += [(0x6FFFFFFB, 0x08000000)] if self.pie else []
        needs = b""
        for number, (library, versions) in enumerate(self.versions.items()):
            aux = b""
            for index, version in enumerate(versions):
                following = 16 if index + 1 < len(versions) else 0
                aux += struct.pack("<IHHII", 0, 0, 2, text(version), following)
            following = 16 + len(aux) if number + 1 < len(self.versions) else 0
            needs += struct.pack("<HHIII", 1, len(versions), text(library), 16, following) + aux
        # What only looks like symbols, between other tables and the strings, which patchelf moves to the end.
        rows = b"".join(struct.pack("<IBBHQQ", text(name), 0x10, 0, 0, 0, 0) for name in self.lookalikes)
        return self._assembled(entries, bytes(strings), needs, symbols, rows)

    def _assembled(
        self, entries: list[tuple[int, int]], strings: bytes, needs: bytes, symbols: bytes, rows: bytes
    ) -> bytes:
        symbols_at = 64 + 3 * 56
        hash_at = symbols_at + len(symbols)
        count = len(symbols) // 24
        first = count - len(self.defined)
        if self.hash == "gnu, nothing exported" and not self.defined:
            first = 1  # as GNU ld writes an empty table, however many symbols are undefined
        hashes = struct.pack("<4I", *((1, first, 1, 0) if "gnu" in self.hash else (1, count, 0, 0)))
        needs_at = hash_at + (len(hashes) if self.hash else 0)
        strings_at = needs_at + len(needs) + len(rows)
        dynamic_at = strings_at + len(strings)
        entries = [*entries, (5, strings_at), (10, len(strings)), (6, symbols_at)]
        entries += [(0x6FFFFEF5 if "gnu" in self.hash else 4, hash_at)] if self.hash else []
        entries += [(0x6FFFFFFE, needs_at), (0x6FFFFFFF, len(self.versions))] if needs else []
        dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])
        body = symbols + (hashes if self.hash else b"") + needs + rows + strings + dynamic
        names, table, at = bytearray(b"\0"), struct.pack("<IIQQQQIIQQ", *(0,) * 10), symbols_at + len(body)
        blobs = b""
        for name, data in {**self.sections, ".shstrtab": b""}.items():
            blob = bytes(names) + b".shstrtab\0" if name == ".shstrtab" else data
            table += struct.pack("<IIQQQQIIQQ", len(names), 1, 0, 0, at + len(blobs), len(blob), 0, 0, 1, 0)
            names += name.encode() + b"\0"
            blobs += blob
        count = len(self.sections) + 2
        header = b"\x7fELF\x02\x01\x01\0" + bytes([self.abi_version if self.machine == 224 else 0]) + bytes(7)
        header += struct.pack(
            "<HHIQQQIHHHHHH",
            *(3, self.machine, 1, 0, 64, at + len(blobs), self.flags, 64, 56, 3, 64, count, count - 1),
        )
        header += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096)
        header += struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic), 8)
        header += struct.pack("<IIQQQQQQ", 3 if self.interpreter else 4, 4, 0, 0, 0, 0, 0, 1)
        return header + body + blobs + table


@pytest.fixture
def make_elf() -> Callable[..., bytes]:
    return lambda **properties: ElfFile(**properties).build()


PROCESSORS = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx9-4-generic": 0x5F}
PROCESSORS |= {"gfx1100": 0x41, "gfx1101": 0x46}


def code_object(target: str, body: bytes) -> bytes:
    """A whole ELF file for an AMD GPU with `body` for its instructions, put together byte by byte."""
    names = b"\0.text\0.shstrtab\0"
    text_at = 64 + 2 * 56
    names_at = text_at + len(body)
    header = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)
    flags = PROCESSORS[target.partition(":")[0]]
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, names_at + len(names), flags, 64, 56, 2, 64, 3, 2
    )
    header += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, text_at, text_at, 4096)
    header += struct.pack("<IIQQQQQQ", 1, 5, text_at, 4096, 4096, len(body), len(body), 4096)
    sections = bytes(64)
    for name, kind, at, size in ((1, 1, text_at, len(body)), (7, 3, names_at, len(names))):
        sections += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
    return header + body + names + sections


def plain_bundle(codes: Mapping[str, bytes]) -> bytes:
    entries = {"host-x86_64-unknown-linux--": b""}
    entries |= {f"hipv4-amdgcn-amd-amdhsa--{target}": code for target, code in codes.items()}
    at = 32 + sum(24 + len(name) for name in entries)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    body = b""
    for name, code in entries.items():
        head += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name.encode()
        body += code
    return head + body


def packed_bundle(codes: Mapping[str, bytes], version: int, method: int) -> bytes:
    plain = plain_bundle(codes)
    packed = zlib.compress(plain) if method == 0 else zstandard.ZstdCompressor().compress(plain)
    head = struct.pack("<4sHH", b"CCOB", version, method)
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    if version == 1:
        return head + struct.pack("<I8s", len(plain), digest) + packed
    layout = "<II8s" if version == 2 else "<QQ8s"
    total = len(head) + struct.calcsize(layout) + len(packed)
    return head + struct.pack(layout, total, len(plain), digest) + packed


@pytest.fixture
def make_bundle() -> Callable[..., bytes]:
    def make(codes: Mapping[str, bytes], version: int = 0, method: int = 0) -> bytes:
        return packed_bundle(codes, version, method) if version else plain_bundle(codes)

    return make


def make_dll(
    imports: Sequence[str] = (),
    delayed: Sequence[str] = (),
    *,
    name: str = "",
    old_delayed: Sequence[str] = (),
    sections: Mapping[str, bytes] | None = None,
    machine: int = 0x8664,
) -> bytes:
    """A DLL put together byte by byte."""
    body = bytearray(256 * (len(imports) + len(delayed) + len(old_delayed) + 4))
    strings = bytearray()

    def text(value: str) -> int:
        strings.extend(value.encode() + b"\0")
        return SECTION_AT + len(body) + len(strings) - len(value.encode()) - 1

    import_rows = b"".join(struct.pack("<IIIII", 1, 0, 0, text(n), 1) for n in imports) + bytes(20)
    delay_rows = b"".join(struct.pack("<IIIIIIII", 1, text(n), *(0,) * 6) for n in delayed)
    delay_rows += b"".join(
        struct.pack("<IIIIIIII", 0, (BASE + text(n)) & 0xFFFFFFFF, *(0,) * 6) for n in old_delayed
    )
    delay_rows += bytes(32)
    export = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, text(name), *(0,) * 6)
    tables = {}
    at = 0
    for index, rows in ((0, export if name else b""), (1, import_rows), (13, delay_rows)):
        body[at : at + len(rows)] = rows
        tables[index] = (SECTION_AT + at if rows else 0, len(rows))
        at += len(rows)
    parts = {".rdata": bytes(body) + bytes(strings), **(sections or {})}
    directories = b"".join(struct.pack("<II", *tables.get(index, (0, 0))) for index in range(16))
    optional = struct.pack("<H", 0x20B) + bytes(22) + struct.pack("<Q", BASE & 0xFFFFFFFF) + bytes(76)
    optional = optional[:108] + struct.pack("<I", 16) + directories
    header = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    header += struct.pack("<HHIIIHH", machine, len(parts), 0, 0, 0, len(optional), 0x2000)
    place = len(header) + len(optional) + 40 * len(parts)
    table, blobs, address = b"", b"", SECTION_AT
    for title, data in parts.items():
        table += struct.pack(
            "<8sIIIIIIHHI", title.encode(), len(data), address, len(data), place + len(blobs), 0, 0, 0, 0, 0
        )
        blobs += data
        address += 0x100000
    return header + optional + table + blobs


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
