"""Contract: hipconfig, where this ROCm is and what it is."""

from __future__ import annotations

import sys

from zigtool import driver, zig


def main() -> int:
    """Run as `hipconfig [--version|--path|--rocmpath|--platform|--compiler|--runtime|--hipclangpath]`."""
    answers = {
        "version": driver.hip_version(),
        "path": str(zig.PREFIX),
        "rocmpath": str(zig.PREFIX),
        "hipclangpath": str(zig.TOOLS),
        "cpp_config": f"-D__HIP_PLATFORM_AMD__= -I{zig.PREFIX}/include",
        "platform": "amd",
        "compiler": "clang",
        "runtime": "rocclr",
    }
    short = {"v": "version", "p": "path", "R": "rocmpath", "l": "hipclangpath", "C": "cpp_config",
             "P": "platform", "c": "compiler", "r": "runtime"}  # fmt: skip
    words = [word.lstrip("-") for word in sys.argv[1:]]
    for word in words:
        key = short.get(word, word)
        if key not in answers:
            zig.die(f"unknown option --{word}; known: {', '.join('--' + name for name in answers)}")
        # Without a newline, as the original prints it: scripts compare the whole output.
        sys.stdout.write(answers[key])
    if not words:
        sys.stdout.write("".join(f"{name:14}: {value}\n" for name, value in answers.items()))
    return 0
