"""Which GPUs the tests of a suite see."""

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.testing.gpus.visible import GpuChoice, choose_gpus
from helpers.hardware import kernel_nodes

MIXED = (90402, 110000, 90402, 110000)


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    return kernel_nodes(tmp_path, *MIXED)


@pytest.mark.parametrize(
    ("environ", "targets", "how_many", "shown", "hardware"),
    [
        ({}, (), "one", "0", ("gfx942",)),
        ({}, ("gfx1100",), "one", "1", ("gfx1100",)),
        ({}, ("gfx1100", "gfx1101"), "all", "1,3", ("gfx1100", "gfx1100")),
        ({"HIP_VISIBLE_DEVICES": "3,2"}, (), "all", "3,2", ("gfx1100", "gfx942")),
        ({}, (), "one-of-each", "0,1", ("gfx942", "gfx1100")),
        ({}, ("gfx1100",), "one-of-each", "1", ("gfx1100",)),
        ({"HIP_VISIBLE_DEVICES": "3,2,1"}, (), "one-of-each", "3,2", ("gfx1100", "gfx942")),
        ({"HIP_VISIBLE_DEVICES": "3,2"}, ("gfx942",), "one", "2", ("gfx942",)),
        ({"CUDA_VISIBLE_DEVICES": "1"}, (), "all", "1", ("gfx1100",)),
        ({"GPU_DEVICE_ORDINAL": "2"}, (), "all", "2", ("gfx942",)),
        # HIP numbers anew what the runtime leaves.
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, ("gfx942",), "all", "1", ("gfx942",)),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "0"}, (), "all", "0", ("gfx1100",)),
        # HIP ends the process where these disagree, and takes the first.
        ({"HIP_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "1"}, (), "all", "0", ("gfx942",)),
        ({"HIP_VISIBLE_DEVICES": "7"}, (), "all", "-1", ()),
        ({}, ("gfx950",), "all", "-1", ()),
    ],
)
def test_one_list_is_made_of_all_that_hide_gpus(
    nodes: Path,
    environ: dict[str, str],
    targets: tuple[str, ...],
    how_many: GpuChoice,
    shown: str,
    hardware: tuple[str, ...],
) -> None:
    found = choose_gpus(environ, targets=targets, how_many=how_many, nodes=nodes)
    assert found.hardware == hardware
    applied = found.applied_to({"HOME": "/root", **environ})
    assert applied == {
        "HOME": "/root",
        "HIP_VISIBLE_DEVICES": shown,
        **{name: value for name, value in environ.items() if name == "ROCR_VISIBLE_DEVICES"},
    }
    changed = [name for name, value in environ.items() if name != "ROCR_VISIBLE_DEVICES" and value != shown]
    assert [note.partition("=")[0] for note in found.notes] == changed


def test_without_a_gpu_nothing_is_set(tmp_path: Path) -> None:
    environ = {"HIP_VISIBLE_DEVICES": "0"}
    found = choose_gpus(environ, targets=("gfx942",), how_many="one", nodes=tmp_path)
    assert (found.hardware, found.applied_to(environ)) == ((), environ)


def test_uuids_are_kept_where_all_gpus_are_alike_and_refused_where_not(tmp_path: Path) -> None:
    environ = {"HIP_VISIBLE_DEVICES": "GPU-1234567890abcdef, GPU-fedcba0987654321"}
    alike = kernel_nodes(tmp_path / "alike", 90402, 90402)
    found = choose_gpus(environ, targets=("gfx942",), how_many="one", nodes=alike)
    assert found.variables == {"HIP_VISIBLE_DEVICES": "GPU-1234567890abcdef"}
    mixed = kernel_nodes(tmp_path / "mixed", *MIXED)
    with pytest.raises(UsageError, match="does not say what kind"):
        choose_gpus(environ, targets=(), how_many="one", nodes=mixed)
