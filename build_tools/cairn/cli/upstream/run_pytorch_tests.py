"""What `run_pytorch_tests.py` does: run PyTorch's own tests on the PyTorch that is installed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import binder, fields
from cairn.cli.answer import Answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.test import suite_options
from cairn.cli.test.suite_options import SuiteOptions
from cairn.cli.upstream.run_pytorch_smoke_tests import HardwareOptions
from cairn.errors import PrerequisiteError
from cairn.options import option, switch

if TYPE_CHECKING:
    from cairn.testing.gpus.visible import GpuChoice
    from cairn.testing.suite.suite_toml import Gpus


@dataclass(frozen=True, kw_only=True)
class RunTests(SuiteOptions, HardwareOptions):
    """What the script is asked for.

    Run PyTorch's own tests on the PyTorch that is installed in this environment, but those of skip-tests.
    The sources must be of the wheel's commit. The tests are copied out of them, and run module by module
    in processes of their own: a test that crashes or hangs costs itself alone.

        python run_pytorch_tests.py --pytorch-dir pytorch --amdgpu-family gfx94X-dcgpu --include
        test_nn test_torch -- -x
    """

    pytorch_dir: Path = option(
        "checkout of torch (default: pytorch, beside the script)",
        metavar="DIR",
        convert=converters.folder,
        required=True,
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
    output_dir: Path = fields.output_dir(default=Path("pytorch-tests"))
    python: Path | None = fields.python("that has PyTorch")


def main(*, script: str) -> int:
    """Run the tests of the checkout `pytorch` beside `script`; arguments after `--` go to pytest."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> Parser:
    folder = script.resolve().parent
    own = {
        "pytorch_dir": folder / "pytorch",
        "amdgpu_family": os.environ.get("AMDGPU_FAMILY", ""),
        "pytorch_version": os.environ.get("PYTORCH_VERSION", ""),
    }
    # Upstream's --debug turns the skips round; ours would show tracebacks.
    parser = binder.script(script, RunTests, run, defaults=own, conflict_handler="resolve")
    parser.set_defaults(folder=folder)
    return parser


def run(request: RunTests) -> Answer:
    """Run the script."""
    from cairn.testing.gpus import kernel
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested

    targets = request.targets()
    if targets and targets != ("cpu",) and not kernel.seen():
        raise PrerequisiteError(
            f"this machine has no GPU, and the tests are to run on {request.amdgpu_family}",
            tip="leave --amdgpu-family out to run what needs none",
        )
    tested = Tested(
        python=request.python or Path(sys.executable),
        variables=request.variables(),
        family=request.amdgpu_family,
        targets=targets,
    )
    suite = suite_toml.load(request.suite_file())
    values = request.request_values(request.pytorch_dir.absolute())
    if not request.cache:
        values["pytest_args"] = ("-p", "no:cacheprovider", *values["pytest_args"])
    values["gpu_choice"] = gpu_choice(request, suite.config(request.test_config).gpus)
    suite_request = SuiteRequest(
        suite=suite,
        tested=tested,
        only_skipped=request.only_skipped,
        torch_version={"": None, "all": ""}.get(request.pytorch_version, request.pytorch_version),
        **values,
    )
    return suite_options.run(suite_request, request)


def gpu_choice(request: RunTests, configured: Gpus) -> GpuChoice:
    """The GPUs that `--gpu-policy` chooses among those of `--device-query`, by the defaults of upstream."""
    every = (configured if request.device_query is None else request.device_query) == "all"
    chosen = suite_options.UPSTREAM_GPUS.get(request.gpu_policy, configured)
    return chosen if chosen == "one" or every else "one-of-each"
