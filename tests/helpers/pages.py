"""Indexes as the pages for people see them: a channel with sets for GPUs and for the CPU, and a family."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence

from cairn.release.index.generation import IndexSet, LogEntry
from cairn.release.pages.view import IndexView

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
NO_GPU = "untested on hardware: gfx1101, gfx1102, gfx1103; bypassed by ann: none of these is here"


def one_set(
    number: int,
    torch: str,
    targets: Sequence[str],
    *,
    family: str = "gfx94X-dcgpu",
    line: str = "release/2.9",
    python: str = PYTHON,
    platform: str = PLATFORM,
    added: str = "2026-11-20T01:02:03.000000Z",
    untested: str | None = None,
    untested_targets: Sequence[str] = (),
    yanked: str | None = None,
) -> IndexSet:
    """A set of torch, torchvision, torchaudio and triton; its id repeats `number`."""
    version, plus, local = torch.partition("+")
    return IndexSet(
        set_id=f"{number:02x}" * 32,
        stack="pytorch",
        manifest_sha256=f"{number:02x}" * 32,
        line=line,
        python=python,
        platform=platform,
        family=family,
        targets=tuple(targets),
        projects={
            "torch": torch,
            "torchaudio": torch,
            "torchvision": f"0.{int(version.split('.')[1]) + 15}.0{plus}{local}",
            "triton": f"3.5.1{plus}{local}",
        },
        added=added,
        untested=untested,
        untested_targets=tuple(untested_targets),
        installed_with=("pip", "uv"),
        yanked=yanked,
    )


def channel(name: str = "release", sets: Sequence[IndexSet] = ()) -> IndexView:
    """A channel whose newest set is for gfx942 alone, with one for gfx1201 too, and one for the CPU."""
    return IndexView(
        name=name,
        generation=12,
        when="2026-11-21T04:05:06.000000Z",
        sets=(
            one_set(1, "2.9.0+rocm7.10.0", ("gfx942", "gfx1201")),
            one_set(2, "2.10.0+rocm7.11.0", ("gfx942",), line="release/2.10", added="2026-11-21T04:05:06Z"),
            one_set(3, "2.9.0+cpu", ("cpu",), family="cpu"),
            one_set(4, "2.8.0+rocm7.9.0", ("gfx942",), line="release/2.8", yanked="wrong results of matmul"),
            *sets,
        ),
        changes=(
            LogEntry(
                number=12,
                action="promote",
                who="ann",
                when="2026-11-21T04:05:06.000000Z",
                why="torch 2.10 is out",
            ),
            LogEntry(
                number=11,
                action="yank",
                who="bob",
                when="2026-11-20T12:00:00.000000Z",
                why="wrong results of matmul",
            ),
            LogEntry(number=10, action="promote", who="ann", when="2026-11-20T01:02:03.000000Z"),
        ),
    )


def family() -> IndexView:
    """The index of a family beside the channel; one of its targets was tested."""
    return IndexView(
        name="release/gfx110X-all",
        generation=3,
        when="2026-11-20T01:02:03.000000Z",
        sets=(
            one_set(
                5,
                "2.9.0+rocm7.10.0",
                ("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
                family="gfx110X-all",
                untested=NO_GPU,
                untested_targets=("gfx1101", "gfx1102", "gfx1103"),
            ),
        ),
        changes=(
            LogEntry(number=3, action="promote", who="ann", when="2026-11-20T01:02:03.000000Z", why="first"),
        ),
    )
