"""What is wrong in small wheels, one thing each, and what looks wrong in good ones."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import WheelError
from cairn.wheels.contents import providers
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, judge
from helpers.formats import make_dll, make_elf, make_macho, make_universal, signed
from helpers.wheels import Change, MakeWheel, altered, build_wheel, cairn_wheel

LINUX = ("cp312-cp312-manylinux_2_28_x86_64",)
ABI3 = ("cp39-abi3-manylinux_2_28_x86_64",)
WINDOWS = ("cp312-cp312-win_amd64",)
WINDOWS_ABI3 = ("cp39-abi3-win_amd64",)
MACOS = ("cp312-cp312-macosx_11_0_arm64",)
UNIVERSAL = ("cp312-cp312-macosx_11_0_universal2",)
MACOS_ABI3 = ("cp39-abi3-macosx_11_0_arm64",)
IOS = ("cp313-cp313-ios_13_0_arm64_iphoneos",)
ANDROID = ("cp313-cp313-android_24_arm64_v8a",)
X86_64, ARM64 = 0x01000007, 0x0100000C
BOTH, BOTH_ON_WINDOWS = (
    tuple(f"{python}-{abi}-{platform}" for python in ("cp311", "cp312") for abi in ("cp311", "cp312"))
    for platform in ("manylinux_2_28_x86_64", "win_amd64")
)
ARM = "cp312-cp312-manylinux_2_28_aarch64"
ANY_PYTHON, ANY_ARM = ("py3-none-manylinux_2_28_x86_64",), "py3-none-manylinux_2_28_aarch64"
CONFLICT = b"import os\n<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> topic\n"

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
SO = "demo/m.cpython-312-x86_64-linux-gnu.so"
CACHED, BYTECODE = "__pycache__/__init__.cpython-311.pyc", b"\xa7\r\r\n" + bytes(12)  # of Python 3.11
PYD = "demo/m.cp312-win_amd64.pyd"
DARWIN = "demo/m.cpython-312-darwin.so"
MAIN = b"def main(): ...\n"
INIT = {"demo/__init__.py": MAIN}


def elf(**more: Any) -> bytes:
    return make_elf(defined=("PyInit_m",), **more)


def of_type(kind: int) -> bytes:
    """An ELF file with that e_type."""
    data = make_elf()
    return data[:16] + kind.to_bytes(2, "little") + data[18:]


def needing(library: str, **more: Any) -> dict[str, bytes]:
    """A module that needs `libx.so.1`, and a file for it."""
    return {SO: elf(needed=("libx.so.1",), **more), library: make_elf(soname="libx.so.1")}


def dll(*needed: str, **more: Any) -> bytes:
    return make_dll(needed or ("python3.dll",), exports=("PyInit_m",), **more)


def macho(*needed: str, **more: Any) -> bytes:
    return make_macho(needed, defined=("PyInit_m",), **more)


NATIVE = "@rpath/libx.dylib"
APP = "demo/App.app/Contents/MacOS/App"


def lost(library: str, *run_paths: str) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """A module of macOS that needs a library, which lies beside it."""
    return MACOS, {DARWIN: macho(library, run_paths=run_paths), "demo/libx.dylib": make_macho()}


LARGE = b"LARGE = 'as what is generated may be'\n" * 30_000  # 1.1 MB
NEXT = make_dll(exports=("PyInit_n",))
SIGNED = signed(macho(code=bytes(range(256)) * 300))
ELF, DLL, MACHO = elf(), make_dll(exports=("PyInit_m",)), macho()
FLAGS_1, PIE, NOT_OPENED = 0x6FFFFFFB, 0x08000000, 0x40
ASTRAY = struct.pack("<IIQQQQQQ", 1, 4, 0, 1 << 20 | 16, 0, 0, 0, 4096)  # a PT_LOAD between two pages


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def program(dll_file: bytes) -> bytes:
    """A DLL without the bit that says so."""
    at = struct.unpack_from("<I", dll_file, 0x3C)[0] + 22
    return patched(dll_file, at, struct.pack("<H", struct.unpack_from("<H", dll_file, at)[0] & ~0x2000))


NEWER_CALLS = {"python3.dll": ("PyObject_CallNoArgs",)}

# By the code of the finding that there must be: wheel tags and files, of which the first is the one found.
SPOILS: dict[str, dict[str, tuple[tuple[str, ...], dict[str, bytes | None]]]] = {
    "binary-malformed": {
        "an empty module": (LINUX, {SO: b""}),
        "a module of zeros": (LINUX, {SO: bytes(5000)}),
        "a pointer of Git LFS for a module": (LINUX, {SO: POINTER}),
        "a pointer of Git LFS for data": (LINUX, {"demo/weights.bin": POINTER}),
        "a link that became a text": (LINUX, {"demo/libx.so.1": b"libx.so.1.2"}),
        "an empty module of Windows": (WINDOWS, {PYD: b""}),
        "a module of zeros of Windows": (WINDOWS, {PYD: bytes(5000)}),
        "an empty module of macOS": (MACOS, {DARWIN: b""}),
        "an empty library of macOS": (MACOS, {"demo/libx.dylib": b""}),
        "a Mach-O file that is cut off": (MACOS, {DARWIN: MACHO[:60]}),
        "an object file for a library": (MACOS, {"demo/x.dylib": make_macho(kind=1)}),
        "an object file for a library of Linux": (LINUX, {"demo/x.so": of_type(1)}),
        "what a program left when it crashed": (LINUX, {"demo/x.so": of_type(4)}),
        "a library of FreeBSD": (LINUX, {SO: patched(ELF, 7, b"\x09")}),
        "an ABI that glibc has not": (LINUX, {SO: patched(ELF, 8, b"\x09")}),
        "a version of ELF that is none": (LINUX, {SO: patched(ELF, 20, bytes(4))}),
        "a segment between two pages": (LINUX, {SO: patched(ELF, 64 + 2 * 56, ASTRAY)}),
        "one that may not be opened": (
            LINUX,
            {
                "demo/libx.so": make_elf(pie=True).replace(
                    struct.pack("<QQ", FLAGS_1, PIE), struct.pack("<QQ", FLAGS_1, NOT_OPENED)
                )
            },
        ),
        "a module that is packed": (LINUX, {SO: gzip.compress(ELF)}),
        "a program of Windows for a module": (WINDOWS, {PYD: program(DLL)}),
        "a module of Windows that is cut off": (WINDOWS, {PYD: dll(sections={".reloc": b"x" * 600})[:-100]}),
        "a program of macOS for a module": (MACOS, {DARWIN: macho(kind=2)}),
        "no signature on Apple silicon": (MACOS, {DARWIN: macho(signed=False)}),
        "a signature of what it was before": (MACOS, {DARWIN: patched(SIGNED, -40_000, b"\1")}),
        "a signature of what half of it was": (
            UNIVERSAL,
            {DARWIN: make_universal(macho(machine=X86_64), patched(SIGNED, 5_000, b"\1"))},
        ),
        "zeros for its code": (LINUX, {SO: elf(sections={".text": bytes(5000), ".data": b"x"})}),
        "zeros for the code of a large one": (
            LINUX,
            {SO: elf(sections={".text": bytes(3 << 20), ".rodata": bytes(range(256)) * 9000})},
        ),
        "zeros for its code on Windows": (WINDOWS, {PYD: dll(sections={".text": bytes(5000)})}),
        "zeros for its code on macOS": (MACOS, {DARWIN: macho(code=bytes(5000))}),
    },
    "module-abi": {
        "no stable ABI": (ABI3, {"demo/m.abi3.so": elf(symbols=("PyFrame_New", "PyList_New"))}),
        "private API": (ABI3, {"demo/m.abi3.so": elf(symbols=("_PyUnicode_Ready",))}),
        "API of a later Python": (ABI3, {"demo/m.abi3.so": elf(symbols=("PyUnicode_AsUTF8AndSize",))}),
        "API of a later Python of Windows": (WINDOWS_ABI3, {"demo/m.pyd": dll(functions=NEWER_CALLS)}),
        "linked with another Python": (WINDOWS, {PYD: dll("python311.dll")}),
        "no module for a second Python": (BOTH, {SO: ELF}),
        "no module for a second Python of Windows": (BOTH_ON_WINDOWS, {PYD: DLL}),
        "named as a library of Windows": (WINDOWS, {"demo/m.DLL": DLL, PYD.replace("/m.", "/n."): NEXT}),
        "named as a library of macOS": (MACOS, {"demo/m.dylib": MACHO}),
        "bytecode of one Python": ((), {"demo/a.pyc": BYTECODE}),
        "bytecode of another Python": (("cp312-none-any",), {"demo/a.pyc": BYTECODE}),
        "no stable ABI on macOS": (MACOS_ABI3, {"demo/m.abi3.so": macho(wanted=("PyFrame_New",))}),
    },
    "executable-stack": {"an executable stack": (LINUX, {SO: elf(stack=7)})},
    "module-init": {
        "none": (LINUX, {SO: make_elf(defined=("helper",))}),
        "of a different name": (LINUX, {SO: make_elf(defined=("PyInit_n",))}),
        "none in a module of Windows": (WINDOWS, {PYD: make_dll()}),
        "none in a module of macOS": (MACOS, {DARWIN: make_macho()}),
    },
    "name-forbidden": {
        "a device's name": ((), {"demo/aux.py": b""}),
        "a device's name in Windows' wheel": (WINDOWS, {"demo/CON": b"", PYD: DLL}),
        "a folder named as a device": ((), {"demo/nul/a.py": b""}),
        "a name that ends in a dot": ((), {"demo/a.": b""}),
        "a name that ends in a space": ((), {"demo/a ": b""}),
        "a colon in a name": ((), {"demo/a:b.txt": b""}),
        "a star in a name": (WINDOWS, {"demo/a*.txt": b"", PYD: DLL}),
        "a path too long for Windows": (WINDOWS, {f"demo/{'a/' * 120}b.py": b"", PYD: DLL}),
    },
    "name-twice": {
        "names that differ in case": ((), {"demo/a.py": b"", "demo/A.py": b""}),
        "a script and an entry point": ((), {"demo-1.0.data/scripts/demo": b"#!python\n"}),
        "one place of two folders": ((), {"demo/a.py": b"", "demo-1.0.data/purelib/demo/a.py": b""}),
        "one place on Linux": (LINUX, {SO: ELF, f"demo-1.0.data/platlib/{SO}": ELF}),
        "a file and a folder": (MACOS, {"demo/a": b"", "demo/A/x/y": b""}),
    },
    "machine": {
        "a module for a different machine": (MACOS, {DARWIN: macho(machine=X86_64)}),
        "half of a universal module": (UNIVERSAL, {DARWIN: MACHO}),
        "one of two machines": ((*MACOS, "cp312-cp312-macosx_11_0_x86_64"), {DARWIN: MACHO}),
        "a module of Linux for macOS": (MACOS, {DARWIN: ELF}),
        "no module for a second machine": ((*LINUX, ARM), {SO: ELF}),
        "a module for the simulator of iOS": (MACOS, {DARWIN: macho(platform=7)}),
        "a module for Mac Catalyst": (MACOS, {DARWIN: macho(platform=6)}),
        "no library for a second machine": ((*ANY_PYTHON, ANY_ARM), {"demo/libx.so": make_elf()}),
        "a module of x86-64 for Android on ARM": (ANDROID, {"demo/m.abi3.so": elf(needed=("liblog.so",))}),
        "no module for a second machine of Windows": ((*WINDOWS, "cp312-cp312-win_arm64"), {PYD: DLL}),
    },
    "symbols-too-new": {"a processor that the tag does not ask for": (LINUX, {SO: elf(level=4)})},
    "macos-too-new": {"a newer macOS": (MACOS, {DARWIN: macho(minimum=(13, 0))})},
    "needed": {
        "a library of Homebrew": (MACOS, {DARWIN: macho("/opt/homebrew/opt/x/lib/libx.dylib")}),
        "Python's debug build": (WINDOWS, {PYD: dll("python3_d.dll")}),
        "a debug build of this Python": (WINDOWS, {PYD: dll("python312_d.dll")}),
        "a debug run time": (WINDOWS, {PYD: dll("VCRUNTIME140D.dll")}),
        "a debug run time of C": (WINDOWS, {PYD: DLL, "demo/x.dll": make_dll(("ucrtbased.dll",))}),
        "by the builder's path": lost("/Users/me/libx.dylib"),
        "by a plain name": lost("libx.dylib"),
        "from the folder of Python": lost("@executable_path/libx.dylib"),
        "without a run path": lost(NATIVE),
        "by a run path that leads elsewhere": lost(NATIVE, "@loader_path/lib"),
        "under the SONAME, which is not the name of the file": (
            LINUX,
            needing("demo/libx.so", runpath="$ORIGIN"),
        ),
        "by DT_RPATH beside DT_RUNPATH": (
            LINUX,
            needing("demo/libx.so.1", rpath="$ORIGIN", runpath="$ORIGIN/lib"),
        ),
        "by DT_RPATH of a module that does not load it": (
            LINUX,
            {
                SO: elf(needed=("libx.so.1",)),
                "demo/libx.so.1": make_elf(soname="libx.so.1"),
                "demo/liby.so.1": make_elf(soname="liby.so.1"),
                SO.replace("/m.", "/n."): make_elf(
                    defined=("PyInit_n",), needed=("liby.so.1",), rpath="$ORIGIN"
                ),
            },
        ),
        "by a run path that is for the file itself": (
            LINUX,
            {
                "demo/lib/libx.so.1": make_elf(needed=("liby.so.1",)),
                "demo/lib/liby.so.1": make_elf(),
                SO: elf(needed=("libx.so.1",), runpath="$ORIGIN/lib"),
            },
        ),
        "out of the wheel": lost("@loader_path/../../../libx.dylib"),
        "a library that is not shipped": (MACOS, {DARWIN: macho("@rpath/libx.dylib")}),
    },
    "python-tag": {
        tag: ((tag,), INIT)
        for tag in (
            *("py3-abi3-manylinux_2_28_x86_64", "cp312-cp312-any", "cp312-cp311-manylinux_2_28_x86_64"),
            *("cp312-cp312-macosx_11_3_arm64", "cp312-cp312-macosx_10_9_arm64"),
            *("py3-none-manylinux_3_1_x86_64", "py3-none-manylinux2010_aarch64"),
        )
    },
    "data-folder": {"a folder below scripts": ((), {"demo-1.0.data/scripts/sub/tool": b"#!python\n"})},
    "overwrites": {
        "metadata of another distribution": ((), {"demo-1.0.data/purelib/x-1.0.dist-info/METADATA": b""}),
        "metadata of an egg": ((), {"x.egg-info/PKG-INFO": b"Name: x\n"}),
    },
    "rpath": {
        "of the machine that built it": lost(NATIVE, "/Users/me/lib"),
        "out of site-packages": lost(NATIVE, "@loader_path/../../lib"),
        "one of Homebrew before that of the wheel": lost(NATIVE, "/opt/homebrew/lib", "@loader_path"),
        "two equal ones": lost(NATIVE, "@loader_path", "@loader_path"),
        "an empty element, which is the current folder": (LINUX, {SO: elf(runpath="$ORIGIN/../demo.libs:")}),
        "above the folder of libraries": (LINUX, {SO: elf(runpath="$ORIGIN/../../../../x")}),
    },
    "script-interpreter": {
        interpreter: ((), {"demo-1.0.data/scripts/run": f"#!{interpreter}\nimport demo\n".encode()})
        for interpreter in (
            *("/opt/python/cp312-cp312/bin/python", "/home/me/my project/.venv/bin/python3.12 -s"),
            *("C:\\build\\python.exe", "/bin/sh\n'''exec' /build/venv/bin/python3 \"$0\" \"$@\"\n' '''"),
        )
    },
    "member-missing": {
        "a module that the package imports": ((), {"demo/__init__.py": b"from .core import run\n" + MAIN}),
        "one by its whole name": ((), {"demo/__init__.py": b"import os, demo.core\n" + MAIN}),
        "one by its name alone": (
            (),
            {
                "demo/a.py": b"from . import (\n    core,  # all of it\n)\ndef f(): ...\n",
                "demo/__init__.py": b"from .a import f\n" + MAIN,
            },
        ),
        "one that is imported at each start": ((), {"demo.pth": b"# All of it\nimport demo_start\n"}),
        "one behind a large module, of which nothing but the module is taken": (
            (),
            {
                "demo/b.py": b"from .missing import f\n# " + b"x" * 60_000,
                "demo/a.py": b"# " + b"x" * 100_000,
                "demo/__init__.py": b"from . import a\nfrom .b import f\n" + MAIN,
            },
        ),
        "a name of a folder that is no package": (
            (),
            {
                "demo/__init__.py": b"from . import a\n" + MAIN,
                "demo/a.py": b"from .sub import run\n",
                "demo/sub/b.py": b"def run(): ...\n",
            },
        ),
        "all names of a folder that is no package": (
            (),
            {"demo/__init__.py": b"from .sub import *\n" + MAIN, "demo/sub/b.py": b"def run(): ...\n"},
        ),
        "a name that a module does not define": (
            (),
            {
                "demo/__init__.py": b"from .a import run\n" + MAIN,
                "demo/a.py": b"from .b import run\n",
                "demo/b.py": b"",
            },
        ),
        "a package below the folder of its sources": (
            (),
            {"src/demo/__init__.py": b"from . import a\n", "src/demo/a.py": b"", "demo/__init__.py": None},
        ),
        "a package below the folder of a build": (
            (),
            {"build/lib.linux-x86_64-cpython-312/demo/__init__.py": b"", "demo/__init__.py": None},
        ),
        "a package below the folder of an sdist": (
            (),
            {"demo-1.0/demo/__init__.py": b"", "demo-1.0/setup.py": b"", "demo/__init__.py": None},
        ),
        "a package below a folder of its name": (
            (),
            {"demo/demo/__init__.py": b"from . import a\n", "demo/demo/a.py": b"", "demo/__init__.py": None},
        ),
        "bytecode in the folder for it": ((), {f"demo/{CACHED}": BYTECODE, "demo/__init__.py": None}),
        "modules in the data folder of one Python": (
            (),
            {
                "demo-1.0.data/data/lib/python3.11/site-packages/demo/__init__.py": b"",
                "demo/__init__.py": None,
            },
        ),
        "modules in a folder for modules": (
            (),
            {"lib/python3.11/site-packages/x.py": b"", "demo/__init__.py": None, "demo/py.typed": b""},
        ),
        "one that a module imports": (
            (),
            {"demo/a.py": b"from .b.c import x\n", "demo/__init__.py": b"from demo.a import x\n" + MAIN},
        ),
    },
    "python-source": {
        "Python 2": ((), {"demo/__init__.py": b"print 'done'\n"}),
        "tabs behind spaces": (
            (),
            {
                "demo/a.py": b"def f():\n        x = 1\n\treturn x\n",
                "demo/__init__.py": b"from .a import f\n" + MAIN,
            },
        ),
        "zeros": ((), {"demo/a.py": bytes(999)}),
        "bytes of an encoding that it does not name": ((), {"demo/a.py": b"x = 'caf\xe9'\n"}),
        "a page of a server": ((), {"demo/a.py": b"\n<!DOCTYPE html>\n<html>Not found</html>\n"}),
        "what the package imports first, found once": (
            (),
            {
                "demo/a.py": b"import os\nprint(os.path.join('a',\n",
                "demo/__init__.py": b"from . import a\n" + MAIN,
            },
        ),
        "a line that is run at each start": ((), {"demo.pth": b"demo\nimport sys; if sys: pass\n"}),
        "one of several, in a folder that is merged": (
            (),
            {"demo-1.0.data/purelib/demo.pth": b"import os\nimport os, sys; print 'started'\n"},
        ),
        "zeros behind a beginning": ((), {"demo/a.py": b"import os\n" + bytes(4096)}),
        "cut off in a call": ((), {"demo/a.py": b"import os\nprint(os.path.join('a',\n"}),
        "cut off in a word": ((), {"demo/a.py": b"import os\n\ndef f():\n    return os.path."}),
        "cut off in a definition": ((), {"demo/a.py": b"import os\n\ndef f():"}),
        "cut off behind an operator": ((), {"demo/a.py": b"import os\nx = 1 +"}),
        "cut off in a docstring": ((), {"demo/a.py": b'import os\n\ndef f():\n    """It is'}),
        "cut off at the top": ((), {"a.py": b"def f(a,\n      b,\n"}),
        "markers of a conflict": ((), {"demo/a.py": CONFLICT}),
        "zeros in a large file": ((), {"demo/a.py": LARGE + bytes(4096)}),
        "cut off in a large file": ((), {"demo/a.py": LARGE + b"print(LARGE.join('a',\n"}),
        "markers of a conflict in a large file": ((), {"demo/a.py": LARGE + CONFLICT}),
        "markers of three sides": (
            (),
            {"demo/a.py": CONFLICT.replace(b"=======\n", b"||||||| base\nx = 0\n=======\n")},
        ),
    },
    "binary-in-pure-wheel": {
        "a library of macOS": ((), {"demo/libx.dylib": make_macho()}),
        "a module for one system": (("cp312-none-any",), {SO: ELF}),
        "a module for Windows alone": (("cp312-none-any",), {PYD: DLL}),
    },
}
ELSEWHERE = {"names that differ in case": "demo/A.py", **dict.fromkeys(SPOILS["binary-in-pure-wheel"], "")}
ELSEWHERE |= dict.fromkeys(
    ("a name that a module does not define", "a name of a folder that is no package"), "demo/a.py"
)
ELSEWHERE |= {spoil: "" for spoil in SPOILS["member-missing"] if " below " in spoil or "data folder" in spoil}
ELSEWHERE |= {"a debug run time of C": "demo/x.dll"}
ELSEWHERE |= {"one place of two folders": "demo-1.0.data/purelib/demo/a.py"}
ELSEWHERE |= {"modules in a folder for modules": ""}
ELSEWHERE |= {"one place on Linux": f"demo-1.0.data/platlib/{SO}"}
ELSEWHERE |= dict.fromkeys((*SPOILS["python-tag"], *SPOILS["overwrites"]), "")
ELSEWHERE |= {spoil: "" for spoils in SPOILS.values() for spoil in spoils if "a second" in spoil}


def wheel_of(make_wheel: MakeWheel, tags: tuple[str, ...], files: Mapping[str, bytes | None]) -> Path:
    """A wheel with a package; a file of it without content is left out."""
    tags = tags or ("py3-none-any",)
    files = {path: content for path, content in {**INIT, **files}.items() if content is not None}
    return make_wheel(tags=tags, files=files, requires=(), executables=(APP, DARWIN))


def found(wheel: Path, **more: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.member or "") for finding in judge(wheel, Expectation(**more)).findings]


@pytest.mark.parametrize(("code", "spoil"), [(code, spoil) for code in SPOILS for spoil in SPOILS[code]])
def test_a_spoil_is_the_one_finding(make_wheel: MakeWheel, code: str, spoil: str) -> None:
    tags, files = SPOILS[code][spoil]
    assert found(wheel_of(make_wheel, tags, files)) == [(code, ELSEWHERE.get(spoil, next(iter(files))))]


@pytest.mark.parametrize(
    ("init", "requires_python"),
    [
        (b"try:\n    from .core import run\nexcept ImportError:\n    run = None\n", ">=3.9"),
        (b'"""\nfrom .core import run\n"""\n', ">=3.9"),
        (b"def run():\n    from .core import run\n", ">=3.9"),
        (b"if sys.platform == 'win32':\n    from .core import run\n", ">=3.9"),
        (b"from .core import run\n__path__ = extend_path(__path__, __name__)\n", ">=3.9"),
        (b"from . import version\nfrom .stubs import *\nversion = 1\n", ">=3.9"),
        (b"from . import data, stubs\nfrom .data import x\nimport other.core\n", ">=3.9"),
        (b"from . import core\n\ndef __getattr__(name): ...\n", ">=3.9"),
        (
            b"from .stubs import __doc__, __name__\nfrom .late import run\n",
            ">=3.9",
        ),
        (b"print 'done'\n", ">=3.99"),
        (b"print 'done'\n", "==2.7.*"),
    ],
)
def test_what_a_package_imports_may_be_elsewhere(
    make_wheel: MakeWheel, init: bytes, requires_python: str
) -> None:
    files = {
        "demo/__init__.py": init + MAIN,
        "demo/data/x.py": b"",
        "demo/stubs.pyi": b"",
        "demo/stubs.py": b"",
        "demo/late.py": b"globals().update(run=1)\n",
    }
    wheel = make_wheel(tags=("py3-none-any",), files=files, requires=())
    if requires_python != ">=3.9":
        said = f"Requires-Python: {requires_python}".encode()
        change = {f"{INFO}/METADATA": lambda data: data.replace(b"Requires-Python: >=3.9", said)}
        wheel = altered(wheel, change, record=True)
    assert {code for code, _ in found(wheel)} <= {"python-tag"}


@pytest.mark.parametrize(
    ("tags", "files"),
    [
        (IOS, {"demo/m.cpython-313-iphoneos.so": macho(platform=2, signed=False)}),
        (WINDOWS, {PYD: DLL, "demo/run.exe": program(DLL), "demo/libx.so": gzip.compress(ELF)}),
        (LINUX, {SO: ELF}),
        (WINDOWS, {PYD: DLL}),
        (MACOS, {DARWIN: MACHO}),
        (UNIVERSAL, {DARWIN: make_universal(macho(machine=X86_64), MACHO)}),
        (MACOS, {DARWIN: make_universal(macho(machine=X86_64), MACHO)}),
        (ABI3, {"demo/m.abi3.so": elf(symbols=("PyList_New",))}),
        (WINDOWS_ABI3, {"demo/m.pyd": dll()}),
        (LINUX, {SO: elf(stack=6)}),
        # What a file has loaded finds the libraries by its DT_RPATH, and under their SONAMEs.
        (
            LINUX,
            {
                SO: elf(needed=("libx.so",), rpath="$ORIGIN/lib"),
                "demo/lib/libx.so": make_elf(soname="libx.so.1", needed=("liby.so", "libx.so.1")),
                "demo/lib/liby.so": make_elf(),
            },
        ),
        ((*MACOS, "cp312-cp312-macosx_10_9_arm64"), {DARWIN: MACHO}),
        # For one Python, all of its API may be used.
        (LINUX, {SO: elf(symbols=("PyFrame_New",))}),
        # What a library in the wheel defines is not Python's.
        (
            ABI3,
            {
                "demo/m.abi3.so": elf(symbols=("PyQt_New",), needed=("libq.so",), runpath="$ORIGIN"),
                "demo/libq.so": make_elf(defined=("PyQt_New",), soname="libq.so"),
            },
        ),
        # DT_RPATH is for what a file loads, by way of others too; DT_RUNPATH of one between changes nothing.
        (
            LINUX,
            {
                SO: elf(needed=("libx.so",), rpath="$ORIGIN/lib:$ORIGIN/far"),
                "demo/lib/libx.so": make_elf(needed=("liby.so",)),
                "demo/lib/liby.so": make_elf(needed=("libz1.so",)),
                "demo/far/libz1.so": make_elf(),
            },
        ),
        # A library for each system, of which Python code opens the one that it is on (interpret_core).
        (
            (),
            {
                "demo/libx_linux_arm.so": make_elf(machine=183),
                "demo/libx_mac_arm.dylib": make_macho(),
                "demo/x_win_x64.dll": make_dll(),
            },
        ),
        # Libraries of macOS where their paths lead, by run paths of what loads them too, or loaded before.
        (
            MACOS,
            {DARWIN: macho(NATIVE, run_paths=("@loader_path/lib",)), "demo/lib/libx.dylib": make_macho()},
        ),
        (MACOS, {DARWIN: macho("@loader_path/../Demo/libx.dylib"), "demo/libx.dylib": make_macho()}),
        (
            MACOS,
            {
                DARWIN: macho("@loader_path/../../../libx.dylib"),
                "demo-1.0.data/data/lib/libx.dylib": make_macho(),
            },
        ),
        (
            MACOS,
            {
                DARWIN: macho("@loader_path/liby.dylib", run_paths=("@loader_path",)),
                "demo/liby.dylib": make_macho((NATIVE,), name="@rpath/liby.dylib"),
                "demo/libx.dylib": make_macho(),
            },
        ),
        (
            MACOS,
            {
                DARWIN: macho("libx.dylib"),
                "demo/libx.dylib": make_macho(name="libx.dylib"),
                "demo/load.py": b"import ctypes; ctypes.CDLL(path)\n",
            },
        ),
        (
            MACOS,
            {
                DARWIN: macho("@executable_path/../Frameworks/libx.dylib"),
                APP: make_macho(kind=2),
                "demo/App.app/Contents/Frameworks/libx.dylib": make_macho(),
            },
        ),
        (MACOS, {DARWIN: macho("/usr/lib/libSystem.B.dylib", weak=("/opt/x.dylib",))}),
        # A script of the linker stands for a library when one is linked with.
        (LINUX, {"demo/lib/libx.so": b"/* GNU ld script */\nINPUT(libx.so.1)\n"}),
        # What MATLAB loads finds its libraries (casadi).
        (LINUX, {SO: ELF, "demo/libipc.so": make_elf(needed=("libmx.so", "libeng.so"))}),
        (
            MACOS,
            {DARWIN: MACHO, "demo/libipc.dylib": make_macho(("@rpath/libmx.dylib", "@rpath/libmex.dylib"))},
        ),
        # Symbols for debuggers have the name of their library, and are none.
        (MACOS, {"demo/libx.dylib.dSYM/Contents/Resources/DWARF/libx.dylib": make_macho(kind=10)}),
        # Libraries for other systems, beside its own.
        (WINDOWS, {PYD: DLL, "demo/data/libx.dylib": make_macho(), "demo/data/libx.so": make_elf()}),
        # An app brings Python as a framework (PEP 730), Android what auditwheel lists.
        (IOS, {"demo/m.cpython-313-iphoneos.so": macho("@rpath/Python.framework/Python")}),
        (ANDROID, {"demo/m.cpython-313-aarch64-linux-android.so": elf(needed=("liblog.so",), machine=183)}),
        # glibc ignores an empty run path; `PREFIX/lib` gets `.data/data/lib`; a library beside the packages.
        (LINUX, {SO: elf(runpath="")}),
        (LINUX, {SO: elf(runpath="$ORIGIN/../../..")}),
        (LINUX, {SO: elf(needed=("libx.so",), runpath="$ORIGIN/.."), "libx.so": make_elf()}),
        (WINDOWS, {PYD: dll("opencl.dll")}),
        # The half of a driver that programs load.
        (LINUX, {SO: elf(needed=("libcuda.so.1", "libibverbs.so.1"))}),
        # A module for each Python under plain names (cefpython3), with the runtime that came with Python 3.4.
        (
            ("py3-none-win_amd64",),
            {
                f"demo/m_py{n}.pyd": make_dll((f"python{n}.dll", runtime), exports=(f"PyInit_m_py{n}",))
                for n, runtime in ((34, "msvcp100.dll"), (38, "kernel32.dll"))
            }
            | {"demo/msvcp100.dll": make_dll(("msvcr100.dll",))},
        ),
        # The data of tests may be wrong on purpose.
        ((), {"demo/tests/data/empty.so": b"", "demo/tests/data/liba.dylib": make_macho()}),
        # Names that only Windows refuses, where it is not asked.
        (LINUX, {"demo/aux.py": b"", "demo/a:b": b"", f"demo/{'a/' * 120}b.py": b"", SO: ELF}),
        (WINDOWS, {f"demo/{'a/' * 109}b.py": b"", PYD: dll("python312.dll")}),
        # A module for each of the tags.
        (BOTH, {SO: ELF, SO.replace("312", "311"): ELF}),
        ((*LINUX, ARM), {SO: ELF, SO.replace("x86_64", "aarch64"): elf(machine=183)}),
        ((*LINUX, "cp312-cp312-manylinux2014_x86_64"), {SO: elf(level=1)}),
        (WINDOWS, {PYD: dll("python312.dll", "vcruntime140_1.dll"), "demo/m_d.pyd": dll("python312_d.dll")}),
        # The loader takes these where the processor has it, and only there.
        (LINUX, {SO: ELF, "demo/glibc-hwcaps/x86-64-v3/libx.so": make_elf(level=4)}),
        # Interpreters that are everywhere, or that installers put there.
        (
            (),
            {
                f"demo-1.0.data/scripts/{number}": f"#!{line}\n".encode()
                for number, line in enumerate(
                    (
                        "python",
                        "pythonw",
                        "/usr/bin/env python3",
                        "/usr/bin/python3",
                        "/bin/sh",
                        "/usr/local/bin/perl",
                    )
                )
            },
        ),
        # What looks cut off, and is for another Python, a template, or data.
        (
            (),
            {
                "demo/a.py": b"print 'a'\nexec 'b' in c\nprint `d`, 0777",
                "demo/b.py": b"{% if a %}\nimport {{ a }}\n{% endif %}",
                "demo/c.py": b'x = """\n' + CONFLICT + b'"""\n',
                "demo/d.py": b"x = (1,\n     2)\n# it ends in (",
                "demo/e.py": b"# -*- coding: latin-1 -*-\nx = '\xe9'",
                "demo/f.py": b"",
                "demo/tests/g.py": b"def f(",
                "demo/data/h.py": b"def f(",
                "demo/i.py": b"type X = int\ndef f[T](a: T): ...",
                "demo/j.py": b"raise A, 'b'",
                "demo/k.py": b"\xef\xbb\xbfx = 1",
                "demo/l.py": b"async = 1\nprint >>f, 'x',",
            },
        ),
        # Code of other sections, and data of zeros.
        (LINUX, {SO: elf(sections={".text": b"", ".data": bytes(9000), ".init": b"\x90"})}),
        (LINUX, {SO: elf(sections={".text": bytes(9000) + b"\xc3", ".data": bytes(9000)})}),
        # A library that defines what a module does, and is linked with, opened, or named as none.
        (WINDOWS, {PYD: dll("m.dll"), "demo/m.dll": DLL}),
        (WINDOWS, {PYD: DLL, "demo/m312.dll": DLL}),
        (WINDOWS, {PYD: DLL, "demo/bin/m.dll": DLL, "demo/load.py": b"ExtensionFileLoader('m', path)"}),
        # Lines that are run at each start of Python, and those that name folders.
        (
            (),
            {
                "demo.pth": b"../x y\n# import x\nimport demo; demo.main()\nimport os; exec('import x')\n",
                "demo/demo.pth": b"import nothing\n",
            },
        ),
        ((), {"demo.pth": b"demo\\lib\r\nimport demo_start\r\n", "demo/lib/demo_start.py": b""}),
        ((), {"demo_runtime/lib/python3.11/site-packages/x.py": b"", "demo/__init__.py": None, "a.txt": b""}),
        (LINUX, {SO: ELF, "demo/libx.so": make_elf(sections={".text": bytes(16), ".data": b"x"})}),
        ((), {"cmeel.prefix/lib/python3.11/site-packages/x.py": b"", "x.pth": b"cmeel.prefix"}),
        (MACOS, {DARWIN: SIGNED}),
        (UNIVERSAL, {DARWIN: make_universal(signed(macho(machine=X86_64)), SIGNED)}),
        (
            MACOS,
            {
                DARWIN: make_universal(
                    patched(signed(macho(machine=X86_64, code=bytes(range(99)))), 300, b"\1"), SIGNED
                )
            },
        ),
        # Python takes the compiled form of a module before its source.
        (LINUX, {"demo/__init__.py": b"from .m import run\n" + MAIN, "demo/m.py": b"", SO: ELF}),
        # Packages that are meant to be below a folder of their name, and folders that others may fill.
        (
            (),
            {"demo/demo/__init__.py": b"", "demo/demo/a.py": b"import demo.demo\n", "demo/__init__.py": None},
        ),
        ((), {"demo/demo/__init__.py": b"", "demo/a.py": b"", "demo/__init__.py": None}),
        ((), {"demo/__init__.py": None, "demo/a/__init__.py": b"from demo import b\n", "demo/a/x.py": b""}),
        ((), {"demo/__init__.py": b"from .sub import b\n" + MAIN, "demo/sub/b.py": b""}),
        # Bytecode for the Python that the wheel is for, that no Python imports, or beside its source.
        (("cp311-none-any",), {"demo/a.pyc": BYTECODE}),
        (
            (),
            {
                "demo/data/a.pyc": BYTECODE,
                f"demo/{CACHED}": BYTECODE,
                "demo/b.pyc": b"",
                "demo/__init__.pyc": BYTECODE,
            },
        ),
        # A module compiled from a package, and one that others are linked with.
        (LINUX, {"demo/__init__.cpython-312-x86_64-linux-gnu.so": make_elf(defined=("PyInit_demo",))}),
    ],
)
def test_what_is_right_is_no_finding(
    make_wheel: MakeWheel, tags: tuple[str, ...], files: dict[str, bytes]
) -> None:
    assert found(wheel_of(make_wheel, tags, files)) == []


def test_where_imports_were_followed_no_further_is_said(make_wheel: MakeWheel) -> None:
    padding = b"# " + b"x" * 70_000 + b"\n"
    files = {
        "demo/__init__.py": padding + b"from .a import f\n" + MAIN,
        "demo/a.py": padding + b"from .missing import f\n",
    }
    verdict = judge(make_wheel(tags=("py3-none-any",), files=files, requires=()), Expectation())
    assert (verdict.findings, verdict.not_checked) == (
        (),
        ("the imports of demo/a.py, and of what these import",),
    )
    files = {"demo/__init__.py": MAIN, "demo/a.py": b"# " + b"x" * (1 << 20)}
    verdict = judge(make_wheel(tags=LINUX, files=files, requires=()), Expectation())
    assert "the imports of demo/a.py, and of what these import" in verdict.not_checked


@pytest.mark.parametrize(
    ("tags", "files", "left"),
    [
        # One list of folders for all files, by name.
        ((), {"b.pth": b"import demo_start\n", "a.pth": b"demo\n", "demo/demo_start.py": b""}, ""),
        (("py2-none-any",), {"demo.pth": b"import demo_start\nimport new; print 'a'\n"}, "demo.pth"),
        (("cp399-cp399-win_amd64",), {"demo.pth": b"import os; os later\n"}, "demo.pth"),
        ((), {"demo.pth": b"import sys; sys.path.insert(0, 'x'); import hook\nimport a\n"}, "demo.pth"),
        ((), {"demo.pth": "import os; os.name == 'é'\n".encode("latin-1")}, ""),
        ((), {"demo.pth": b"\xef\xbb\xbfimport os\nimport imp, asyncore, distutils\n"}, ""),
        ((), {"demo.pth": b"# x\n" * 1000 + b"import demo_start\n"}, "demo.pth"),
        ((), {"a.pth": b"demo\n" * 1000, "b.pth": b"import demo_start\n"}, "b.pth"),
    ],
)
def test_lines_at_the_start_of_python_that_are_not_judged_are_named(
    make_wheel: MakeWheel, tags: tuple[str, ...], files: dict[str, bytes], left: str
) -> None:
    verdict = judge(wheel_of(make_wheel, tags, files), Expectation())
    assert [finding.reason for finding in verdict.findings] == []
    assert [text for text in verdict.not_checked if text.startswith("the imports of")] == (
        [f"the imports of {left}, and of what these import"] if left else []
    )


PURELIB = "demo-1.0.data/purelib/demo/libx.so"


@pytest.mark.parametrize(
    ("tags", "files", "pure", "wrong"),
    [
        (LINUX, {"demo/libx.so": ELF}, True, False),  # all of it goes there
        (LINUX, {**INIT, PURELIB: ELF}, False, True),
        (WINDOWS, {**INIT, PURELIB.replace(".so", ".dll"): DLL}, False, False),  # one folder
        (LINUX, {**INIT, PURELIB.replace("purelib", "platlib"): ELF}, True, False),
        (LINUX, {"demo-1.0.data/purelib/demo/__init__.py": b"", PURELIB: ELF}, False, False),
    ],
)
def test_libraries_in_the_folder_for_pure_python(
    make_wheel: MakeWheel, tags: tuple[str, ...], files: dict[str, bytes], *, pure: bool, wrong: bool
) -> None:
    made = make_wheel(tags=tags, files=files, pure=pure, requires=())
    assert found(made) == ([("binary-in-pure-wheel", "")] if wrong else [])


def test_a_module_that_is_opened_as_a_library_is_said_to_be_unknown(make_wheel: MakeWheel) -> None:
    module = make_elf(defined=("helper",))
    files = {"demo/__init__.py": b"import ctypes\nctypes.CDLL('x')\ndef main(): ...\n", SO: module}
    verdict = judge(make_wheel(tags=LINUX, files=files), Expectation())
    assert verdict.findings == ()
    assert any(SO in text and "PyInit_" in text for text in verdict.not_checked)
    # So is one that Python code names as a file (memray), and one of a different Python (torchao).
    for name, code in (("_x.abi3.so", b"at(f'_x.{abi}.so')"), (SO.replace("312", "310"), b"load_library(x)")):
        files = {"demo/__init__.py": b"def main(): ...\n" + code, f"demo/{name.rpartition('/')[2]}": module}
        verdict = judge(make_wheel(tags=ABI3, files=files), Expectation())
        assert verdict.findings == ()
        assert any("is opened as a library" in text for text in verdict.not_checked)
    for path, tags, named in (("demo/m.dll", WINDOWS, DLL), ("demo/m.dylib", MACOS, MACHO)):
        files = {"demo/__init__.py": MAIN + f"at('{path}')".encode(), path: named}
        verdict = judge(make_wheel(tags=tags, files=files), Expectation())
        assert verdict.findings == ()
        expected = f"whether {path}, which has PyInit_ and no suffix of a module, is opened as a library"
        assert expected in verdict.not_checked
    # One that others are linked with is a library, whatever its name.
    name = SO.rpartition("/")[2]
    files = {**INIT, SO: module, "demo/libuser.so": make_elf(needed=(name,))}
    assert found(make_wheel(tags=LINUX, files=files)) == []


def entry_points(
    tmp_path: Path, points: str, files: Mapping[str, bytes], requires: tuple[str, ...] = ()
) -> Path:
    made = build_wheel(tmp_path / "points", files={**INIT, **files}, requires=requires)
    return altered(made, {"demo-1.0.dist-info/entry_points.txt": points.encode()}, record=True)


@pytest.mark.parametrize(
    ("reference", "files", "says"),
    [
        ("demo.cli:main", {}, "no module demo.cli"),
        ("demo.a.b:main", {"demo/a/__init__.py": b""}, "no module demo.a.b"),
        ("demo:start", {}, "nothing there defines start"),
        ("demo.x:main", {"demo/x.py": b"x = 1\n"}, "nothing there defines main"),
        ("nothing:main", {}, "no module nothing, and requires nothing"),
    ],
)
def test_scripts_that_lead_nowhere(
    tmp_path: Path, reference: str, files: dict[str, bytes], says: str
) -> None:
    wheel = entry_points(tmp_path, f"[console_scripts]\nrun = {reference}\n", files)
    (finding,) = judge(wheel, Expectation()).findings
    assert (finding.code, finding.member) == ("entry-point", "demo-1.0.dist-info/entry_points.txt")
    assert says in finding.reason
    # A plugin that is never asked for does no harm.
    verdict = judge(entry_points(tmp_path, f"[demo.plugins]\nrun = {reference}\n", files), Expectation())
    assert [note.code for note in verdict.notes] == ["optional-plugin"]
    assert verdict.findings == ()


@pytest.mark.parametrize(
    ("reference", "files"),
    [
        ("demo:main", {}),
        (
            "demo:run",
            {"demo/__init__.py": b"try:\n    from x import run\nexcept ImportError:\n    run = None\n"},
        ),
        ("demo:run", {"demo/__init__.py": b"from .x import *\n"}),
        ("demo:run", {"demo/__init__.py": b"def __getattr__(name): ...\n"}),
        ("demo:run", {"demo/__init__.py": b"globals()['run'] = 1\n"}),
        ("demo:run", {"demo/__init__.py": b"print 'for Python 2'\n"}),
        ("demo.cli:main", {"demo/__init__.py": b"__path__ = []\n"}),
        ("demo.cli:main", {"demo/cli.cpython-312-x86_64-linux-gnu.so": ELF}),
        ("demo.cli:main", {"demo/cli/__init__.py": b"main = 1\n"}),
        ("demo.cli:Main.run", {"demo/cli.py": b"class Main: ...\n"}),
        ("apart.cli:main", {"apart/other.py": b""}),  # parts of a namespace may be in other wheels
        ("demo.x:run  [ fast,  very_fast=1 ]", {"demo/x.py": b"run = 1"}),
        ("timeit:main", {}),
        ("demo.x:main", {"demo-1.0.data/purelib/demo/x.py": b"main = 1\n"}),
        ("somewhere.x:main", {"demo.pth": b"src\n"}),
    ],
)
def test_scripts_that_may_lead_somewhere(tmp_path: Path, reference: str, files: dict[str, bytes]) -> None:
    wheel = entry_points(tmp_path, f"[gui_scripts]\nrun = {reference}\n", files)
    assert [code for code, _ in found(wheel) if code == "entry-point"] == []


def test_a_module_of_a_requirement_is_said_to_be_unknown(tmp_path: Path) -> None:
    wheel = entry_points(tmp_path, "[console_scripts]\nrun = other.cli:main\n", {}, requires=("other",))
    verdict = judge(wheel, Expectation())
    assert (verdict.findings, verdict.notes) == ((), ())
    assert verdict.not_checked == ("whether a requirement has other, which entry points name",)


QT = ("qt_plugin_instance",)
# Wheel tags, files, and those that lack a library which the wheel has an alternative for.
OPTIONAL: dict[str, tuple[tuple[str, ...], dict[str, bytes], tuple[str, ...]]] = {
    "a plugin for each database, and what only one needs": (
        LINUX,
        {
            "demo/sql/libpsql.so": make_elf(needed=("libpq.so.5", "libbeside.so"), defined=QT),
            "demo/sql/liblite.so": make_elf(defined=QT),
            "demo/libbeside.so": make_elf(needed=("libmimer.so",)),
        },
        ("demo/libbeside.so", "demo/sql/libpsql.so"),
    ),
    "the same on Windows": (
        WINDOWS,
        {
            "demo/sql/psql.dll": make_dll(("libpq.dll",), exports=QT),
            "demo/sql/lite.dll": make_dll(exports=QT),
        },
        ("demo/sql/psql.dll",),
    ),
    "the same on macOS": (
        MACOS,
        {
            "demo/sql/libpsql.dylib": make_macho(("/opt/libpq.5.dylib",), defined=QT),
            "demo/sql/liblite.dylib": make_macho(defined=QT),
        },
        ("demo/sql/libpsql.dylib",),
    ),
    "solvers, whose functions have their names (casadi)": (
        LINUX,
        {
            f"demo/libdemo_{name}.so": make_elf(needed=needed, defined=(f"demo_load_{name}", "_init"))
            for name, needed in (("mosek", ("libmosek64.so",)), ("mumps", ()))
        },
        ("demo/libdemo_mosek.so",),
    ),
    "modules that run threads (numba)": (
        LINUX,
        {
            f"demo/{name}.cpython-312-x86_64-linux-gnu.so": make_elf(
                needed=needed, defined=(f"PyInit_{name}", "launch")
            )
            for name, needed in (("tbbpool", ("libtbb.so.12",)), ("workqueue", ()))
        },
        ("demo/tbbpool.cpython-312-x86_64-linux-gnu.so",),
    ),
    "what has a function more under its own name (casadi's ccopt, nvshmem)": (
        LINUX,
        {
            "demo/boot_shmem.so": make_elf(needed=("liboshmem.so.40",), defined=("boot_init", "shmem_exit")),
            "demo/boot_uid.so": make_elf(defined=("boot_init",)),
        },
        ("demo/boot_shmem.so",),
    ),
    "a module for each MPI (mpi4py)": (
        WINDOWS,
        {
            f"demo/MPI.{name}.cp312-win_amd64.pyd": make_dll((f"{name}.dll",), exports=("PyInit_MPI",))
            for name in ("impi", "msmpi")
        },
        ("demo/MPI.impi.cp312-win_amd64.pyd", "demo/MPI.msmpi.cp312-win_amd64.pyd"),
    ),
    "one for each version of a library (torchcodec)": (
        LINUX,
        {
            f"demo/libcore{number}.so": make_elf(needed=(f"libavutil.so.{number}",), defined=("_Z6decodev",))
            for number in (58, 59)
        },
        ("demo/libcore58.so", "demo/libcore59.so"),
    ),
}
MODULE_2 = "demo/n.cpython-312-x86_64-linux-gnu.so"
# The first file lacks what it needs, and nothing stands in for it.
NEEDED: dict[str, dict[str, bytes]] = {
    "a plugin by its name alone (ROCm/TheRock#8163)": {
        "jax_plugins/xla_rocm7/xla_rocm_plugin.so": make_elf(needed=("libx.so",), defined=("GetPjrtApi",)),
        "jax_plugins/xla_rocm7/other.so": make_elf(defined=("helper",)),
    },
    "by its folder alone": {"demo/plugins/liba.so": make_elf(needed=("libx.so",), defined=QT)},
    "the alternative lacks it, too": {
        name: make_elf(needed=("libx.so",), defined=QT) for name in ("demo/liba.so", "demo/libb.so")
    },
    "what a different library needs": {
        "demo/liba.so": make_elf(needed=("libx.so",), defined=QT),
        "demo/libb.so": make_elf(defined=QT),
        "demo/libuser.so": make_elf(needed=("liba.so",)),
    },
    "a module beside others": {SO: elf(needed=("libx.so",)), MODULE_2: make_elf(defined=("PyInit_n",))},
    "a module for a different Python": {
        f"demo/m.cpython-{n}-x86_64-linux-gnu.so": make_elf(needed=needed, defined=("PyInit_m",))
        for n, needed in ((312, ("libx.so",)), (311, ()))
    },
    "two modules for two libraries": {
        SO: elf(needed=("libx.so.1",)),
        MODULE_2: make_elf(needed=("libx.so.2",), defined=("PyInit_n",)),
    },
    "a program": {
        "demo/a": make_elf(needed=("libx.so",), pie=True, defined=QT),
        "demo/b": make_elf(pie=True, defined=QT),
    },
    "what linkers define is no interface": {
        name: make_elf(needed=needed, defined=("_init", "_ZN1xEv"))
        for name, needed in (("demo/liba.so", ("libx.so",)), ("demo/libb.so", ()))
    },
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_has_an_alternative_may_lack_libraries(make_wheel: MakeWheel, name: str) -> None:
    tags, files, optional = OPTIONAL[name]
    verdict = judge(wheel_of(make_wheel, tags, files), Expectation())
    assert verdict.findings == ()
    assert [(note.code, note.member) for note in verdict.notes] == [("optional-plugin", p) for p in optional]


def test_an_alternative_may_lack_less(make_wheel: MakeWheel) -> None:
    core = {"demo/libcore.so": make_elf(needed=("libxkbcommon.so.0",))}
    plugins = {
        f"demo/{name}.so": make_elf(needed=("libcore.so", *needed), defined=QT)
        for name, needed in (("eglfs", ("libEGL.so.1",)), ("offscreen", ()))
    }
    verdict = judge(wheel_of(make_wheel, LINUX, {**core, **plugins}), Expectation())
    assert [(finding.code, finding.member) for finding in verdict.findings] == [("needed", "demo/libcore.so")]
    assert [note.member for note in verdict.notes] == ["demo/eglfs.so"]


@pytest.mark.parametrize("name", NEEDED)
def test_a_name_makes_nothing_optional(make_wheel: MakeWheel, name: str) -> None:
    files = NEEDED[name]
    made = make_wheel(tags=LINUX, files={**INIT, **files}, requires=(), executables=("demo/a", "demo/b"))
    assert ("needed", next(iter(files))) in found(made)


def test_folders_that_installers_merge(make_wheel: MakeWheel) -> None:
    module = dll("msvcp140-1234.dll")
    files = {PYD.removeprefix("demo/"): module, "demo-1.0.data/platlib/msvcp140-1234.dll": make_dll()}
    assert found(make_wheel(tags=WINDOWS, files=files)) == []
    files = {PYD.removeprefix("demo/"): module, "demo-1.0.data/data/msvcp140-1234.dll": make_dll()}
    assert found(make_wheel(tags=WINDOWS, files=files)) == [("dll-folder", PYD.removeprefix("demo/"))]
    run_path = make_elf(runpath="$ORIGIN/../demo.libs")
    for folder in ("platlib", "purelib"):
        files = {**INIT, f"demo-1.0.data/{folder}/demo/x": run_path}
        assert found(make_wheel(tags=LINUX, files=files)) in ([], [("binary-in-pure-wheel", "")])


def test_dlls_that_no_module_loads_are_for_their_program_to_find(make_wheel: MakeWheel) -> None:
    files = {**INIT, "demo/bin/core.dll": make_dll(), "demo/other/x.dll": make_dll(("core.dll",))}
    assert found(make_wheel(tags=WINDOWS, files=files)) == []
    # What a module loads looks for its own in the folder of the module.
    files = {
        **files,
        PYD: dll("x.dll"),
        "demo/x.dll": files["demo/other/x.dll"],
    }
    assert found(make_wheel(tags=WINDOWS, files=files)) == [("dll-folder", PYD)]


def test_assemblies_without_machine_code_run_anywhere(make_wheel: MakeWheel) -> None:
    anywhere = make_dll(("mscoree.dll",), machine=0x14C, dotnet=1)
    for tags in (LINUX, WINDOWS, MACOS, ("py3-none-any",)):
        assert found(make_wheel(tags=tags, files={**INIT, "demo/Demo.dll": anywhere})) == []
    for flags in (0, 3):  # with machine code, or for 32 bits
        files = {**INIT, "demo/Demo.dll": make_dll(machine=0x14C, dotnet=flags)}
        assert found(make_wheel(tags=WINDOWS, files=files)) == [("machine", "demo/Demo.dll")]


def test_scripts_of_windows_need_no_run_bits(make_wheel: MakeWheel) -> None:
    files = {**INIT, "demo/bin/Activate.ps1": b"#!/usr/bin/env pwsh\n", "demo/bin/a.bat": b"#!\n"}
    assert found(make_wheel(files=files)) == []
    assert found(make_wheel(files={**INIT, "demo/bin/a": b"#!/bin/sh\n"})) == [
        ("not-executable", "demo/bin/a")
    ]


@pytest.mark.parametrize("name", ["d3d12.dll", "DXCORE.dll", "gdiplus.dll"])
def test_dlls_of_windows_10(make_wheel: MakeWheel, name: str) -> None:
    assert found(make_wheel(tags=WINDOWS, files={**INIT, "demo/x.dll": make_dll((name,))})) == []


URL = "postgresql://admin:s3cr3t7@db.company.io/x"


@pytest.mark.parametrize(
    ("text", "real"),
    [
        (f'"""Connect:\n\n>>> connect("{URL}")\n"""\n', False),
        (f'def connect():\n    """As in {URL}."""\n', False),
        (f'class A:\n    x = 1\n    """Such as {URL}"""\n', False),
        (f'DEFAULT = "{URL}"\n', True),
        (f'"""As in {URL}."""\nDEFAULT = "{URL}"\n', True),
        (f"# {URL}\n", True),
        (f'"""{URL}"""\nprint "Python 2"\n', True),
    ],
)
def test_a_password_in_a_docstring_is_an_example(make_wheel: MakeWheel, text: str, *, real: bool) -> None:
    wheel = make_wheel(files={**INIT, "demo/a.py": text.encode()})
    assert found(wheel) == ([("secret", "demo/a.py")] if real else [])


def test_an_extra_may_name_its_own_project(make_wheel: MakeWheel) -> None:
    assert found(make_wheel(files=INIT, requires=('demo ; extra == "fast"',))) == []
    assert [code for code, _ in found(make_wheel(files=INIT, requires=("demo",)))] == ["requires-itself"]


def test_what_is_not_looked_at_is_said(make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        **INIT,
        "demo/libx.a": b"!<arch>\n" + bytes(99),
        "demo/data.zip": b"PK\3\4" + bytes(99),
        DARWIN: MACHO,
    }
    wheel = make_wheel(tags=MACOS, files=files)
    assert cairn_wheel("verify", wheel) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{wheel.name}: good"
    assert lines[1:] == [
        "  not checked: what is in 1 static libraries: demo/libx.a",
        "  not checked: what is in 1 archives: demo/data.zip",
        f"  not checked: whether {DARWIN} was changed after it was signed",
        "  not checked: who signed its code, and whether the oldest macOS of the tag has every symbol",
    ]
    assert cairn_wheel("verify", "--json", wheel) == 0
    said = json.loads(capsys.readouterr().out)[str(wheel)]
    assert (said["findings"], said["notes"], len(said["not_checked"])) == ([], [], 4)
    phone = make_wheel(tags=("cp313-cp313-ios_13_0_arm64_iphoneos",), files=INIT)
    assert "ios" in " ".join(judge(phone, Expectation()).not_checked)
    plain = make_wheel(files=INIT)
    assert judge(plain, Expectation()).not_checked == ()


def test_what_lies_too_far_in_a_large_library_is_named(make_wheel: MakeWheel) -> None:
    noise = hashlib.shake_128(b"").digest(17 << 20)
    large = signed(macho(code=noise))
    verdict = judge(wheel_of(make_wheel, MACOS, {DARWIN: patched(large, 5000, b"\1")}), Expectation())
    assert verdict.findings == ()
    assert f"whether {DARWIN} was changed after it was signed" in verdict.not_checked
    sections = {".rodata": noise, ".text": bytes(5000)}
    verdict = judge(wheel_of(make_wheel, LINUX, {SO: elf(sections=sections)}), Expectation())
    assert verdict.findings == ()
    assert f"whether the code of {SO} is nothing but zeros" in verdict.not_checked


ROCM_DATA = "whether AOTriton, hipBLASLt, MIOpen have data for each target"


@pytest.mark.parametrize(
    ("tags", "files", "expected"),
    [
        (ANDROID, {"demo/m.cpython-313-aarch64-linux-android.so": elf(machine=183)}, ()),
        (
            LINUX,
            {
                SO: ELF,
                "demo/lib/libMIOpen.so.1": make_elf(),
                "demo/lib/aotriton.images/amd-gfx942/a.aks2": b"x",
                "demo/lib/hipblaslt/library/TensileLibrary_lazy_gfx942.dat": b"x",
            },
            (ROCM_DATA,),
        ),
        # Header files of one platform, and a stub that leads to a different wheel, are as they should be.
        (ANY_PYTHON, INIT, ()),
        (LINUX, INIT, ("whether it should have an extension module: its tag names an ABI of Python",)),
        (LINUX, {"demo/libx.a": b"!<arch>\n"}, ("what is in 1 static libraries: demo/libx.a",)),
    ],
)
def test_what_is_not_judged_is_named(
    make_wheel: MakeWheel, tags: tuple[str, ...], files: dict[str, bytes], expected: tuple[str, ...]
) -> None:
    verdict = judge(make_wheel(tags=tags, files=files), Expectation())
    assert (verdict.findings, verdict.not_checked) == ((), expected)


@pytest.mark.parametrize(
    ("path", "source", "module"),
    [
        (
            "demo/__init__.py",
            "try:\n    from ._speed import run\nexcept ImportError:\n    run = None\n",
            "_speed",
        ),
        ("demo/x.py", "from demo._speed import run\n", "_speed"),
        ("demo/x.py", "def f():\n    import demo._speed\n", "_speed"),
        ("demo/x/y.py", "from .._speed import run\n", "_speed"),
        ("demo/x.py", "from . import _speed\n", "_speed"),
        # It has these, or nobody knows.
        (
            "demo/x.py",
            "if TYPE_CHECKING:\n    from ._types import Run\nelse:\n    from .y import run\n",
            None,
        ),
        ("demo/x.py", "from .y import run\nfrom .stubs.z import a\n", None),
        ("demo/tests/x.py", "from ._speed import run\n", None),
        ("demo/__init__.py", "__path__ = []\nfrom ._speed import run\n", None),
        ("demo/x.py", "from other._speed import run\nfrom .......demo import run\nprint 1\n", None),
    ],
)
def test_an_extension_module_that_was_left_out(
    make_wheel: MakeWheel, path: str, source: str, module: str | None
) -> None:
    files = {**INIT, "demo/y.py": b"run = 1\n", "demo/stubs/z.py": b"", path: source.encode()}
    verdict = judge(make_wheel(tags=LINUX, files=files), Expectation())
    assert [(f.code, f.member) for f in verdict.findings] == ([("member-missing", path)] if module else [])
    assert all(f"demo.{module}" in finding.reason for finding in verdict.findings)
    assert bool(verdict.not_checked) == (module is None)
    # A wheel of Python alone may look for what a faster one has, and one with a module for what another has.
    assert found(make_wheel(tags=ANY_PYTHON, files=files)) == []
    assert found(make_wheel(tags=LINUX, files={**files, SO: ELF})) == []


@pytest.mark.parametrize("needs", [(), ("filelock",)])
def test_a_platform_wheel_installs_something(make_wheel: MakeWheel, needs: tuple[str, ...]) -> None:
    built = make_wheel(tags=LINUX, files={}, requires=needs)
    assert found(built) == []  # it has an entry point
    empty = altered(built, {"demo-1.0.dist-info/entry_points.txt": None}, record=True)
    assert found(empty) == ([] if needs else [("member-missing", "")])


def test_notes_are_printed_once_for_each_reason(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = make_elf(needed=("libpq.so.5",), defined=QT)
    files = {**INIT, "demo/plugins/a.so": plugin, "demo/plugins/b.so": plugin}
    files["demo/plugins/c.so"] = make_elf(defined=QT)
    assert cairn_wheel("verify", make_wheel(tags=LINUX, files=files)) == 0
    out = capsys.readouterr().out
    assert out.count("note [optional-plugin]") == 1
    assert "demo/plugins/a.so, demo/plugins/b.so: it needs libpq.so.5" in out


def test_libraries_of_a_required_wheel_of_macos(tmp_path: Path) -> None:
    files = {
        **INIT,
        DARWIN: macho("@rpath/QtCore.framework/Versions/A/QtCore"),
    }
    module = build_wheel(tmp_path, tags=MACOS, files=files, requires=("qt",))
    core = {"qt/lib/QtCore.framework/Versions/A/QtCore": make_macho()}
    library = build_wheel(tmp_path, name="qt", tags=("py3-none-macosx_11_0_arm64",), files=core, requires=())
    assert found(module) == [("needed", DARWIN)]
    supply = providers.supplies([module, library])[module]
    assert found(module, provided_libraries=supply.libraries) == []


def test_files_that_a_build_swept_in_are_noted(make_wheel: MakeWheel) -> None:
    files = {
        "demo/a.pyc": b"x",
        "tests/__init__.py": b"",
        "demo/tests/__init__.py": b"",
        "demo/docs/a.md": b"a",
    }
    verdict = judge(wheel_of(make_wheel, (), files), Expectation())
    assert verdict.findings == ()
    assert [(note.code, note.member, note.reason) for note in verdict.notes] == [
        ("stray-files", "demo/a.pyc", "it has bytecode: demo/a.pyc"),
        ("stray-files", "tests", "it has folders that many projects have: tests"),
    ]


def test_a_python_file_of_any_size_is_read(make_wheel: MakeWheel) -> None:
    # Deflate does not see that it repeats itself, 64 KiB further on.
    table = (b"#" + os.urandom(1024).hex().encode() + b"x" * 63 * 1024) * 1050 + b"\n"
    lost = {**INIT, SO: elf(needed=("libown.so",)), "demo/native/libown.so": elf(), "demo/a.py": table}
    assert found(make_wheel(tags=LINUX, files=lost)) == [("needed", SO)]
    loads = {**lost, "demo/a.py": table + b"import ctypes; ctypes.CDLL(path)\n"}
    assert found(make_wheel(tags=LINUX, files=loads)) == []
    verdict = judge(make_wheel(tags=LINUX, files={**loads, SO: make_elf(defined=("helper",))}), Expectation())
    assert any("is opened as a library" in text for text in verdict.not_checked)


def test_a_library_must_lie_where_a_run_path_leads(make_wheel: MakeWheel) -> None:
    lost = {**INIT, SO: elf(needed=("libown.so",)), "demo/native/libown.so": elf()}
    assert found(make_wheel(tags=LINUX, files=lost)) == [("needed", SO)]
    elsewhere = {**lost, SO: elf(needed=("libown.so",), runpath="$ORIGIN/lib:$ORIGIN")}
    assert found(make_wheel(tags=LINUX, files=elsewhere)) == [("needed", SO)]
    for files in (
        {**lost, SO: elf(needed=("libown.so",), runpath="$ORIGIN/../demo/native")},
        {**lost, "demo/other.so": elf(needed=("libown.so",), rpath="$ORIGIN/native")},
        {**lost, "demo/load.py": b"import ctypes; ctypes.CDLL(path)\n"},
        {**INIT, SO: elf(needed=("_y.abi3.so",)), "demo/sub/_y.abi3.so": make_elf(defined=("PyInit__y",))},
        {**INIT, SO: elf(needed=("libz.so.1",)), "demo/native/libz.so.1": elf()},
        {**INIT, SO: elf(needed=("libown.so",)), "demo-1.0.data/data/lib/libown.so": elf()},
        {**lost, SO: elf(needed=("libown.so",), runpath="$ORIGIN/$PLATFORM")},
    ):
        assert found(make_wheel(tags=LINUX, files=files)) == []


INFO = "demo-1.0.dist-info"


def lines(data: bytes, *more: str) -> bytes:
    return data + "".join(f"{line}\n" for line in more).encode()


def first(*headers: str) -> Change:
    return lambda data: "".join(f"{header}\n" for header in headers).encode() + data


def points(text: str) -> Change:
    return text.encode()


def of_record(row: str) -> Change:
    return lambda data: data.replace(f"{INFO}/RECORD,,\n".encode(), row.encode())


# By the code of the finding that there must be: what is done to which file of a good wheel.
REFUSED: dict[str, dict[str, tuple[str, Change]]] = {
    "metadata": {
        # pip takes the first cell of each row, and dies of a row without any.
        "a blank line at the end of RECORD": ("RECORD", lambda data: data + b"\n"),
        "a blank line in RECORD": ("RECORD", lambda data: b"\n" + data),
        "a row of RECORD that ends as on old Macs": ("RECORD", lambda data: data.replace(b"\n", b"\r", 1)),
        "entry points that do": ("entry_points.txt", points("[console_scripts]\rdemo = timeit:main\n")),
        "a line separator in a script": (
            "entry_points.txt",
            points("[gui_scripts]\na\u2028b = timeit:main\n"),
        ),
        "a comment behind a semicolon": ("entry_points.txt", lambda data: data + b"; of old\n"),
        "entries for every group": ("entry_points.txt", lambda data: b"[DEFAULT]\na = timeit\n" + data),
        "two Requires-Python": ("METADATA", first("Requires-Python: >=3.99")),
        "two names": ("METADATA", first("Name: demo")),
    },
    "metadata-invalid": {
        "two summaries": ("METADATA", first("Summary: a", "Summary: b")),
        "a description in a header, too": ("METADATA", first("Description: a")),
    },
    "record-hash": {
        "a hash of RECORD in itself": ("RECORD", of_record(f"{INFO}/RECORD,sha256={'A' * 43},\n")),
        "a size of RECORD in itself": ("RECORD", of_record(f"{INFO}/RECORD,,7\n")),
    },
    "record-size": {
        "a file without its size": ("RECORD", lambda data: re.sub(rb"(?m)^(demo/.*,)\d+$", rb"\1", data)),
    },
    "entry-point": {
        "no function before the dot": ("entry_points.txt", points("[console_scripts]\nx = timeit:.main\n")),
        "no function behind it": ("entry_points.txt", points("[console_scripts]\nx = timeit:main.\n")),
        "no module before the dot": ("entry_points.txt", points("[gui_scripts]\nx = .timeit:main\n")),
        "a module that is a number": ("entry_points.txt", points("[gui_scripts]\nx = 1a:main\n")),
        "a word of the language": ("entry_points.txt", points("[gui_scripts]\nx = timeit:class\n")),
        "the name of Python": ("entry_points.txt", points("[console_scripts]\npython = timeit:main\n")),
        "in other letters": ("entry_points.txt", points("[console_scripts]\nPython3.12 = timeit:main\n")),
        "with an ending": ("entry_points.txt", points("[console_scripts]\npypy3.py = timeit:main\n")),
        "of a free-threaded one": ("entry_points.txt", points("[gui_scripts]\npythonw3.13t = timeit:main\n")),
        # What follows pip's reader of a script refuses (distlib, `get_export_entry`).
        **{
            f"spelt {line}": ("entry_points.txt", points(f"[console_scripts]\n{line}\n"))
            for line in (
                *("x = timeit : main", "x = timeit: main", "x = timeit:main []", "x = timeit:main [a.b]"),
                *("x = timeit:main [a ,b]", "x = timeit:main [a-b, c-d]", "x = timeit:main [a,,b]"),
                *("x = timeit:main [a,]", "x = timeit:main [a b]", "x[y = timeit:main", "x]y = timeit:main"),
            )
        },
    },
}


@pytest.mark.parametrize(("code", "spoil"), [(code, spoil) for code in REFUSED for spoil in REFUSED[code]])
def test_what_installers_refuse(make_wheel: MakeWheel, code: str, spoil: str) -> None:
    file, change = REFUSED[code][spoil]
    wheel = altered(make_wheel(requires=()), {f"{INFO}/{file}": change}, record=file != "RECORD")
    assert {found_code for found_code, _ in found(wheel)} == {code}


def test_a_hash_in_another_spelling_is_no_other_content(make_wheel: MakeWheel) -> None:
    row = f"demo/__init__.py,sha256={hashlib.sha256(b'').hexdigest()},0"
    record = {f"{INFO}/RECORD": lambda data: re.sub(rb"(?m)^demo/__init__.py,.*$", row.encode(), data)}
    wheel = altered(make_wheel(requires=(), files={"demo/__init__.py": b""}), record)
    (finding,) = judge(wheel, Expectation()).findings
    assert (finding.code, finding.member) == ("record-hash", "demo/__init__.py")
    assert finding.reason == "RECORD has its hash in hexadecimal digits, not in base64: installer refuses it"
    with pytest.raises(WheelError, match="has its hash in hexadecimal digits"):
        edit_wheel(wheel, Edit(replace_files={"demo/__init__.py": b"x"}), wheel.parent / "out")


@pytest.mark.parametrize(("folder", "absent"), [("demo/", []), ("demos/", [("record-absent", "demos/")])])
def test_a_folder_in_record_is_no_absent_file(
    make_wheel: MakeWheel, folder: str, absent: list[tuple[str, str]]
) -> None:
    record = of_record(f"{folder},,\n{INFO}/RECORD,,\n")
    assert found(altered(make_wheel(requires=()), {f"{INFO}/RECORD": record})) == absent


def test_a_semicolon_before_the_first_section_is_no_entry(tmp_path: Path) -> None:
    assert found(entry_points(tmp_path, "; of old\n[console_scripts]\nx = timeit:main\n", {})) == []


@pytest.mark.parametrize("name", ["pythonic", "python4", "pip3.12", "ipython3", "python3.x", "py"])
def test_scripts_that_are_named_like_python(tmp_path: Path, name: str) -> None:
    assert found(entry_points(tmp_path, f"[console_scripts]\n{name} = timeit:main\n", {})) == []


@pytest.mark.parametrize(
    "path", ["scripts/python3", "scripts/PYTHON.exe", "data/bin/python3.12", "data/Scripts/pypy.exe"]
)
def test_a_file_may_not_take_the_place_of_python(make_wheel: MakeWheel, path: str) -> None:
    member = f"demo-1.0.data/{path}"
    wheel = make_wheel(files={**INIT, member: b"#!python\n"}, executables=(member,), requires=())
    assert found(wheel) == [("data-folder", member)]


@pytest.mark.parametrize(
    ("code", "requires", "files"),
    [
        ("extra-undeclared", ("other; extra == 'slow'",), INIT),
        ("extra-undeclared", ("other; python_version > '3' and extra == 'slow'",), INIT),
        ("extra-undeclared", ("demo[slow]; extra == 'fast'",), INIT),
        ("requirement-unmet", ("other>=2,<1",), INIT),
        ("requirement-unmet", ("other==1.*,!=1.*; extra == 'fast'",), INIT),
        ("requirement-unmet", ("demo==2; extra == 'fast'",), INIT),
        ("", ("demo==1.0; extra == 'fast'",), INIT),
        ("overwrites", ("Other.Thing",), {**INIT, "other_thing/__init__.py": b"x = 1\n"}),
        ("overwrites", ("other",), {**INIT, "other.py": b"x = 1\n"}),
        ("overwrites", ("other",), {**INIT, "other/__init__.abi3.so": make_elf(defined=("PyInit_other",))}),
        # The projects of one release know which of them brings a package (PyMuPDF 2.0).
        ("", ("other == 1.0",), {**INIT, "other/__init__.py": b"x = 1\n"}),
        ("", ("other; extra == 'Fast'", "demo[fast]; extra == 'fast'", "other>=1,<2", "other===x"), INIT),
        ("", ("other",), {**INIT, "other/__init__.py": b"__path__ = extend_path(__path__, __name__)\n"}),
        ("", ("other",), {**INIT, "other/__init__.py": b"\n", "other/plugin.py": b"x = 1\n"}),
        ("", ("other",), {**INIT, "other/plugins/__init__.py": b"x = 1\n"}),
        ("", ("other; extra == 'fast'",), {**INIT, "other/__init__.py": b"x = 1\n"}),
    ],
)
def test_what_a_wheel_requires(
    make_wheel: MakeWheel, code: str, requires: tuple[str, ...], files: dict[str, bytes]
) -> None:
    tags = ABI3 if any(path.endswith(".so") for path in files) else ("py3-none-any",)
    codes = {finding_code for finding_code, _ in found(make_wheel(tags=tags, files=files, requires=requires))}
    assert codes == {code} - {""}


def test_advice_for_the_sdk(make_wheel: MakeWheel) -> None:
    files, tags = {"sdk/libx.so": make_elf()}, ("py3-none-linux_x86_64",)
    for name, advice in (("rocm_sdk_core", "cairn rocm package"), ("demo", "cairn wheel repair")):
        wheel = make_wheel(name=name, tags=tags, files=files, requires=())
        (finding,) = judge(wheel, Expectation()).findings
        assert finding.code == "platform-tag"
        assert advice in finding.fix


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("numpy/__init__.py", 7),
        ("foo-1.0.data/purelib/numpy/__init__.py", 7),
        ("numpy.py", 0),  # which Python imports where there is no package, as that of pytest beside py
    ],
)
def test_the_package_of_a_project_that_is_given(make_wheel: MakeWheel, path: str, code: int) -> None:
    numpy = make_wheel(name="numpy", files={"numpy/__init__.py": b"x = 1\n"}, requires=())
    foo = make_wheel(name="foo", files={"foo.py": b"", path: b"x = 2\n"}, requires=())
    assert cairn_wheel("verify", numpy) == cairn_wheel("verify", foo) == 0
    assert cairn_wheel("verify", numpy, foo) == code


def test_files_of_two_projects_in_one_place(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = {"apart/__init__.py": b"", "apart/a.txt": b"1"}
    one = make_wheel(files={**shared, **INIT}, requires=())
    same = make_wheel(name="same", files=shared, requires=())
    other = make_wheel(name="other", files={**shared, "demo/__init__.py": b"x = 1\n"}, requires=())
    assert cairn_wheel("verify", one, same) == 0
    capsys.readouterr()
    assert cairn_wheel("verify", one, same, other) == 7
    assert (
        capsys.readouterr().out.count(
            "[overwrites] demo/__init__.py: demo-1.0-py3-none-any.whl has other content there"
        )
        == 1
    )
