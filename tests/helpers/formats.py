"""ELF files, offload bundles and DLLs put together byte by byte: our readers are never their own judges."""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
import zlib
from collections.abc import Mapping, Sequence

import msgspec
import zstandard

DLL_BASE = 0x180000000
DLL_SECTION_AT = 0x1000
EM_X86_64 = 62
EM_AMDGPU = 224
# EF_AMDGPU_MACH_*: the low byte of e_flags names the processor (LLVM's AMDGPUUsage, "ELF Header").
PROCESSORS = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx9-4-generic": 0x5F}
PROCESSORS |= {"gfx1030": 0x36, "gfx1100": 0x41, "gfx1101": 0x46, "gfx1102": 0x47, "gfx1103": 0x44}
PROCESSORS |= {"gfx11-generic": 0x54}


def make_elf(
    *,
    soname: str = "",
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str | None = None,
    versions: Mapping[str, Sequence[str]] | None = None,
    symbols: Sequence[str] = (),
    weak: Sequence[str] = (),
    defined: Sequence[str] = (),
    lookalikes: Sequence[str] = (),
    sections: Mapping[str, bytes] | None = None,
    hash_table: str = "sysv",
    pie: bool = False,
    interpreter: bool = False,
    machine: int = EM_X86_64,
    flags: int | None = None,
    abi_version: int = 4,
    stack: int | None = None,
    level: int = 0,
) -> bytes:
    """A shared library, or a code object for a GPU when `machine` says so.

    `versions` are the symbol versions needed of each library, of which `symbols` may name one as in
    `malloc@GLIBC_2.17`, `lookalikes` names in rows that only look like
    symbols, between the other tables and the strings; `flags` defaults to gfx942's for a code object; `stack`
    are the flags of PT_GNU_STACK, `level` the bits of the levels of x86-64 that it asks for.
    """
    versions, sections = versions or {}, sections or {}
    strings = bytearray(b"\0")
    text = functools.partial(add_text, strings)
    # Elf64_Sym: name, info (binding << 4 | type), other, section (0: undefined), value, size.
    table = bytes(24)
    for names, info, section in ((symbols, 0x10, 0), (weak, 0x20, 0), (defined, 0x10, 1)):
        for symbol in names:
            table += struct.pack("<IBBHQQ", text(symbol.partition("@")[0]), info, 0, section, 0, 0)
    entries = [(1, text(name)) for name in needed]  # DT_NEEDED
    entries += [(14, text(soname))] if soname else []  # DT_SONAME
    entries += [(15, text(rpath))] if rpath else []  # DT_RPATH
    entries += [(29, text(runpath))] if runpath is not None else []  # DT_RUNPATH
    entries += [(0x6FFFFFFB, 0x08000000)] if pie else []  # DT_FLAGS_1: DF_1_PIE
    needs = version_needs(strings, versions)
    versyms = _version_indexes((*symbols, *weak, *defined), versions)
    # What only looks like symbols, between other tables and the strings, which patchelf moves to the end.
    rows = b"".join(struct.pack("<IBBHQQ", text(name), 0x10, 0, 0, 0, 0) for name in lookalikes)

    symbols_at = 64 + 3 * 56
    hash_at = symbols_at + len(table)
    count = len(table) // 24
    hashes = _hash_table(hash_table, count, len(defined))
    needs_at = hash_at + (len(hashes) if hash_table else 0)
    versyms_at = needs_at + len(needs)
    strings_at = versyms_at + len(versyms) + len(rows)
    dynamic_at = strings_at + len(strings)
    entries += [(5, strings_at), (10, len(strings)), (6, symbols_at)]  # DT_STRTAB, DT_STRSZ, DT_SYMTAB
    entries += (
        [(0x6FFFFEF5 if "gnu" in hash_table else 4, hash_at)] if hash_table else []
    )  # DT_GNU_HASH, DT_HASH
    entries += (
        [(0x6FFFFFFE, needs_at), (0x6FFFFFFF, len(versions))] if needs else []
    )  # DT_VERNEED, DT_VERNEEDNUM
    entries += [(0x6FFFFFF0, versyms_at)] if versyms else []  # DT_VERSYM
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])
    body = table + (hashes if hash_table else b"") + needs + versyms + rows + bytes(strings) + dynamic
    note_at = symbols_at + len(body)
    note = struct.pack("<III4sIIII", 4, 32, 5, b"GNU", 0xC0000002, 4, 3, 0)  # of control flow: passed over
    note += struct.pack("<IIII", 0xC0008002, 4, level, 0)
    body += note if level else b""

    at = symbols_at + len(body)
    section_names, headers, blobs = bytearray(b"\0"), bytes(64), b""
    for name, data in {**sections, ".shstrtab": b""}.items():
        blob = bytes(section_names) + b".shstrtab\0" if name == ".shstrtab" else data
        where = at + len(blobs)
        headers += struct.pack("<IIQQQQIIQQ", len(section_names), 1, 0, 0, where, len(blob), 0, 0, 1, 0)
        section_names += name.encode() + b"\0"
        blobs += blob
    count = len(sections) + 2
    on_gpu = machine == EM_AMDGPU
    flags = (PROCESSORS["gfx942"] if on_gpu else 0) if flags is None else flags
    header = b"\x7fELF\x02\x01\x01\0" + bytes([abi_version if on_gpu else 0]) + bytes(7)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, at + len(blobs), flags, 64, 56, 3, 64, count, count - 1
    )
    # Elf64_Phdr: type, flags, offset, address, physical, size in the file, in memory, alignment.
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096)
    header += struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic), 8)
    last = (3 if interpreter else 4, 4) if stack is None else (0x6474E551, stack)
    place = (note_at, note_at, 0, len(note), len(note), 8) if level else (0, 0, 0, 0, 0, 1)
    header += struct.pack("<IIQQQQQQ", *((0x6474E553, 4) if level else last), *place)
    return header + body + blobs + headers


def add_text(strings: bytearray, value: str) -> int:
    """Where a text stands in a table of strings, once it is added."""
    strings += value.encode() + b"\0"
    return len(strings) - len(value.encode()) - 1


def _version_indexes(symbols: Sequence[str], versions: Mapping[str, Sequence[str]]) -> bytes:
    """What DT_VERSYM has for each symbol: 1 for no version, from 2 on as `version_needs` counts them."""
    asked = ["", *(symbol.partition("@")[2] for symbol in symbols)]
    indexes = ["", "", *(name for names in versions.values() for name in names)]
    return struct.pack(f"<{len(asked)}H", *(indexes.index(name, 1) for name in asked)) if any(asked) else b""


def version_needs(strings: bytearray, versions: Mapping[str, Sequence[str]]) -> bytes:
    """Elf64_Verneed of each library, each with its Elf64_Vernaux behind it; versions count from 2."""
    needs, index = b"", itertools.count(2)
    for number, (library, names) in enumerate(versions.items()):
        rows = [
            (next(index), add_text(strings, name), 16 * (at + 1 < len(names)))
            for at, name in enumerate(names)
        ]
        aux = b"".join(struct.pack("<IHHII", 0, 0, *row) for row in rows)
        following = 16 + len(aux) if number + 1 < len(versions) else 0
        needs += struct.pack("<HHIII", 1, len(names), add_text(strings, library), 16, following) + aux
    return needs


def _hash_table(kind: str, count: int, defined: int) -> bytes:
    """DT_HASH, or DT_GNU_HASH of one bucket, of a table of symbols that ends with those that are defined."""
    if "gnu" not in kind:
        return struct.pack("<4I", 1, count, 0, 0)
    # GNU ld writes 1 where nothing is exported, however many symbols are undefined.
    first = 1 if kind == "gnu, nothing exported" and not defined else count - defined
    ends = [number == defined for number in range(1, defined + 1)]  # a chain ends with an odd word
    return struct.pack(f"<4IQI{defined}I", 1, first, 1, 0, 0, first if defined else 0, *ends)


def make_code_object(target: str, body: bytes, kernels: Sequence[Mapping[str, object]] = ()) -> bytes:
    """A whole ELF file for an AMD GPU with `body` for its instructions, put together byte by byte.

    `kernels` are the maps of its metadata (LLVM's AMDGPUUsage, "Code Object V4 Metadata").
    """
    names = b"\0.text\0.shstrtab\0"
    note = b""
    if kernels:
        content = msgspec.msgpack.encode({"amdhsa.version": [1, 2], "amdhsa.kernels": list(kernels)})
        note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content + bytes(-len(content) % 4)
    count = 3 if note else 2
    note_at = 64 + count * 56
    text_at = note_at + len(note)
    names_at = text_at + len(body)
    header = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)
    flags = PROCESSORS[target.partition(":")[0]]
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, names_at + len(names), flags, 64, 56, count, 64, 3, 2
    )
    header += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, text_at, text_at, 4096)
    header += struct.pack("<IIQQQQQQ", 1, 5, text_at, 4096, 4096, len(body), len(body), 4096)
    if note:
        header += struct.pack("<IIQQQQQQ", 4, 4, note_at, note_at, note_at, len(note), len(note), 4)
    sections = bytes(64)
    for name, kind, at, size in ((1, 1, text_at, len(body)), (7, 3, names_at, len(names))):
        sections += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
    return header + note + body + names + sections


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


def make_bundle(codes: Mapping[str, bytes], version: int = 0, method: int = 0) -> bytes:
    """A plain bundle, or with a version a compressed one (`method` 0: zlib, 1: zstd)."""
    return packed_bundle(codes, version, method) if version else plain_bundle(codes)


def make_dll(
    imports: Sequence[str] = (),
    delayed: Sequence[str] = (),
    *,
    name: str = "",
    old_delayed: Sequence[str] = (),
    sections: Mapping[str, bytes] | None = None,
    machine: int = 0x8664,
    exports: Sequence[str] = (),
    functions: Mapping[str, Sequence[str]] | None = None,
    dotnet: int | None = None,
) -> bytes:
    """A DLL put together byte by byte.

    `functions` are those that it imports of a DLL, `dotnet` the flags of a .NET assembly.
    """
    functions = functions or {}
    rows = (
        len(imports) + len(delayed) + len(old_delayed) + len(exports) + sum(map(len, functions.values())) + 4
    )
    body = bytearray(256 * rows)
    strings = bytearray()

    def text(value: str) -> int:
        return put(value.encode() + b"\0")

    def put(data: bytes) -> int:
        strings.extend(data)
        return DLL_SECTION_AT + len(body) + len(strings) - len(data)

    def looked_up(dll: str) -> int:
        places = [put(b"\0\0" + function.encode() + b"\0") for function in functions.get(dll, ())]
        return put(struct.pack(f"<{len(places) + 1}Q", *places, 0))

    import_rows = b"".join(struct.pack("<IIIII", looked_up(n), 0, 0, text(n), 1) for n in imports) + bytes(20)
    delay_rows = b"".join(struct.pack("<IIIIIIII", 1, text(n), *(0,) * 6) for n in delayed)
    delay_rows += b"".join(
        struct.pack("<IIIIIIII", 0, (DLL_BASE + text(n)) & 0xFFFFFFFF, *(0,) * 6) for n in old_delayed
    )
    delay_rows += bytes(32)
    named = put(struct.pack(f"<{len(exports)}I", *map(text, exports))) if exports else 0
    export = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, text(name), 0, 0, len(exports), 0, named, 0)
    header = struct.pack("<IHHIII", 72, 2, 5, 0, 0, dotnet or 0)
    tables = {}
    at = 0
    for index, data in (
        (0, export if name or exports else b""),
        (1, import_rows),
        (13, delay_rows),
        (14, header if dotnet is not None else b""),
    ):
        body[at : at + len(data)] = data
        tables[index] = (DLL_SECTION_AT + at if data else 0, len(data))
        at += len(data)
    parts = {".rdata": bytes(body) + bytes(strings), **(sections or {})}
    directories = b"".join(struct.pack("<II", *tables.get(index, (0, 0))) for index in range(16))
    optional = struct.pack("<H", 0x20B) + bytes(22) + struct.pack("<Q", DLL_BASE & 0xFFFFFFFF) + bytes(76)
    optional = optional[:108] + struct.pack("<I", 16) + directories
    header = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    header += struct.pack("<HHIIIHH", machine, len(parts), 0, 0, 0, len(optional), 0x2000)
    place = len(header) + len(optional) + 40 * len(parts)
    table, blobs, address = b"", b"", DLL_SECTION_AT
    for title, data in parts.items():
        table += struct.pack(
            "<8sIIIIIIHHI", title.encode(), len(data), address, len(data), place + len(blobs), 0, 0, 0, 0, 0
        )
        blobs += data
        address += 0x100000
    return header + optional + table + blobs


def make_macho(
    needed: Sequence[str] = (),
    *,
    machine: int = 0x0100000C,
    kind: int = 6,
    name: str = "",
    weak: Sequence[str] = (),
    run_paths: Sequence[str] = (),
    minimum: tuple[int, int] = (11, 0),
    defined: Sequence[str] = (),
    wanted: Sequence[str] = (),
    platform: int = 1,
    signed: bool = True,
    code: bytes = b"",
) -> bytes:
    """A Mach-O file for arm64, or the CPU that `machine` says, put together byte by byte.

    `platform` is that of LC_BUILD_VERSION; a signature is named, and has no bytes. `code` is what the section
    for it holds.
    """

    def command(number: int, head: bytes, text: str = "") -> bytes:
        data = head + text.encode() + b"\0"
        data += bytes(-(8 + len(data)) % 8)
        return struct.pack("<II", number, 8 + len(data)) + data

    def library(number: int, path: str) -> bytes:
        return command(number, struct.pack("<IIII", 24, 2, 0x10000, 0x10000), path)

    strings, symbols = bytearray(b"\0"), b""
    for names, bits in ((defined, 0x0F), (wanted, 0x01)):
        for symbol in names:
            symbols += struct.pack("<IBBHQ", len(strings), bits, 1, 0, 0)
            strings += b"_" + symbol.encode() + b"\0"
    commands = [command(0x32, struct.pack("<IIII", platform, minimum[0] << 16 | minimum[1] << 8, 0, 0))]
    commands += [command(0x1D, bytes(8))] if signed else []
    commands += [library(0xD, name)] if name else []
    commands += [library(0xC, path) for path in needed]
    commands += [library(0x80000018, path) for path in weak]
    commands += [command(0x8000001C, struct.pack("<I", 12), path) for path in run_paths]
    size = sum(map(len, commands)) + 24 + (152 if code else 0)
    at = 32 + size + len(code)
    section = struct.pack("<16s16sQQ8I", b"__text", b"__TEXT", 0, len(code), 32 + size, *(0,) * 7)
    segment = struct.pack("<II16s4Q4I", 0x19, 152, b"__TEXT", 0, 0, 0, 0, 7, 5, 1, 0)
    commands += [segment + section] if code else []
    count = len(symbols) // 16
    commands += [struct.pack("<6I", 2, 24, at, count, at + len(symbols), len(strings))]
    header = struct.pack("<IiiIIIII", 0xFEEDFACF, machine, 0, kind, len(commands), size, 0, 0)
    return header + b"".join(commands) + code + symbols + bytes(strings)


def signed(data: bytes) -> bytes:
    """A Mach-O file of `make_macho` with the signature that it names, which has the hash of each page."""
    at, pages = len(data), range(0, len(data), 4096)
    head = struct.pack(
        ">9I4B", 0xFADE0C02, 44 + 32 * len(pages), 0x20001, 2, 44, 0, 0, len(pages), at, 32, 2, 0, 12
    )
    size = 20 + 44 + 32 * len(pages)
    place = data.index(struct.pack("<II", 0x1D, 24))
    data = data[: place + 8] + struct.pack("<II", at, size) + data[place + 16 :]
    hashes = b"".join(hashlib.sha256(data[start : start + 4096]).digest() for start in pages)
    return data + struct.pack(">5I", 0xFADE0CC0, size, 1, 0, 20) + head + bytes(4) + hashes


def make_universal(*parts: bytes) -> bytes:
    """A universal Mach-O file of files for one machine each."""
    rows, body = b"", b""
    for part in parts:
        begin = 8 + 20 * len(parts) + len(body)
        rows += struct.pack(">IIIII", *struct.unpack("<II", part[4:12]), begin, len(part), 0)
        body += part
    return struct.pack(">II", 0xCAFEBABE, len(parts)) + rows + body
