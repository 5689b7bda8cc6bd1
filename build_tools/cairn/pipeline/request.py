"""The request of a run of the trail, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import targets as gpu
from cairn.build.model import BuiltWheel
from cairn.output import console
from cairn.pipeline.pipeline_options import TrailOptions
from cairn.release.promote import Promotion
from cairn.release.provenance.signing_key import Signer
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Stack
from cairn.testing.record import TestRecord
from cairn.wheels.wheelset import WheelSet


@dataclass(frozen=True, kw_only=True)
class TrailRequest(TrailOptions):
    """A run of the trail.

    Attributes:
        stack: the stack, on its line.
        targets: GPU targets, or `cpu` alone.
        signer: the key that vouches for the wheels and the test record; None for no signature.
    """

    stack: Stack
    targets: tuple[str, ...]
    signer: Signer | None = None

    @property
    def with_rocm(self) -> bool:
        """Whether an SDK is made and installed for it."""
        return self.stack.sdk is not None and self.targets != (gpu.CPU,)

    @property
    def wheels_dir(self) -> Path:
        """Where the wheels of the run go."""
        return self.work_dir / "wheels"

    @property
    def store_dir(self) -> Path:
        """The store with the staging and the release channel."""
        return self.work_dir / "index"

    @property
    def logs_dir(self) -> Path:
        """Where the logs of the run go."""
        return self.work_dir / "logs"


@dataclass(frozen=True, kw_only=True)
class StageSpan:
    """A stage that has ended; times in seconds since the epoch.

    Attributes:
        name: what the report and the console call it.
        start: when it began.
        end: when it ended.
        mark: how it ended.
        detail: why, where it was not plainly done.
    """

    name: str
    start: float
    end: float
    mark: console.Mark = "done"
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class TrailResult:
    """The result of a run of the trail.

    Attributes:
        checkouts: what was built from.
        wheels: what was built.
        wheel_set: the set they form.
        rocm_version: of the SDK; None for a stack without ROCm.
        record: of the smoke tests.
        promotion: of the set to the release channel.
        untested_note: `untested on hardware: gfx942`; None for a set that was tested on all that it is for.
        installers: programs that installed the set from the release index.
        pip_line: the command that installs the set.
        uv_line: likewise, with uv.
        report: the HTML report.
        spans: when each stage ran.
    """

    checkouts: tuple[Checkout, ...]
    wheels: tuple[BuiltWheel, ...]
    wheel_set: WheelSet
    rocm_version: str | None
    record: TestRecord
    promotion: Promotion
    untested_note: str | None
    installers: tuple[str, ...]
    pip_line: str
    uv_line: str
    report: Path
    spans: tuple[StageSpan, ...]
