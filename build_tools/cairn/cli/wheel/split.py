"""`cairn wheel split` and `join`: device code in wheels of its own, and back in its host wheel."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, flag, option


def _prefix(text: str) -> str:
    """The beginning of a project's name."""
    from cairn import requirements

    if not requirements.is_project_name(text):
        raise ArgumentTypeError(f"{text[:40]!r} cannot be the beginning of a project's name")
    return text


@dataclass(frozen=True, kw_only=True)
class Split:
    """What `cairn wheel split` is asked for.

    ROCm 7.14 finds the code of an installed device wheel; older ones need `cairn wheel join`.

        cairn wheel split --output-dir split dist/torch-….whl
    """

    wheel: Path = argument("WHEEL", "a linked wheel", convert=converters.file)
    device_prefix: str = option(
        "stands before the names of device wheels: with amd, amd-torch-device-gfx942 (default: none)",
        metavar="WORD",
        convert=_prefix,
        default="",
    )
    sdk_version: str | None = option(
        "have each device wheel require that of the ROCm SDK, rocm-sdk-device-gfx942==VERSION "
        "(default: the packages of the SDK have all their code)",
        metavar="VERSION",
        convert=converters.nonempty,
    )
    variants: bool = flag(
        "write wheel variants as well, each with the code of one target: uv takes the one for its GPU "
        "where its preview knows the GPU (PEP 825, a draft; default: none)",
    )
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def _split(request: Split) -> Answer:
    from cairn import requirements
    from cairn.wheels.contents import binaries
    from cairn.wheels.split import join
    from cairn.wheels.split.device_wheel import Terms
    from cairn.wheels.split.split import RUNTIME, split

    try:
        sdk = request.sdk_version and str(requirements.version(request.sdk_version))
    except ValueError as error:
        raise UsageError(f"--sdk-version: {error}", tip="such as 7.14.0") from error
    if request.variants:  # before anything is written
        join.require_processors(binaries.targets_of(request.wheel))
    terms = Terms(prefix=request.device_prefix, sdk=sdk, runtime=RUNTIME)
    host, *devices = split(request.wheel, request.output_dir, terms)
    chosen = devices if request.variants else []
    variants = [join.write_variant(host, device, request.output_dir) for device in chosen]
    return Answer(
        {"host": host, "devices": devices, "variants": variants}, map(str, (host, *devices, *variants))
    )


@dataclass(frozen=True, kw_only=True)
class Join:
    """What `cairn wheel join` is asked for.

    cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out
    """

    host: Path = argument("HOST", "the host wheel", convert=converters.file)
    devices: tuple[Path, ...] = argument("DEVICE", "a device wheel", nargs="+", convert=converters.file)
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def _join(request: Join) -> Answer:
    from cairn.wheels.split.join import join

    joined = join(request.host, request.devices, request.output_dir)
    text = [str(joined.path)]
    for library in joined.libraries:
        if library.missing:
            text.append(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            text.append(f"  {library.library}: the original code objects, compressed again")
    return Answer({"wheel": joined.path, "libraries": joined.libraries}, text)


COMMANDS = {
    "split": command(Split, _split),
    "join": command(Join, _join),
}
