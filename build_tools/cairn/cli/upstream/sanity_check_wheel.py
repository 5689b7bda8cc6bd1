"""What `sanity_check_wheel.py` does: verify the wheels of a folder, as `cairn wheel verify` does."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import converters
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.wheel import verify
from cairn.errors import UsageError


def main(*, script: str) -> int:
    """Run the script; returns the exit code."""
    return guarded(_parser(Path(script)).parse_args())


def _parser(script: Path) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description="Check the wheels of a folder for everything that a published wheel must satisfy.",
        epilog=f"example: python {script.name} out",
    )
    parser.add_argument("wheel_dir", type=converters.folder, metavar="DIR", help="folder of the wheels")
    parser.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    wheels = sorted(options.wheel_dir.glob("*.whl"))
    if not wheels:
        raise UsageError(f"{options.wheel_dir} has no wheels", tip="name the folder that has them")
    commands = argparse.ArgumentParser().add_subparsers()
    verify.add_to(commands)
    return verify.run(commands.choices["verify"].parse_args(list(map(str, wheels)), options))
