"""What `run_pytorch_tests.py` does: run PyTorch's own tests on the PyTorch that is installed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.test import suite_options
from cairn.errors import PrerequisiteError

if TYPE_CHECKING:
    from cairn.testing.suite.suite_toml import Gpus
    from cairn.testing.suite.visible_gpus import GpuChoice


def main(*, script: str) -> int:
    """Run the tests of the checkout `pytorch` beside `script`; arguments after `--` go to pytest."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> argparse.ArgumentParser:
    folder = script.resolve().parent
    parser = Parser(
        prog=script.name,
        # Upstream's --debug turns the skips round; ours would show tracebacks.
        conflict_handler="resolve",
        description="Run PyTorch's own tests on the PyTorch that is installed in this environment, but "
        "those of skip-tests. The sources must be of the wheel's commit. The tests are copied out of them, "
        "and run module by module in processes of their own: a test that crashes or hangs costs itself "
        "alone.",
        epilog=f"example: python {script.name} --pytorch-dir pytorch --amdgpu-family gfx94X-dcgpu "
        "--include test_nn test_torch -- -x",
    )
    parser.add_argument(
        "--pytorch-dir",
        type=converters.folder,
        default=folder / "pytorch",
        metavar="DIR",
        help="checkout of torch (default: pytorch, beside the script)",
    )
    parser.add_argument(
        "--amdgpu-family",
        default=os.environ.get("AMDGPU_FAMILY", ""),
        metavar="NAME",
        help="family or target that the tests run on, such as gfx94X-dcgpu (default: AMDGPU_FAMILY, or any)",
    )
    parser.add_argument(
        "--pytorch-version",
        default=os.environ.get("PYTORCH_VERSION", ""),
        metavar="VERSION",
        help="version that skip-tests go by, or all (default: PYTORCH_VERSION, else the wheel's)",
    )
    parser.add_argument(
        "--debug",
        dest="only_skipped",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run only the tests that skip-tests name",
    )
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let pytest keep its cache, in the copy of the tests",
    )
    parser.add_argument(
        "--device-query",
        choices=("unique", "all"),
        help="of the GPUs that fit, which --gpu-policy chooses from: one of each kind, or every one "
        "(default: every one where the configuration's tests see all, else one of each kind)",
    )
    suite_options.add_config(parser)
    suite_options.add_selection(parser)
    suite_options.add_times(parser)
    arguments.add_output_dir(parser, default=Path("pytorch-tests"))
    arguments.add_python(parser, what="that has PyTorch")
    arguments.add_json(parser)
    suite_options.add_running(parser)
    parser.set_defaults(run=_run, folder=folder)
    return parser


def _run(options: argparse.Namespace) -> int:
    from cairn.targets import parse_targets
    from cairn.testing import gpus
    from cairn.testing.suite import suite_toml
    from cairn.testing.suite.run import SuiteRequest, Tested

    targets = parse_targets(options.amdgpu_family) if options.amdgpu_family else ()
    if targets and targets != ("cpu",) and not gpus.seen():
        raise PrerequisiteError(
            f"this machine has no GPU, and the tests are to run on {options.amdgpu_family}",
            tip="leave --amdgpu-family out to run what needs none",
        )
    if not options.cache:
        options.pytest_args = ["-p", "no:cacheprovider", *options.pytest_args]
    version = {"": None, "all": ""}.get(options.pytorch_version, options.pytorch_version)
    tested = Tested(
        python=options.python or Path(sys.executable),
        variables=suite_options.variables(options),
        family=options.amdgpu_family,
        targets=targets,
    )
    suite = suite_toml.load(suite_options.suite_file(options))
    values = suite_options.request_values(options, options.pytorch_dir.absolute())
    values["gpu_choice"] = gpu_choice(options, suite.config(options.test_config).gpus)
    request = SuiteRequest(
        suite=suite, tested=tested, only_skipped=options.only_skipped, torch_version=version, **values
    )
    return suite_options.run(request, options)


def gpu_choice(options: argparse.Namespace, configured: Gpus) -> GpuChoice:
    """The GPUs that `--gpu-policy` chooses among those of `--device-query`, by the defaults of upstream."""
    every = (configured if options.device_query is None else options.device_query) == "all"
    chosen = suite_options.UPSTREAM_GPUS.get(options.gpu_policy, configured)
    return chosen if chosen == "one" or every else "one-of-each"
