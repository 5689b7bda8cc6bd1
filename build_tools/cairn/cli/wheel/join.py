"""`cairn wheel join`: device code back in its host wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.options import argument


@dataclass(frozen=True, kw_only=True)
class Join:
    """What `cairn wheel join` is asked for.

    cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out
    """

    host: Path = argument("HOST", "the host wheel", convert=converters.file)
    devices: tuple[Path, ...] = argument("DEVICE", "a device wheel", nargs="+", convert=converters.file)
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def run(request: Join) -> Answer:
    """Run the command."""
    from cairn.wheels.split.join import join

    joined = join(request.host, request.devices, request.output_dir)
    text = [str(joined.path)]
    for library in joined.libraries:
        if library.missing:
            text.append(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            text.append(f"  {library.library}: the original code objects, compressed again")
    return Answer({"wheel": joined.path, "libraries": joined.libraries}, text)


COMMANDS = {"join": command(Join, run)}
