"""The `rocm-sdk` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import _devel, _dist, _selftest
from ._dist import RocmSdkError
from ._version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rocm-sdk` with these arguments (default: the command line's)."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except RocmSdkError as error:
        sys.stderr.write(f"rocm-sdk: error: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocm-sdk", description="The ROCm SDK installed by pip.", epilog="example: rocm-sdk path --bin"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    path = commands.add_parser("path", help="print where a part of the SDK is")
    which = path.add_mutually_exclusive_group(required=True)
    for name, text in (("root", "ROCM_PATH"), ("bin", "tools"), ("cmake", "CMAKE_PREFIX_PATH")):
        which.add_argument(f"--{name}", dest="which", action="store_const", const=name, help=text)
    path.set_defaults(run=_path)
    commands.add_parser("version", help="print ROCm's version").set_defaults(run=_version)
    commands.add_parser("targets", help="print the GPU targets of the libraries").set_defaults(run=_targets)
    init = commands.add_parser("init", help="unpack the development files now")
    init.add_argument("--quiet", action="store_true", help="say nothing")
    init.set_defaults(run=_init)
    commands.add_parser("test", help="check that the installed SDK is whole").set_defaults(run=_test)
    return parser


def _path(options: argparse.Namespace) -> int:
    root = _devel.root(look=True)
    where = {"root": root, "bin": root / "bin", "cmake": root / "lib" / "cmake"}[options.which]
    sys.stdout.write(f"{where}\n")
    return 0


def _version(_options: argparse.Namespace) -> int:
    sys.stdout.write(f"{__version__}\n")
    return 0


def _targets(_options: argparse.Namespace) -> int:
    sys.stdout.write(";".join(_dist.load()["families"][_dist.family()]) + "\n")
    return 0


def _init(options: argparse.Namespace) -> int:
    root = _devel.root(look=True)
    if not options.quiet:
        sys.stdout.write(f"the ROCm development files are in {root}\n")
    return 0


def _test(_options: argparse.Namespace) -> int:
    return _selftest.run()
