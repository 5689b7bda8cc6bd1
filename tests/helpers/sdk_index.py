"""A small ROCm SDK in upstream's shapes, per family and for every GPU, and a stack whose nights take it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.cli.main import main
from cairn.store.folder import LocalStore
from helpers import packing, tiny_stack
from helpers.formats import make_bundle, make_code_object
from helpers.whl_next import WhlNext

FAMILY = "gfx94X-dcgpu"
VERSION = "7.10.0"

_PYPROJECT = """[build-system]
requires = []
build-backend = "b"
backend-path = ["."]
"""
# As TheRock's, the sdist chooses its packages when it is built, and does not name them before.
_BACKEND = packing.backend("""
import os

def build_wheel(folder, settings=None, metadata=None):
    family = os.environ.get("ROCM_SDK_TARGET_FAMILY", "FAMILY")
    devices = "TARGETS".split()
    libraries = "rocm-sdk-libraries" if devices else f"rocm-sdk-libraries-{family}"
    parts = {"libraries": libraries, "devel": "rocm-sdk-devel"}
    parts |= {f"device-{target}": f"rocm-sdk-device-{target}" for target in devices}
    needs = ["rocm-sdk-core==VERSION", *(f'{p}==VERSION; extra == "{e}"' for e, p in parts.items())]
    lines = ["Metadata-Version: 2.2", "Name: rocm", "Version: VERSION"]
    lines += [*(f"Provides-Extra: {extra}" for extra in parts)]
    lines += [*(f"Requires-Dist: {need}" for need in needs), ""]
    members = {"rocm_choice.py": "", "rocm-VERSION.dist-info/METADATA": "\\n".join(lines)}
    return write_wheel(folder, "rocm", "VERSION", members).name
""")
_MODULE = """import pathlib, sys
words = {"version": "VERSION", "targets": "gfx942"}
print(words.get(sys.argv[1], pathlib.Path(__file__).parent))
"""

# An extension module with device code, as HIP's compiler embeds it.
_KERNELS = r"""#include <Python.h>
__asm__(".section .hip_fatbin,\"a\",@progbits\n.p2align 12\nbundle:\n.incbin \"kernels.hipfb\"\n.previous");
extern const char bundle[] __attribute__((visibility("hidden")));
__attribute__((section(".hipFatBinSegment"), used))
static struct { int magic, version; const void *bundle; void *unused; } wrapper = {0x48495046, 1, bundle, 0};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", 0, -1, 0};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
"""
# Python's own flags may name folders of the machine.
_SETUP = """import os
from setuptools import Extension, setup

os.environ["LDSHARED"] = "cc -shared"
setup(ext_modules=[Extension("tiny._kernels", ["kernels.c"], extra_compile_args=["-g0"])])
"""


def write_packages(folder: Path, version: str = VERSION, *, targets: Sequence[str] = ()) -> Path:
    """Write the packages of an SDK for one family, or with the device code of each target apart."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "PKG-INFO": "Metadata-Version: 2.2\nName: rocm\nVersion: VERSION\nDynamic: Requires-Dist\n",
        "pyproject.toml": _PYPROJECT,
        "b.py": _BACKEND,
    }
    with tarfile.open(folder / f"rocm-{version}.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            content = text.replace("VERSION", version).replace('"FAMILY"', f'"{FAMILY}"')
            data = content.replace("TARGETS", " ".join(targets)).encode()
            entry = tarfile.TarInfo(f"rocm-{version}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    runtime = folder.with_name(f"libamdhip64-{version}.so")
    command = [
        "cc",
        "-shared",
        "-nostdlib",
        "-Wl,-soname,libamdhip64.so.7",
        "-x",
        "c",
        "-",
        "-o",
        str(runtime),
    ]
    subprocess.run(command, input=b"int hipInit(unsigned flags) { return flags != 0; }\n", check=True)
    core: dict[str, str | bytes] = {
        "rocm_sdk/__init__.py": "",
        "rocm_sdk/__main__.py": _MODULE.replace("VERSION", version),
        "_rocm_sdk_core/__init__.py": "",
        "_rocm_sdk_core/lib/libamdhip64.so.7": runtime.read_bytes(),
    }
    packing.write_wheel(folder, "rocm-sdk-core", version, core, tag=f"py3-none-{tiny_stack.HERE.platform}")
    libraries = "rocm-sdk-libraries" if targets else f"rocm-sdk-libraries-{FAMILY.lower()}"
    for name in (libraries, "rocm-sdk-devel", *(f"rocm-sdk-device-{target}" for target in targets)):
        packing.write_wheel(folder, name, version, {f"{name.replace('-', '_')}/__init__.py": ""})
    return folder


def offer(packages: Path, www: Path, family: str = FAMILY) -> None:
    """Offer the packages below `www/v2/<family>/`, with their hashes, in place of what was there."""
    root = www / "v2" / family
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    links: dict[str, list[str]] = {}
    for path in sorted(packages.iterdir()):
        shutil.copy(path, root)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        name = path.name.split("-")[0].replace("_", "-")
        links.setdefault(name, []).append(f'<a href="../{path.name}#sha256={sha256}">{path.name}</a>')
    for name, of_project in links.items():
        (root / name).mkdir()
        (root / name / "index.html").write_text("\n".join(of_project), encoding="utf-8")
    pages = "".join(f'<a href="{name}/">{name}</a>\n' for name in links)
    (root / "index.html").write_text(pages, encoding="utf-8")


def write_stack(folder: Path, version: str = VERSION) -> Path:
    """Write the stack of `tiny_stack`, for one family of GPUs, with this SDK from an index."""
    tiny_stack.write(folder)
    code = make_code_object("gfx942", struct.pack("<I", 0xBF810000) * 16)  # s_endpgm
    (folder / "origin/kernels.hipfb").write_bytes(make_bundle({"gfx942": code}))
    (folder / "origin/kernels.c").write_text(_KERNELS, encoding="utf-8")
    (folder / "origin/setup.py").write_text(_SETUP, encoding="utf-8")
    here = tiny_stack.HERE.platform
    for name, old, new in (
        ("stack.toml", 'targets = ["cpu"]', 'targets = ["gfx942"]'),
        ("stack.toml", "\n[[projects]]", "\n[sdk]\n\n[[projects]]"),
        ("stack.toml", "version_edit = true", "version_edit = true\ndevice_code = true"),
        ("matrix.toml", 'families = ["cpu"]', f'families = ["{FAMILY}"]'),
        ("matrix.toml", f"[families.cpu.{here}]", f"[families.{FAMILY}.{here}]"),
        ("matrix.toml", 'test = ["anything"]', "bypass_tests = true"),
        ("origin/pyproject.toml", "dynamic =", f'dependencies = ["rocm[libraries]=={version}"]\ndynamic ='),
    ):
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
    tiny_stack.commit(folder, "Take the ROCm SDK of an index")
    return folder


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """What it answers to programs."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Place:
    """A store, a stack, and the index of its SDK on a server: in the shape of AMD's, without hashes."""

    folder: Path
    index: WhlNext

    @property
    def url(self) -> str:
        """The address of the index."""
        return self.index.url

    @property
    def store(self) -> LocalStore:
        """The store of the nights."""
        return LocalStore(self.folder / "store")

    def types(self, *words: object) -> Ended:
        """Run `cairn` with these words."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: Any = main([str(word) for word in words])
            except SystemExit as end:
                code = end.code
        return Ended(int(code or 0), out.getvalue(), err.getvalue())

    def night(self, name: str, *words: object) -> Ended:
        """A step of the night."""
        place = ("--stack", self.folder / "stack", "--store", self.folder / "store", "--night", "1")
        return self.types("ci", "night", name, *place, *words)

    def freeze(self, *words: str) -> Ended:
        """Begin the night."""
        matrix, place = (
            self.folder / "matrix.json",
            ("--stack", self.folder / "stack", "--trigger", "nightly"),
        )
        matrix.write_text(self.types("matrix", *place, "--json").out)
        where = ("--work-dir", self.folder / "freeze", "--rocm-index-url", self.url)
        return self.night("freeze", "--matrix", matrix, "--json", *where, *words)

    def build(self, leg: str) -> Ended:
        """Build a leg of it."""
        folder = self.folder / "step"
        words = ("--leg", leg, "--output-dir", folder, "--work-dir", self.folder / "work")
        shutil.rmtree(folder, ignore_errors=True)
        fetched = self.night("step", "build", "--phase", "fetch", *words)
        ended = fetched if fetched.code else self.night("step", "build", "--phase", "run", *words)
        if (folder / "wheels").is_dir():
            artifact = self.folder / f"artifacts/wheels-{leg}-1"
            shutil.rmtree(artifact, ignore_errors=True)
            shutil.copytree(folder / "wheels", artifact)
        return ended

    def stage(self) -> Ended:
        """Stage what was built."""
        return self.night("stage", "--artifacts", self.folder / "artifacts", "--json")
