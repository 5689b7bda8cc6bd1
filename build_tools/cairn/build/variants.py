"""The variants of one build: each combination of release line, family and Python.

`expand` makes of one `Job` the jobs of all variants. A single variant is the job as it was: its layout is the
same as ever. Several have a folder each below the output folder, `release-2.9/gfx94X-dcgpu/3.12`, and the
checkouts of several lines are in a folder each below the root.

Variants share what they can, and run side by side. One checkout serves all families and Pythons of its line:
each builds in a copy of its own (`cairn.sources.worktree.twin`), and the checkout itself is only read. One
ROCm SDK serves all Pythons of its family.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import targets as gpu
from cairn.build.model import Job, SdkRequest
from cairn.errors import UsageError
from cairn.interpreters import Interpreter
from cairn.venv import PackageSource

FAMILY = "{family}"
"""Stands in `--index-url` and `--find-links` for the family: upstream's indexes are named after it."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")


class Axes(msgspec.Struct, frozen=True, kw_only=True):
    """The axes of variants; an empty one has the value of the job.

    Attributes:
        lines: release lines.
        families: families, or single targets, one set of wheels each.
        pythons: interpreters.
    """

    lines: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    pythons: tuple[Interpreter, ...] = ()

    def __post_init__(self) -> None:
        for axis, names in (("line", self.lines), ("family", self.families)):
            if twice := [name for number, name in enumerate(names) if name in names[:number]]:
                raise UsageError(f"the {axis} {twice[0]} is named twice", tip="name each once")

    @property
    def several(self) -> bool:
        """Whether there is more than one variant."""
        return max(len(self.lines), len(self.families), len(self.pythons)) > 1


def folder_name(line: str) -> str:
    """A release line as the name of a folder: `release-2.9`."""
    return _NOT_IN_NAMES.sub("-", line)


def checkouts(job: Job, axes: Axes, root: Path) -> Mapping[str, Mapping[str, Path]]:
    """Return the checkout folders of each line; with several lines, each has a folder below the root."""
    if len(axes.lines) < 2:  # noqa: PLR2004 - one line
        return dict.fromkeys(axes.lines, job.checkouts)
    return {
        line: {p.name: root / folder_name(line) / p.checkout_dir for p in job.stack.projects}
        for line in axes.lines
    }


def expand(job: Job, axes: Axes, *, root: Path) -> tuple[Job, ...]:
    """Make the job of each variant: by lines, then families, then Pythons, each in the order given.

    Args:
        job: what they have in common.
        axes: the variants.
        root: the folder that has the checkouts, or, for several lines, a folder with those of each.

    Raises:
        UsageError: a line or a family does not exist, or targets are named as well as families.
    """
    if axes.families and job.targets is not None:
        raise UsageError(
            "--targets and --families exclude each other",
            tip="--targets puts all that it names into the same wheels, --families makes wheels for each",
        )
    for line in axes.lines:
        job.stack.for_line(line)  # it must know the line
    for family in axes.families:
        gpu.parse_targets(family)
    trees = checkouts(job, axes, root)
    return tuple(
        _job_of(job, axes, line, family, python, trees)
        for line in axes.lines or (job.line,)
        for family in axes.families or (None,)
        for python in axes.pythons or (job.python,)
    )


def labels(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return a short distinguishing label for each variant; empty for a single one."""
    parts = [[name or "" for name in job.variant or ("", "", "")] for job in jobs]
    differ = [len({part[number] for part in parts}) > 1 for number in range(3)]
    return tuple(" ".join(text for text, shown in zip(part, differ, strict=True) if shown) for part in parts)


def _job_of(
    job: Job,
    axes: Axes,
    line: str | None,
    family: str | None,
    python: Interpreter,
    trees: Mapping[str, Mapping[str, Path]],
) -> Job:
    changed = structs.replace(
        job,
        line=line,
        targets=family or job.targets,
        python=python,
        checkouts=trees.get(line or "", job.checkouts),
        sdk=_sdk_of(job.sdk, family),
    )
    if not axes.several:
        return changed
    # The SDK is installed into the environments' folder: one for each family, whatever the Python.
    env_dir = job.environments() / folder_name(family) if family else job.environments()
    family_name = job.sdk.family
    if changed.targets:
        family_name = gpu.family_of(gpu.parse_targets(changed.targets))
    family_name = gpu.CPU if changed.for_cpu() else family_name or "all"  # all that the SDK serves
    folder = Path(folder_name(line or job.stack.line), folder_name(family or family_name), python.version)
    return structs.replace(
        changed,
        variant=(line, family, python.version),
        output_dir=job.output_dir / folder,
        env_dir=env_dir,
        trees=job.environments() / "trees" / folder,
    )


def _sdk_of(sdk: SdkRequest, family: str | None) -> SdkRequest:
    """Return the SDK request for a family, from that family's index or from one for several families."""
    source = sdk.source
    places = (source.index_url or "", *source.find_links)
    if family is None:
        if any(FAMILY in place for place in places):
            raise UsageError(f"{FAMILY} stands for one of --families, and none is named")
        return sdk
    changed: PackageSource = dataclasses.replace(
        source,
        index_url=source.index_url and source.index_url.replace(FAMILY, family),
        find_links=tuple(place.replace(FAMILY, family) for place in source.find_links),
    )
    family_name = gpu.family_of(gpu.parse_targets(family))
    return structs.replace(sdk, source=changed, family=sdk.family or family_name)
