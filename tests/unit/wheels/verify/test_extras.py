"""What a requirement asks of another wheel's extras is there: pip only warns, and installs nothing for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.release import make_wheel
from helpers.wheels import cairn_wheel


@pytest.mark.parametrize(
    ("requirement", "lacking"),
    [
        ("rocm[Lib.Raries,devel]==7.10.0", ""),
        ("rocm[libraries]==7.10.0", "libraries"),
        ("rocm[devel,libraries,profiler]", "libraries, profiler"),
        ("rocm[libraries] ; extra == 'gpu'", "libraries"),
        ("rocm[libraries] ; sys_platform == 'win32'", ""),
        ("rocm[libraries] ; python_version < '3' and extra == 'gpu'", ""),
        ("rocm[libraries]==7.9.0", ""),  # which is another finding
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_the_extra_of_a_requirement_is_declared_by_the_wheel_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], requirement: str, lacking: str, *, linked: bool
) -> None:
    tag = "py3-none-manylinux_2_28_x86_64" if "win32" in requirement else "py3-none-any"
    torch = make_wheel(tmp_path, "torch", "2.9", requires=[requirement], extras=["gpu"], tag=tag)
    rocm = make_wheel(tmp_path / "sdk", "rocm", "7.10.0", extras=["devel", "lib_raries"])
    beside = ("--find-links", rocm.parent) if linked else (rocm,)
    cairn_wheel("verify", torch, *beside)
    printed = capsys.readouterr().out
    assert ("[extra-undeclared]" in printed) == bool(lacking)
    assert f"which has no extra {lacking}\n" in printed or not lacking
