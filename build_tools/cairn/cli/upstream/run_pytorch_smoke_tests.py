"""What `run_pytorch_smoke_tests.py` does: run the tests beside it on the PyTorch that is installed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.errors import TestsFailedError
from cairn.output import console


def main(*, script: str) -> int:
    """Run the tests of the folder `smoke-tests` beside `script`; arguments after `--` go to pytest."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Run sample computations on the PyTorch that is installed in this environment. "
        "Without a GPU, the tests that need one are skipped.",
        epilog=f"example: python {script.name} -- --log-cli-level=INFO -v",
    )
    parser.add_argument(
        "--amdgpu-family",
        default=os.environ.get("AMDGPU_FAMILY", ""),
        metavar="NAME",
        help="family or target that the tests run on, such as gfx94X-dcgpu (default: AMDGPU_FAMILY, or any)",
    )
    parser.add_argument("pytest_args", nargs="*", metavar="-- PYTEST ARGS", help="passed on to pytest")
    parser.set_defaults(run=_run, tests=script.resolve().parent / "smoke-tests")
    return parser


def _run(options: argparse.Namespace) -> int:
    from cairn.targets import parse_targets
    from cairn.testing.installed import run_installed

    targets = parse_targets(options.amdgpu_family) if options.amdgpu_family else ()
    given = tuple(options.pytest_args)
    result = run_installed(options.tests, given, targets=targets, on_line=console.current().out)
    judgement = result.judgement
    if judgement.verdict != "passed":
        raise TestsFailedError(
            f"the smoke tests did not pass: {judgement.reason}",
            tip="the lines above say why; is torch installed in this environment?",
        )
    console.current().out(f"passed: {judgement.reason}")
    return 0
