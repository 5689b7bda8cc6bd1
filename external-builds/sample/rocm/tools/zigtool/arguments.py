"""Contract: clang's command line, taken apart as far as compiling and linking need it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from zigtool import zig

# Options whose value is the next word (clang's Options.td; those a build of a wheel meets).
_SEPARATE_COMPILE = {
    "-x", "-I", "-D", "-U", "-include", "-isystem", "-iquote", "-idirafter", "-imacros", "-isysroot",
    "-MF", "-MT", "-MQ", "-Xclang", "-Xpreprocessor", "-mllvm", "-arch", "--sysroot",
}  # fmt: skip
_SEPARATE_LINK = {"-L", "-l", "-Xlinker", "-T", "-u", "-z", "-rpath", "-soname", "-h", "-e"}
_LINK_ONLY = {
    "-shared", "-static", "-rdynamic", "-pie", "-no-pie", "-s", "-nostdlib", "-nodefaultlibs",
    "-nostartfiles", "-static-libgcc", "-static-libstdc++", "-nostdlib++",
}  # fmt: skip
_LINK_PREFIXES = ("-L", "-l", "-Wl,", "-fuse-ld=", "-rtlib=", "--rtlib=", "-static-")
_STOP_EARLY = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}
_SOURCES = {
    ".hip": "hip", ".cu": "hip", ".cpp": "c++", ".cc": "c++", ".cxx": "c++", ".C": "c++", ".c": "c",
    ".s": "assembler", ".S": "assembler-with-cpp", ".h": "c-header", ".hpp": "c++-header",
    ".i": "cpp-output", ".ii": "c++-cpp-output",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One input to compile."""

    path: str
    language: str

    @property
    def is_hip(self) -> bool:
        return self.language in ("hip", "cuda")

    @property
    def is_cplusplus(self) -> bool:
        return self.is_hip or self.language.startswith("c++")


@dataclass
class Arguments:
    """What was asked for; `link_line` keeps sources, objects and link flags in their order."""

    mode: str = "link"  # or the flag that stops early: -c, -S, -E …
    output: str | None = None
    archs: list[str] = field(default_factory=list)
    compile_flags: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    link_line: list[str | Source] = field(default_factory=list)
    hip_runtime: bool = True
    show_only: bool = False

    @property
    def has(self) -> set[str]:
        return {item for item in (*self.compile_flags, *self.link_line) if isinstance(item, str)}


def parse(words: list[str]) -> Arguments:
    """Take a command line apart."""
    found, language = Arguments(), "none"
    queue = _expanded(words)
    while queue:
        word = queue.pop(0)
        if word in ("-x", "-o", "--offload-arch") or word in _SEPARATE_COMPILE | _SEPARATE_LINK:
            if not queue:
                zig.die(f"argument to '{word}' is missing")
            value = queue.pop(0)
            if word == "-x":
                language = value
            else:
                _take_pair(found, word, value)
        elif word.startswith("-x") and len(word) > len("-x"):
            language = word[2:]
        elif word.startswith("-") and word != "-":
            _take_flag(found, word)
        else:
            _take_input(found, word, language)
    return found


def _expanded(words: list[str]) -> list[str]:
    expanded = []
    for word in words:
        if word.startswith("@") and Path(word[1:]).is_file():
            expanded += _expanded(shlex.split(Path(word[1:]).read_text(encoding="utf-8")))
        else:
            expanded.append(word)
    return expanded


def _take_pair(found: Arguments, word: str, value: str) -> None:
    if word == "-o":
        found.output = value
    elif word == "--offload-arch":
        found.archs += _split(value)
    elif word in _SEPARATE_LINK:
        # Joined or behind -Xlinker, a pair cannot be torn apart later.
        found.link_line.append(f"{word}{value}" if word in ("-L", "-l") else f"-Wl,{_linker(word, value)}")
    else:
        found.compile_flags += [word, value]


def _linker(word: str, value: str) -> str:
    return value if word == "-Xlinker" else f"{word},{value}"


def _take_flag(found: Arguments, word: str) -> None:  # noqa: C901 - one line a flag
    if word in _STOP_EARLY:
        found.mode = word
    elif word.startswith("-o"):
        found.output = word[2:]
    elif word.startswith("--offload-arch="):
        found.archs += _split(word.partition("=")[2])
    elif word == "-###":
        found.show_only = True
    elif word in ("-no-hip-rt", "--no-hip-rt"):
        found.hip_runtime = False
    elif word == "--hip-link" or word.startswith(("--rocm-path=", "--hip-path=", "--rocm-device-lib-path=")):
        pass  # there is one ROCm here, the one this program lies in
    elif word in _LINK_ONLY or word.startswith(_LINK_PREFIXES):
        found.link_line.append(word)
    else:
        found.compile_flags.append(word)
        if word in ("-pthread", "-v"):
            found.link_line.append(word)


def _take_input(found: Arguments, word: str, language: str) -> None:
    language = _SOURCES.get(Path(word).suffix, "none") if language == "none" else language
    if language == "none":
        if word == "-":
            zig.die("-E or -x required when input is from standard input")
        if not Path(word).exists():
            zig.die(f"no such file or directory: '{word}'")
        found.link_line.append(word)
        return
    source = Source(word, language)
    found.sources.append(source)
    found.link_line.append(source)


def _split(value: str) -> list[str]:
    return [name for name in value.split(",") if name]


def default_archs() -> list[str]:
    """Targets from the environment, as hipcc reads them."""
    return _split(os.environ.get("HCC_AMDGPU_TARGET", ""))
