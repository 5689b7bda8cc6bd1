"""A library of a required wheel counts where a run path or a preload leads to it."""

from __future__ import annotations

import pytest

from helpers.formats import make_elf
from helpers.wheels import MakeWheel, cairn_wheel

TAGS = ("cp311-cp311-manylinux_2_28_x86_64",)
HIP, LZMA = "libamdhip64.so.7", "librocm_sysdeps_liblzma.so.5"
CORE = {
    f"_rocm_sdk_core/lib/{HIP}": make_elf(soname=HIP),
    f"_rocm_sdk_core/lib/rocm_sysdeps/lib/{LZMA}": make_elf(soname=LZMA),
}
INIT = b"def initialize():\n    rocm_sdk.initialize_process(preload_shortnames=['amdhip64'])\n"
RUN_PATH = "$ORIGIN/../../_rocm_sdk_core/lib"


@pytest.mark.parametrize(
    ("needed", "run_path", "init", "lost"),
    [
        ((HIP,), "", INIT, ""),
        ((HIP,), "", b"", HIP),  # ROCm/TheRock#6965
        ((HIP,), RUN_PATH, b"", ""),
        ((HIP, LZMA), RUN_PATH, INIT, LZMA),  # pytorch/pytorch#188454
        ((HIP, LZMA), f"{RUN_PATH}:{RUN_PATH}/rocm_sysdeps/lib", b"", ""),
        ((HIP, LZMA), "", INIT.replace(b"']", b"', 'rocm_sysdeps_liblzma']"), ""),
    ],
)
def test_a_library_that_no_loader_finds_is_missed(
    make_wheel: MakeWheel,
    capsys: pytest.CaptureFixture[str],
    needed: tuple[str, ...],
    run_path: str,
    init: bytes,
    lost: str,
) -> None:
    core = make_wheel(name="rocm_sdk_core", version="7", tags=TAGS, files=CORE, requires=())
    files = {"torch/lib/libtorch_hip.so": make_elf(soname="libtorch_hip.so", needed=needed, runpath=run_path)}
    files |= {
        "torch/__init__.py": b"ctypes.CDLL('libx.so')",
        **({"torch/_rocm_init.py": init} if init else {}),
    }
    torch = make_wheel(name="torch", version="2", tags=TAGS, files=files, requires=("rocm-sdk-core==7",))
    assert cairn_wheel("verify", torch, core) == (7 if lost else 0)
    printed = capsys.readouterr().out
    assert printed.count("[needed]") == bool(lost)
    assert not lost or f"it needs {lost} of a wheel that it requires" in printed
