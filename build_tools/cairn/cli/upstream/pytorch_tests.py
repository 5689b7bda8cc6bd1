"""Upstream's `run_pytorch_smoke_tests.py` and `run_pytorch_tests.py`: tests of an installed PyTorch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters, extras
from cairn.cli import binder
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece
from cairn.cli.parser import Parser
from cairn.cli.test import suite_options
from cairn.cli.test.suite_options import SuiteOptions
from cairn.errors import PrerequisiteError, TestsFailedError
from cairn.options import argument, fill, option, switch
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
        """Return the targets of the family; none if any will do."""
        from cairn.targets import parse_targets

        return parse_targets(self.amdgpu_family) if self.amdgpu_family else ()


@dataclass(frozen=True, kw_only=True)
class Smoke(HardwareOptions):
    """Options of the script.

    Run sample computations on the PyTorch that is installed in the active environment, or in that of Cairn.
    Without a GPU, the tests that need one are skipped.

        python run_pytorch_smoke_tests.py -- --log-cli-level=INFO -v
    """

    python: Path | None = common.tested_python()
    pytest_args: tuple[str, ...] = argument("-- PYTEST ARGS", "passed on to pytest", nargs="*")
    tests: Path


def run_pytorch_smoke_tests(script: Path) -> Parser:
    """The parser of `run_pytorch_smoke_tests.py`, which runs `smoke-tests` beside it."""
    parser = binder.script(
        script, Smoke, _run_smoke_tests, defaults={"amdgpu_family": os.environ.get("AMDGPU_FAMILY", "")}
    )
    parser.set_defaults(tests=script.resolve().parent / "smoke-tests")
    return parser


def _run_smoke_tests(request: Smoke) -> list[Piece]:
    from cairn import interpreters
    from cairn.testing.smoke import run_installed

    extras.demand("test")
    judgement = run_installed(
        request.tests,
        request.pytest_args,
        python=interpreters.of_user(request.python),
        targets=request.targets(),
        on_line=console.current().out,
    )
    if judgement.verdict != "passed":
        raise TestsFailedError(
            f"the smoke tests did not pass: {judgement.reason}",
            tip="the lines above say why",
        )
    return [f"passed: {judgement.reason}"]


if TYPE_CHECKING:
    from cairn.testing.gpus.visible import GpuChoice
    from cairn.testing.suite.suite_toml import Gpus


@dataclass(frozen=True, kw_only=True)
class RunTests(SuiteOptions, HardwareOptions):
    """Options of the script.

    Run PyTorch's own tests, but those of skip-tests, on the PyTorch that is installed in the active
    environment, or in that of Cairn. The sources must be of the wheel's commit. The tests are copied out of
    them, and run module by module in processes of their own: a test that crashes or hangs costs itself alone.

        python run_pytorch_tests.py --pytorch-dir pytorch --amdgpu-family gfx94X-dcgpu --include
        test_nn test_torch -- -x
    """

    pytorch_dir: Path = option(
        "checkout of torch (default: pytorch, beside the script)", convert=converters.folder, required=True
    )
    pytorch_version: str = option(
        "version that skip-tests go by, or all (default: PYTORCH_VERSION, else the wheel's)",
        default="",
        metavar="VERSION",
    )
    only_skipped: bool = switch("run only the tests that skip-tests name", "--debug")
    cache: bool = switch("let pytest keep its cache, in the copy of the tests", default=True)
    device_query: str | None = option(
        "of the GPUs that fit, which --gpu-policy chooses from: one of each kind, or every one "
        "(default: every one where the configuration's tests see all, else one of each kind)",
        choices=("unique", "all"),
    )
    output_dir: Path = common.output_dir(default=Path("pytorch-tests"))


def run_pytorch_tests(script: Path) -> Parser:
    """The parser of `run_pytorch_tests.py`, which runs the tests of the checkout `pytorch` beside it."""
    folder = script.resolve().parent
    options = {
        "pytorch_dir": folder / "pytorch",
        "amdgpu_family": os.environ.get("AMDGPU_FAMILY", ""),
        "pytorch_version": os.environ.get("PYTORCH_VERSION", ""),
    }
    # Upstream's --debug turns the skips round; ours would show tracebacks.
    parser = binder.script(script, RunTests, _run_tests, defaults=options, conflict_handler="resolve")
    parser.set_defaults(folder=folder)
    return parser


def _run_tests(request: RunTests) -> Answer:
    from cairn import interpreters
    from cairn.testing.gpus import kernel
    from cairn.testing.install_set import Tested
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest

    extras.demand("test")
    targets = request.targets()
    if targets and targets != ("cpu",) and not kernel.gpu_names():
        raise PrerequisiteError(
            f"this machine has no GPU, and the tests are to run on {request.amdgpu_family}",
            tip="leave --amdgpu-family out to run what needs none",
        )
    tested = Tested(
        python=interpreters.of_user(request.python),
        variables=request.variables(),
        family=request.amdgpu_family,
        targets=targets,
    )
    suite = suite_toml.load(request.suite_file())
    values = request.request_values(request.pytorch_dir.absolute())
    if not request.cache:
        values["pytest_args"] = ("-p", "no:cacheprovider", *values["pytest_args"])
    values["gpu_choice"] = gpu_choice(request, suite.config(request.test_config).gpus)
    suite_request = fill(
        SuiteRequest,
        request,
        suite=suite,
        tested=tested,
        torch_version={"": None, "all": ""}.get(request.pytorch_version, request.pytorch_version),
        **values,
    )
    return suite_options.run(suite_request, request)


def gpu_choice(request: RunTests, configured: Gpus) -> GpuChoice:
    """The GPUs that `--gpu-policy` chooses among those of `--device-query`, by the defaults of upstream."""
    every = (configured if request.device_query is None else request.device_query) == "all"
    chosen = suite_options.UPSTREAM_GPUS.get(request.gpu_policy, configured)
    return chosen if chosen == "one" or every else "one-of-each"
