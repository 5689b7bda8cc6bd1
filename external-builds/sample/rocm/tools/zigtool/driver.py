"""Contract: hipcc, clang and clang++, which compile each source and then link."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from zigtool import arguments, zig
from zigtool.arguments import Arguments, Source

_QUERIES = ("--version", "-dumpversion", "-dumpmachine", "-print-", "--print-", "--help", "-help")
# Linker options for what zig's linker does anyway, or that it does not know and that change nothing here.
_DROPPED_LINKER = (
    "-O",
    "--build-id",
    "--hash-style",
    "--enable-new-dtags",
    "--no-copy-dt-needed-entries",
    "--copy-dt-needed-entries",
    "--fatal-warnings",
    "--warn-common",
    "-Bsymbolic-functions",
    "--sort-common",
    "--threads",
)
_PARTS_OF_GLIBC = ("-lc", "-lm", "-lpthread", "-ldl", "-lrt", "-lutil", "-lresolv")
_RUNTIMES_OF_CPLUSPLUS = ("-lc++", "-lstdc++", "-lc++abi", "-lunwind", "-lgcc", "-lgcc_s")


def main(*, name: str) -> int:
    """Run as `hipcc`, `clang` or `clang++`."""
    words = sys.argv[1:]
    if any(word.startswith(_QUERIES) for word in words):
        return _query(name, words)
    asked = arguments.parse(words)
    if not asked.sources and not asked.link_line:
        zig.die("no input files")
    if asked.mode != "link":
        return _compile_only(asked, name)
    return _compile_and_link(asked, name)


def _query(name: str, words: list[str]) -> int:
    if name == "hipcc" and "--version" in words:
        sys.stdout.write(f"HIP version: {hip_version()}\n")
        sys.stdout.flush()
    return zig.run("clang", [f"--target={zig.clang_triple()}", *words])


def hip_version() -> str:
    """The HIP version of the headers beside this program."""
    header = (zig.PREFIX / "include" / "hip" / "hip_version.h").read_text(encoding="utf-8")
    values = dict(re.findall(r"#define HIP_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header))
    return ".".join(values[part] for part in ("MAJOR", "MINOR", "PATCH"))


def _compile_only(asked: Arguments, name: str) -> int:
    if asked.output and len(asked.sources) > 1:
        zig.die("cannot specify -o when generating multiple output files")
    for source in asked.sources:
        code = zig.run("clang", compile_line(asked, source, name, output=asked.output, mode=asked.mode))
        if code:
            return code
    return 0


def _compile_and_link(asked: Arguments, name: str) -> int:
    with tempfile.TemporaryDirectory(prefix="hipcc-") as folder:
        line: list[str] = []
        for number, item in enumerate(asked.link_line):
            if isinstance(item, str):
                line.append(item)
                continue
            # The name inside ends up nowhere, but it must not depend on the temporary folder.
            made = str(Path(folder, f"{Path(item.path).stem}-{number}.o"))
            code = zig.run("clang", compile_line(asked, item, name, output=made, mode="-c"))
            if code:
                return code
            line.append(made)
        words = link_line(asked, line, name)
        if asked.show_only:
            sys.stderr.write(f' "zig" "cc" {shlex.join(words)}\n')
            return 0
        if quick := library_line(words):
            return zig.run("ld.lld", quick)
        return zig.run("cc", words)


def compile_line(asked: Arguments, source: Source, name: str, *, output: str | None, mode: str) -> list[str]:
    """clang's arguments for one source."""
    line = [f"--target={zig.clang_triple()}", *zig.system_headers(cplusplus=source.is_cplusplus)]
    line += ["-Wno-unused-command-line-argument", "-fno-ident", "-ffile-prefix-map=" + os.getcwd() + "=."]  # noqa: PTH109
    if name == "hipcc" or source.is_hip:
        line += ["-D__HIP_PLATFORM_AMD__=1", "-D__HIP_PLATFORM_HCC__=1"]
        line += ["-isystem", str(zig.PREFIX / "include")]
    if source.is_hip:
        line += _hip_flags(asked, source)
    if asked.show_only:
        line.append("-###")
    line += [*asked.compile_flags, "-x", source.language, source.path, mode]
    return line + (["-o", output] if output else [])


def _hip_flags(asked: Arguments, source: Source) -> list[str]:
    archs = list(dict.fromkeys(asked.archs or arguments.default_archs()))
    if not archs:
        zig.die("no GPU target; pass --offload-arch=gfx942 (again for each further target)")
    # clang would derive the unit's id from its absolute path, which would make the bytes depend on it.
    content = Path(source.path).read_bytes() if Path(source.path).is_file() else source.path.encode()
    unit = hashlib.sha256(content + Path(source.path).name.encode()).hexdigest()[:16]
    flags = [f"--offload-arch={arch}" for arch in archs]
    # Code object 5 is what every runtime since ROCm 6 loads; -B finds our lld and clang-offload-bundler.
    return [*flags, "-nogpulib", "-nogpuinc", f"-cuid={unit}", "-mcode-object-version=5", f"-B{zig.TOOLS}"]


def link_line(asked: Arguments, line: list[str], name: str) -> list[str]:
    """`zig cc`'s arguments for the link: no C++ runtime unless it is named, as its build takes minutes."""
    # Stripped unless -g: zig's own C runtime would bring its paths along as debug information.
    debug = any(word.startswith("-g") and word != "-g0" for word in asked.compile_flags)
    words = ["-target", zig.zig_target(), "-O2", "-fno-sanitize=undefined", "-g" if debug else "-s"]
    for word in line:
        words += _linker_words(word)
    if name == "hipcc" and asked.hip_runtime:
        words.append(f"-L{zig.PREFIX / 'lib'}")
        if "-lamdhip64" not in line:
            words.append("-lamdhip64")
    return [*words, "-o", asked.output or "a.out"]


def library_line(words: list[str]) -> list[str]:
    """The linker's own arguments for what `zig cc` would be given; none where only zig knows what to link.

    A library needs only the C runtime, which `build.py` has put beside these programs: zig makes one in a
    cache that each build begins empty, and that takes five seconds.
    """
    runtime = zig.PREFIX / "lib" / "llvm" / "lib" / "c-runtime"
    if "-shared" not in words or not runtime.is_dir():
        return []
    line = ["--error-limit=0", "-O2", "--build-id=none", "--gc-sections", "--eh-frame-hdr", "-znow"]
    line += ["-m", {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}[zig.machine()]]
    target = words.index("-target")
    for word in words[:target] + words[target + 2 :]:
        if word.startswith("-Wl,"):
            line += word.split(",")[1:]
        elif word in ("-o", "-s", "-shared") or word.startswith("-L") or not word.startswith("-"):
            line.append(word)
        elif word.startswith("-l") and word not in _RUNTIMES_OF_CPLUSPLUS:
            line += [] if word in _PARTS_OF_GLIBC else [word]
        elif word not in ("-O2", "-fno-sanitize=undefined", "-pthread"):
            return []
    libraries = sorted(runtime.glob("*.so.*")) + sorted(runtime.glob("*.a"))
    return [*line, "--as-needed", *map(str, libraries)]


def _linker_words(word: str) -> list[str]:
    if not word.startswith("-Wl,"):
        return [] if word in ("-s", "-nostdlib++", "-static-libgcc", "-static-libstdc++", "-v") else [word]
    parts = re.sub(r",--exclude-libs,[^,]*", "", word).split(",")[1:]
    kept = [part for part in parts if not part.startswith(_DROPPED_LINKER)]
    return ["-Wl," + ",".join(kept)] if kept else []
