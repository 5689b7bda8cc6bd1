"""What a wheel of a cache that others write to must be, before it is used as if it had been built here."""

from __future__ import annotations

from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import targets as gpu
from cairn.build.cache import Check
from cairn.build.model import BuildRequest
from cairn.errors import WheelError
from cairn.stack import Project
from cairn.wheels.metadata import wheel_info


def check_of(project: Project, request: BuildRequest) -> Check:
    """The check of a wheel of `project` that a request takes from a shared cache.

    It is what a built wheel goes through, except for what takes its build environment: whether the libraries
    that it needs come with the packages beside it. The key of the wheel covers those.
    """

    def check(wheel: Path) -> None:
        from cairn.wheels.verify import Expectation, verify  # noqa: PLC0415 - see `cairn.build.job`

        name = wheel_info.parse_file_name(wheel.name)
        if name.distribution != canonicalize_name(project.distribution):
            raise WheelError(f"{wheel.name} is not a wheel of {project.distribution}")
        expected = Expectation(
            targets=request.targets if project.device_code else (gpu.CPU,),
            require_device_code=project.device_code and not request.for_cpu,
            provided_libraries=("*",),
            python=request.python.version,
        )
        if findings := verify(wheel, expected):
            first = findings[0]
            raise WheelError(f"{wheel.name}: {first.member or 'the wheel'}: {first.reason}", tip=first.fix)

    return check
