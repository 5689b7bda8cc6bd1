"""Wheel variants of a split wheel: host code and the code of one processor in one wheel, chosen by the GPU.

An installer that knows wheel variants takes the one for the GPU it finds (PEP 825). All others do not take
them for wheels at all, and install the host wheel, whose name and tags they have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from cairn import datafile
from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.targets import generic_targets
from cairn.wheels.metadata import variants, wheel_info
from cairn.wheels.metadata.variants import AMD, GFX_ARCH, Priorities, Provider, Variants
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.split import device_wheel
from cairn.wheels.split.join import processor_of, read_record
from cairn.wheels.split.split import extract

PROVIDER = Provider(
    requires=("rocm-bootstrap",), plugin_api="rocm_bootstrap.variant_provider:AMDVariantPlugin"
)
"""ROCm's own: it names the processors of the GPUs that it finds."""


def require_processors(targets: Iterable[str]) -> None:
    """Refuse targets of which no provider tells an installer which machines they are for.

    Raises:
        WheelError: one of them is generic.
    """
    generic = sorted({target.partition(":")[0] for target in targets} & generic_targets().keys())
    if generic:
        names = " and ".join(generic)
        raise WheelError(
            f"there can be no wheel variant for {names}: rocm-bootstrap names processors alone",
            tip="build for the processors themselves, or leave out --variants",
        )


def of_processor(processor: str) -> Variants:
    """What the variant for a processor says of itself; its label is the processor.

    Raises:
        WheelError: see `require_processors`.
    """
    require_processors([processor])
    return Variants(
        default_priorities=Priorities(namespace=(AMD,)),
        providers={AMD: PROVIDER},
        variants={processor: {AMD: {GFX_ARCH: (processor,)}}},
    )


def write(host: Path, device: Path, output_dir: Path) -> Path:
    """Write the variant that a host wheel and one of its device wheels make together.

    It requires what both did but for each other. The extras of the host wheel are gone: a device wheel
    beside the variant would bring the same files again.

    Raises:
        WheelError: the two do not belong together, or there can be no such variant.
    """
    info, other = wheel_info.read(host), wheel_info.read(device)
    with (
        tempfile.TemporaryDirectory(prefix=".variant.", dir=output_dir) as folder,
        Archive.open(host) as archive,
        Archive.open(device) as code,
    ):
        record = read_record(info, archive)
        processor = processor_of(other, info, record)
        requires = [t for t in other.requires_dist if wheel_info.required_name(t) != info.distribution]
        content = datafile.dumps(of_processor(processor)).encode()
        added: dict[str, Path | bytes] = {f"{info.dist_info}/{variants.IN_WHEEL}": content}
        for number, member in enumerate(code.members):
            if not member.is_dir and not member.name.startswith(f"{other.dist_info}/"):
                where = device_wheel.data_path(info, device_wheel.common_path(other, member.name))
                # Not under its own name: that of an archive may have a colon, which Windows refuses.
                added[where] = extract(code, member.name, Path(folder), str(number))
        change = Edit(
            add_files=added,
            remove_extras=tuple(record.extras),
            remove_requirements=tuple(record.devices.values()),
            add_requirements=tuple(requires),
        )
        path = rewrite_wheel.apply(host, change, Path(folder, "made"))
        return path.replace(output_dir / variants.with_label(path.name, processor))
