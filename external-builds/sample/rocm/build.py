#!/usr/bin/env python3
"""Contract: an installed prefix that looks like ROCm's, made from the standard library and `ziglang` alone.

    python build.py --prefix DIR --targets gfx942,gfx1100

The same arguments give the same bytes. What is in it: README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_TARGETS = ["gfx942", "gfx1100"]
DEFAULT_VERSION = "7.10.0"
PROGRAMS = ("clang", "clang++", "clang-offload-bundler", "hipcc", "hipconfig", "ld.lld", "lld")
LAUNCHER = """\
#!/usr/bin/env python3
import sys

sys.dont_write_bytecode = True  # this folder stays as it was installed

from zigtool import programs

sys.exit(programs.main())
"""
ZIG_CC = """\
import sys

from zigtool import zig

zig.replace("cc", ["-target", zig.zig_target(), *sys.argv[1:]])
"""


def main() -> int:
    """Build into a folder beside the prefix, then rename: a prefix is whole or not there."""
    options = _parse()
    prefix = options.prefix.absolute()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{prefix.name}.", suffix=".part", dir=prefix.parent))
    try:
        fill(
            part,
            targets=[t for word in options.targets for t in re.split("[,;]", word) if t],
            version=options.version,
        )
        part.chmod(0o755)
        if prefix.exists():
            shutil.rmtree(prefix)
        part.rename(prefix)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"build.py: error: hipcc failed with exit code {error.returncode}\n")
        return 1
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prefix", type=Path, required=True, help="the folder to make; replaced when there")
    parser.add_argument(
        "--targets",
        nargs="+",
        default=DEFAULT_TARGETS,
        help="what libhiprand is compiled for, joined by commas",
    )
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the ROCm version to claim")
    return parser.parse_args()


def fill(prefix: Path, *, targets: list[str], version: str) -> None:
    """Put everything into an empty folder."""
    _copy(HERE / "tools", prefix / "lib" / "llvm" / "bin")
    for name in PROGRAMS:
        _write(prefix / "lib" / "llvm" / "bin" / name, LAUNCHER)
        (prefix / "lib" / "llvm" / "bin" / name).chmod(0o755)
    _copy(HERE / "include", prefix / "include")
    _copy(HERE / "cmake", prefix / "lib" / "cmake" / "hip")
    _write(prefix / ".info" / "version", f"{version}\n")
    (prefix / "bin").mkdir()
    for name in ("hipcc", "hipconfig"):
        (prefix / "bin" / name).symlink_to(Path("..", "lib", "llvm", "bin", name))
    _c_runtime(prefix)
    _runtime(prefix)
    _random(prefix, targets)


def _c_runtime(prefix: Path) -> None:
    """Keep what `zig cc` links a library against, which it takes five seconds to make for each new cache."""
    tools, folder = prefix / "lib" / "llvm" / "bin", prefix / "lib" / "llvm" / "lib" / "c-runtime"
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="zig-") as work:
        Path(work, "empty.c").touch()
        words = ["-O2", "-s", "-shared", "empty.c", "-o", "empty.so", "--verbose"]
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": work, "PYTHONPATH": str(tools)}
        zig = [sys.executable, "-B", "-c", ZIG_CC, *words]
        shown = subprocess.run(zig, check=True, cwd=work, env=env, stderr=subprocess.PIPE, text=True).stderr
        # Parts of the runtime are linked first, empty.so last.
        line = [line for line in shown.splitlines() if line.startswith("ld.lld ")][-1]
        for word in shlex.split(line):
            if re.search(r"\.(a|so\.\d+)$", word):
                (folder / Path(word).name).write_bytes(_without_times(Path(work, word).read_bytes()))


def _without_times(content: bytes) -> bytes:
    """An archive with zero for the time of each member; anything else as it is."""
    if not content.startswith(b"!<arch>\n"):
        return content
    archive, at = bytearray(content), 8
    while at < len(archive):
        # A member's header has 60 bytes: its time is at 16, its size at 48. Members begin at even offsets.
        archive[at + 16 : at + 28] = b"0".ljust(12)
        size = int(archive[at + 48 : at + 58])
        at += 60 + size + size % 2
    return bytes(archive)


def _runtime(prefix: Path) -> None:
    plain = ("-no-hip-rt", "-fno-exceptions", "-fno-rtti")
    _library(prefix, "libamdhip64.so.6", HERE / "src" / "amdhip64.cpp", *plain)


def _random(prefix: Path, targets: list[str]) -> None:
    archs = [f"--offload-arch={target}" for target in targets]
    _library(prefix, "libhiprand.so.1", HERE / "src" / "hiprand.hip", *archs, "-Wl,-rpath,$ORIGIN")


def _library(prefix: Path, soname: str, source: Path, *flags: str) -> None:
    made = prefix / "lib" / soname
    hipcc = [sys.executable, str(prefix / "bin" / "hipcc"), "-O2", "-fPIC", "-shared"]
    # A relative name, so that messages and the compiler's own records do not depend on where this lies.
    subprocess.run(
        [*hipcc, source.name, *flags, f"-Wl,-soname,{soname}", "-o", str(made)], check=True, cwd=source.parent
    )
    (prefix / "lib" / soname.rpartition(".")[0]).symlink_to(soname)


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            _write(target / path.relative_to(source), path.read_text(encoding="utf-8"))
            (target / path.relative_to(source)).chmod(0o755 if os.access(path, os.X_OK) else 0o644)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
