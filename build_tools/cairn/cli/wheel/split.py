"""`cairn wheel split`: device code in wheels of its own."""

from __future__ import annotations

import argparse

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "split",
        run,
        about="write a host wheel without device code, and one device wheel for each target",
        more="ROCm 7.14 finds the code of an installed device wheel; older ones need `cairn wheel join`.",
        example="cairn wheel split --output-dir split dist/torch-….whl",
    )
    parser.add_argument("wheel", type=converters.file, metavar="WHEEL", help="a linked wheel")
    parser.add_argument(
        "--device-prefix",
        type=_prefix,
        metavar="WORD",
        help="stands before the names of device wheels: with amd, amd-torch-device-gfx942 (default: none)",
    )
    parser.add_argument(
        "--sdk-version",
        type=converters.nonempty,
        metavar="VERSION",
        help="have each device wheel require that of the ROCm SDK, rocm-sdk-device-gfx942==VERSION "
        "(default: the packages of the SDK have all their code)",
    )
    parser.add_argument(
        "--variants",
        action="store_true",
        help="write wheel variants as well, each with the code of one target: uv takes the one for its GPU "
        "where its preview knows the GPU (PEP 825, a draft; default: none)",
    )
    arguments.add_output_dir(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import requirements
    from cairn.wheels.contents import binaries
    from cairn.wheels.split import variant
    from cairn.wheels.split.device_wheel import Terms
    from cairn.wheels.split.split import RUNTIME, split

    screen = console.current()
    try:
        sdk = options.sdk_version and str(requirements.version(options.sdk_version))
    except ValueError as error:
        raise UsageError(f"--sdk-version: {error}", tip="such as 7.14.0") from error
    terms = Terms(prefix=options.device_prefix or "", sdk=sdk, runtime=RUNTIME)
    if options.variants:  # before anything is written
        variant.require_processors(binaries.targets_of(options.wheel))
    host, *devices = split(options.wheel, options.output_dir, terms)
    chosen = devices if options.variants else []
    variants = [variant.write(host, device, options.output_dir) for device in chosen]
    if options.json:
        made = {"host": [host], "devices": devices, "variants": variants}
        plain = {name: [str(path) for path in paths] for name, paths in made.items()}
        screen.json({**plain, "host": str(host)})
    for path in () if options.json else (host, *devices, *variants):
        screen.out(str(path))
    return 0


def _prefix(text: str) -> str:
    """The beginning of a name, as a `type` of argparse."""
    from cairn import requirements

    if not requirements.is_project_name(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} cannot be the beginning of a project's name")
    return text
