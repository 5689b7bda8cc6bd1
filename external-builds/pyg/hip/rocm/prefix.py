"""An installed prefix made of Debian 12's HIP and of what a ROCm build of PyTorch has beside it.

    python prefix.py --prefix DIR --targets gfx942,gfx1100
    python prefix.py --machine          # which versions of Debian's packages that would be of

From Debian: the HIP runtime with all that it needs, headers, device libraries. Made here, from the PyTorch of
this interpreter: its CUDA headers as HIP. Stand-ins: device libraries of targets that Debian's ROCm is too
old for, headers of libraries that Debian does not have (include/), and the two libraries that extensions
are linked against.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = (
    *("clang-19", "lld-19", "llvm-19", "clang-tools-19", "hipcc", "libamdhip64-dev"),
    *("libhiprand-dev", "librocrand-dev", "libhipsparse-dev", "libthrust-dev"),
)
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
HEADERS = Path("/usr/include")
BITCODE = LIBRARIES / "amdgcn" / "bitcode"
CLANG = Path("/usr/bin/clang++-19")
ASSEMBLER = Path("/usr/bin/llvm-as-19")

# The runtime, what it needs or opens by name, and what its compiler (comgr) needs.
RUNTIME = (
    *("libamdhip64.so.5", "libhiprtc-builtins.so.5", "libamd_comgr.so.2", "libhsa-runtime64.so.1"),
    *(
        "libhsakmt.so.1",
        "libdrm.so.2",
        "libdrm_amdgpu.so.1",
        "libelf.so.1",
        "libnuma.so.1",
        "libLLVM-15.so.1",
    ),
    *("libbsd.so.0", "libedit.so.2", "libffi.so.8", "libicudata.so.72", "libicuuc.so.72", "liblzma.so.5"),
    *("libmd.so.0", "libtinfo.so.6", "libxml2.so.2", "libz3.so.4"),
)
# Thrust is not among them: NVIDIA's is found below /usr/include, where the compiler looks in any case.
INCLUDES = ("hip", "hsa", "hiprand", "hipsparse", "rocrand")

# One constant tells the device libraries which ISA they are for (ROCm-Device-Libs, oclc/CMakeLists.txt).
# The data layout is that of Debian's own files of this kind; clang knows what it has added since.
ISA_VERSION = """\
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32\
-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7"
target triple = "amdgcn-amd-amdhsa"
@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 {value}, align 4
"""
# What extensions are linked against (`-lc10_hip -ltorch_hip`) and the CPU wheel does not have. Their symbols
# stay open: a ROCm build's libtorch.so, which every extension needs, brings both libraries.
LINKER_SCRIPTS = dict.fromkeys(("libc10_hip.so", "libtorch_hip.so"), "INPUT(-ltorch)\n")


def main() -> int:
    """Make the prefix; 1 where the machine lacks something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prefix", type=Path, help="the folder to make")
    parser.add_argument("--targets", help="GPU targets, joined by commas")
    parser.add_argument("--machine", action="store_true", help="print the versions of Debian's packages")
    options = parser.parse_args()
    needed = [*(LIBRARIES / name for name in RUNTIME), *(HEADERS / name for name in INCLUDES)]
    needed += [HEADERS / "thrust", BITCODE, CLANG, ASSEMBLER, Path("/usr/bin/hipcc")]
    if missing := [path for path in needed if not path.exists()]:
        install = " ".join(("apt-get install --no-install-recommends", *PACKAGES))
        sys.stderr.write(f"prefix.py: error: there is no {missing[0]}: {install}\n")
        return 1
    if options.machine:
        sys.stdout.write(versions())
    else:
        fill(options.prefix, options.targets.split(","))
    return 0


def versions() -> str:
    """What is installed of Debian's packages, a line each."""
    query = ["dpkg-query", "--show", *PACKAGES]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout


def fill(prefix: Path, targets: list[str]) -> None:
    """Put everything into the folder."""
    libraries, include = prefix / "lib", prefix / "include"
    libraries.mkdir(parents=True)
    for name in RUNTIME:
        shutil.copyfile(LIBRARIES / name, libraries / name)
    (libraries / "libamdhip64.so").symlink_to("libamdhip64.so.5")
    for name, text in LINKER_SCRIPTS.items():
        (libraries / name).write_text(text)
    bitcode = libraries / "llvm" / "amdgcn" / "bitcode"
    shutil.copytree(BITCODE, bitcode)
    for target in targets:
        add_isa_version(bitcode, target)
    shutil.copytree(HERE / "include", include)
    for name in INCLUDES:
        shutil.copytree(HEADERS / name, include / name, dirs_exist_ok=True)
    add_torch_headers(include)
    (prefix / ".info").mkdir()
    (prefix / ".info" / "debian-packages").write_text(versions())


def isa_version(target: str) -> int:
    """The number by which the device libraries know a target: major * 1000 + minor * 100 + step."""
    match = re.fullmatch(r"gfx(\d+)(\d)([0-9a-f])", target)
    if match is None:
        raise SystemExit(f"prefix.py: error: {target} is not a target")
    return int(match[1]) * 1000 + int(match[2]) * 100 + int(match[3], 16)


def add_isa_version(bitcode: Path, target: str) -> None:
    """Complete the device libraries for a target that they do not know."""
    path = bitcode / f"oclc_isa_version_{target.removeprefix('gfx')}.bc"
    if not path.exists():
        text = ISA_VERSION.format(value=isa_version(target))
        subprocess.run([ASSEMBLER, "-", "-o", path], check=True, input=text, text=True)


def add_torch_headers(include: Path) -> None:
    """Hipify the CUDA headers of the installed PyTorch, as its ROCm build does."""
    import torch
    from torch.utils.hipify import hipify_python

    with tempfile.TemporaryDirectory() as folder:
        hipify_python.hipify(
            project_directory=str(Path(torch.__file__).with_name("include")),
            output_directory=f"{folder}/include",
            includes=[f"{folder}/include/{name}/cuda/*" for name in ("ATen", "c10")],
            is_pytorch_extension=True,
            show_detailed=False,
        )
        for name in ("ATen", "c10"):
            shutil.copytree(Path(folder, "include", name, "hip"), include / name / "hip", dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
