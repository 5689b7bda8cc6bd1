"""What `run_pytorch_smoke_tests.py` does: run the tests beside it on the PyTorch that is installed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cairn.cli import binder
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.errors import TestsFailedError
from cairn.options import argument, option
from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class HardwareOptions:
    """`--amdgpu-family`, which upstream's two scripts that test have."""

    amdgpu_family: str = option(
        "family or target that the tests run on, such as gfx94X-dcgpu (default: AMDGPU_FAMILY, or any)",
        default="",
        metavar="NAME",
    )

    def targets(self) -> tuple[str, ...]:
        """What the family stands for; nothing where any will do."""
        from cairn.targets import parse_targets

        return parse_targets(self.amdgpu_family) if self.amdgpu_family else ()


@dataclass(frozen=True, kw_only=True)
class Smoke(HardwareOptions):
    """What the script is asked for.

    Run sample computations on the PyTorch that is installed in this environment. Without a GPU, the tests
    that need one are skipped.

        python run_pytorch_smoke_tests.py -- --log-cli-level=INFO -v
    """

    pytest_args: tuple[str, ...] = argument("-- PYTEST ARGS", "passed on to pytest", nargs="*")
    tests: Path


def main(*, script: str) -> int:
    """Run the tests of the folder `smoke-tests` beside `script`; arguments after `--` go to pytest."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> Parser:
    parser = binder.script(
        script, Smoke, run, defaults={"amdgpu_family": os.environ.get("AMDGPU_FAMILY", "")}
    )
    parser.set_defaults(tests=script.resolve().parent / "smoke-tests")
    return parser


def run(request: Smoke) -> None:
    """Run the script."""
    from cairn.testing.installed import run_installed

    judgement = run_installed(
        request.tests, request.pytest_args, targets=request.targets(), on_line=console.current().out
    ).judgement
    if judgement.verdict != "passed":
        raise TestsFailedError(
            f"the smoke tests did not pass: {judgement.reason}",
            tip="the lines above say why; is torch installed in this environment?",
        )
    console.current().out(f"passed: {judgement.reason}")
