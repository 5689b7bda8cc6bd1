"""A stand-in for HIP's runtime, as far as it is concerned with finding device code.

A library in C takes the place of `libamdhip64`. It is handed the wrappers by the constructors of whatever is
loaded, as the real one is, and writes down at the end what is in memory there. `code_for` then goes the way
from a wrapper to the code for one GPU, by our own reader of archives; everything before that is independent
of what it judges.

`codes_by_amd` goes the whole way with AMD's own loader, librocm_kpack of ROCm/rocm-kpack, where
CAIRN_TEST_KPACK says where one lies: it hands it what HIP's runtime hands it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cairn import targets
from cairn.formats.kpack import Archive
from cairn.formats.view import FileView

STAND_IN = r"""
#include <stdio.h>
unsigned char *seen[9999];
int count;
void **__hipRegisterFatBinary(void *wrapper) {
  seen[count++] = wrapper;
  return (void **)seen;
}
static void hex(unsigned char *at, long size) {
  for (; size > 0; size--) printf("%02x", *at++);
}
__attribute__((destructor)) static void show(void) {
  for (int i = 0; i < count; i++) {
    unsigned char *to = *(unsigned char **)(seen[i] + 8);
    hex(seen[i], 24);
    printf(" ");
    hex(to, 4096 - (long)to % 4096);
    printf("\n");
  }
}
#define NOTHING(name) long name() { return 0; }
NOTHING(__hipUnregisterFatBinary) NOTHING(__hipRegisterFunction) NOTHING(__hipRegisterVar)
NOTHING(__hipPushCallConfiguration) NOTHING(__hipPopCallConfiguration) NOTHING(hipLaunchKernel)
NOTHING(hipMalloc) NOTHING(hipGetLastError) NOTHING(hipGetDeviceCount) NOTHING(hipGetErrorString)
NOTHING(hipFree) NOTHING(hipMemcpy) NOTHING(hipMemset) NOTHING(hipDeviceSynchronize)
"""
LIBRARY = r"""
struct wrapper { unsigned magic, version; const void *code; void *unused; };
extern void **__hipRegisterFatBinary(void *);
__asm__(".section .hip_fatbin,\"a\",@progbits\n.p2align 12\n");
%s
__asm__(".text");
static const char *told = "the text of this library";
static int zeros[5000];
const char *tell(int number) { return zeros[number]++ ? 0 : told; }
__attribute__((constructor)) static void load(void) { %s }
int main(void) { return tell(1) != told; }
"""
ONE_BUNDLE = r"""
__asm__(".p2align 12\n.hidden bundle_{0}\n.globl bundle_{0}\nbundle_{0}:\n.incbin \"{1}\"\n");
extern const char bundle_{0}[];
"""
ONE_WRAPPER = r"""
static struct wrapper wrapper_{0} __attribute__((section(".hipFatBinSegment"), aligned(8), used)) = {{
  0x48495046, 1, bundle_{1}, 0 }};
"""
# Loads a library as Python would, and asks AMD's loader for the code of every wrapper that it registers: with
# the file that the reference lies in, the ordinal, and the names of the GPU for itself, the exact
# one first (ROCm/rocm-kpack, runtime/include/rocm_kpack/kpack.h).
_AMDS_LOADER = r"""
import ctypes, json, os, struct, sys
loader, stand_in, library, names, shift = json.load(sys.stdin)
stand_in, kpack = ctypes.CDLL(stand_in, ctypes.RTLD_GLOBAL), ctypes.CDLL(loader)
ctypes.CDLL(library)
cache = ctypes.c_void_p()
assert kpack.kpack_cache_create(ctypes.byref(cache)) == 0
targets = (ctypes.c_char_p * len(names))(*map(str.encode, names))
seen = (ctypes.c_void_p * 9999).in_dll(stand_in, "seen")
answers = []
for number in range(ctypes.c_int.in_dll(stand_in, "count").value):
    magic, version, reference, ordinal = struct.unpack("<IIQQ", ctypes.string_at(seen[number], 24))
    path, at = ctypes.create_string_buffer(4096), ctypes.c_size_t()
    reference = ctypes.c_void_p(reference)
    assert magic == 0x4B504948
    assert kpack.kpack_discover_binary_path(reference, path, ctypes.c_size_t(4096), ctypes.byref(at)) == 0
    assert os.path.samefile(path.value, library)
    code, size = ctypes.c_void_p(), ctypes.c_size_t()
    ordinal = ctypes.c_uint32(ordinal + shift)
    count = ctypes.c_size_t(len(names))
    answer = kpack.kpack_load_code_object(
        cache, reference, path, ordinal, targets, count, ctypes.byref(code), ctypes.byref(size))
    answers.append(ctypes.string_at(code, size.value).hex() if answer == 0 else answer)
sys.stdout.flush()
os.write(3, json.dumps(answers).encode())
"""
# Its answers where a GPU has no code: of no such kernel, no archive, no such target.
_NO_CODE = (5, 13, 14)


@dataclass(frozen=True)
class Registered:
    """What stood in memory where a constructor said that a wrapper is."""

    magic: int
    version: int
    ordinal: int
    target: bytes


def compiler() -> str:
    """A C compiler, or the test is skipped."""
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None or not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        pytest.skip("not here: a C compiler for x86-64 Linux")
    return found


def build_stand_in(folder: Path, name: str = "libamdhip64.so.5") -> Path:
    """The stand-in, under the name that libraries ask for."""
    (folder / "stand_in.c").write_text(STAND_IN)
    path = folder / name
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}"]
    subprocess.run([compiler(), *flags, "-o", path, folder / "stand_in.c"], check=True)
    return path


def build_library(
    path: Path, bundles: list[bytes], leads: list[int], stand_in: Path, *options: str, program: bool = False
) -> Path:
    """A library or a program with these bundles and a wrapper for each of `leads`, linked as options say."""
    folder = path.parent / f"{path.name}.parts"
    folder.mkdir(parents=True)
    text = ""
    for number, bundle in enumerate(bundles):
        (folder / f"{number}.bin").write_bytes(bundle)
        text += ONE_BUNDLE.format(number, folder / f"{number}.bin")
    # What the text has before is in the section of the code; wrappers are of data.
    wrappers = "".join(ONE_WRAPPER.format(number, lead) for number, lead in enumerate(leads))
    calls = "".join(f"__hipRegisterFatBinary(&wrapper_{number});" for number in range(len(leads)))
    (folder / "x.c").write_text(LIBRARY % (text + wrappers, calls))
    kind = ["-pie", "-fPIE"] if program else ["-shared", "-fPIC"]
    # Where -fuse-ld=lld looks first: that of zig, which is here wherever the tests are.
    lld = folder / "ld.lld"
    lld.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ziglang ld.lld "$@"\n')
    lld.chmod(0o755)
    # Wrappers in the order of the text, as the compiler of HIP leaves them.
    command = [compiler(), "-O1", f"-B{folder}", "-fno-toplevel-reorder", *kind, *options]
    subprocess.run([*command, "-o", path, folder / "x.c", stand_in], check=True)
    shutil.rmtree(folder)
    return path


def load(path: Path, stand_in: Path) -> list[Registered]:
    """Load a library, or start a program, in a process of its own; what it has registered."""
    env = {**os.environ, "LD_LIBRARY_PATH": f"{stand_in.parent}:{path.parent}"}
    # First the stand-in: a library with an RPATH would find the runtime that it was made for.
    loads = f"import ctypes; ctypes.CDLL({str(stand_in)!r}); ctypes.CDLL({str(path)!r})"
    command = (
        [str(path)] if os.access(path, os.X_OK) and "lib" not in path.name else [sys.executable, "-c", loads]
    )
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    rows = [[bytes.fromhex(part) for part in line.split()] for line in done.stdout.splitlines()]
    found = []
    for wrapper, target in rows:
        magic, version, _, ordinal = struct.unpack("<IIQQ", wrapper)
        found.append(Registered(magic, version, ordinal, target))
    return found


def reference_in(data: bytes) -> dict[str, Any]:
    """The map at the beginning of some bytes, whatever follows: of the MessagePack that it takes."""

    def value(at: int) -> tuple[Any, int]:
        first = data[at]
        if first & 0xE0 == 0xA0 or first in (0xD9, 0xDA):
            wide = {0xD9: 1, 0xDA: 2}.get(first, 0)
            size = int.from_bytes(data[at + 1 : at + 1 + wide], "big") if wide else first & 0x1F
            at += 1 + wide
            return data[at : at + size].decode(), at + size
        count, items = (first & 0xF) * (2 if first & 0xF0 == 0x80 else 1), []
        assert first & 0xF0 in (0x80, 0x90)
        at += 1
        for _ in range(count):
            item, at = value(at)
            items.append(item)
        return (dict(zip(items[::2], items[1::2], strict=True)) if first < 0x90 else items), at

    found = value(0)[0]
    assert isinstance(found, dict)
    return found


def expansions(target: str) -> Iterator[str]:
    """What `@GFXARCH@` stands for on a GPU, in the order in which it is tried."""
    processor, *features = target.split(":")
    for size in range(len(features), -1, -1):
        for some in itertools.combinations(features, size):
            yield ":".join((processor, *some))


def code_for(library: Path, wrapper: Registered, gpu: str) -> bytes | None:
    """The code that a GPU gets through one wrapper, as the runtime looks for it.

    The first archive that exists counts, also where it lacks what is wanted.
    """
    assert (wrapper.magic, wrapper.version) == (0x4B504948, 1)
    reference = reference_in(wrapper.target)
    for target in expansions(gpu):
        for search_path in reference["kpack_search_paths"]:
            path = library.parent / search_path.replace("@GFXARCH@", target)
            if path.exists():
                with path.open("rb") as file:
                    archive = Archive.open(FileView(file), path.name)
                    row = archive.table.toc.get(f"{reference['kernel_name']}#{wrapper.ordinal}", {})
                    return archive.read(row[target]) if target in row else None
    return None


def codes_by_amd(library: Path, stand_in: Path, gpu: str, *, shift: int = 0) -> list[bytes | None]:
    """The code that a GPU gets through each wrapper of a library, by AMD's own loader.

    The test is skipped where CAIRN_TEST_KPACK does not say where a librocm_kpack.so lies.

    Args:
        library: whose constructors register the wrappers.
        stand_in: which takes the place of HIP's runtime.
        gpu: the GPU.
        shift: is added to the ordinals, to ask for what belongs to a different wrapper.
    """
    loader = os.environ.get("CAIRN_TEST_KPACK")
    if not loader:
        pytest.skip("not here: CAIRN_TEST_KPACK names no librocm_kpack.so, built from ROCm/rocm-kpack")
    processor, *features = gpu.split(":")
    generic = [name for name, members in targets.generic_targets().items() if processor in members]
    names = [":".join((name, *features)) for name in (processor, *generic)]
    asked = json.dumps([loader, str(stand_in), str(library), names, shift])
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROCM_KPACK_")}
    # The stand-in writes to the standard output when it is unloaded: the answer goes a way of its own.
    command = ["bash", "-c", 'exec "$0" -c "$1" 3>&1 >/dev/null', sys.executable, _AMDS_LOADER]
    env["LD_LIBRARY_PATH"] = f"{stand_in.parent}:{library.parent}"
    done = subprocess.run(command, input=asked, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert all(isinstance(answer, str) or answer in _NO_CODE for answer in answers)
    return [bytes.fromhex(answer) if isinstance(answer, str) else None for answer in answers]


def codes_by_us(library: Path, stand_in: Path, gpu: str, *, shift: int = 0) -> list[bytes | None]:
    """The same by our own reader of archives."""
    wrappers = (
        dataclasses.replace(wrapper, ordinal=wrapper.ordinal + shift) for wrapper in load(library, stand_in)
    )
    return [code_for(library, wrapper, gpu) for wrapper in wrappers]


def codes_before(path: Path) -> list[dict[str, bytes]]:
    """What each plain bundle of a library has for each target."""
    data = path.read_bytes()
    rows = []
    at = data.find(b"__CLANG_OFFLOAD_BUNDLE__")
    while at >= 0:
        row, cursor = {}, at + 32
        for _ in range(int.from_bytes(data[at + 24 : at + 32], "little")):
            offset, size, length = (
                int.from_bytes(data[cursor + n : cursor + n + 8], "little") for n in (0, 8, 16)
            )
            name = data[cursor + 24 : cursor + 24 + length].decode()
            if name.startswith("hip"):
                row[name.rpartition("--")[2]] = data[at + offset : at + offset + size]
            cursor += 24 + length
        rows.append(row)
        at = data.find(b"__CLANG_OFFLOAD_BUNDLE__", at + 1)
    return rows
