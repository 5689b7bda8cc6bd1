from pathlib import Path

import pytest

from cairn.testing.gpus import kernel
from cairn.testing.gpus.gpu import matches
from cairn.testing.gpus.visible import visible_gpus
from helpers.hardware import kernel_nodes


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90500, "gfx950"),
        (90006, "gfx906"),
        (100306, "gfx1036"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_the_kernels_number_is_a_target(version: int, name: str) -> None:
    assert kernel.gfx_name(version) == name


def test_gpus_are_listed_in_the_order_of_the_nodes_and_cpus_are_not(tmp_path: Path) -> None:
    nodes = kernel_nodes(tmp_path, None, 90402, 0, *[None] * 6, 110000)  # the last is number 10
    (nodes / "1" / "properties").write_text("cpu_cores_count 0\n")
    (nodes / "generation_id").write_text("2")
    assert kernel.gpu_names(nodes) == ("gfx942", "gfx1100")
    (nodes / "1" / "gfx_target_version").write_text(
        "90010\n", encoding="ascii"
    )  # a file of its own is read too
    assert kernel.gpu_names(nodes)[0] == "gfx90a"
    assert kernel.gpu_names(tmp_path / "none") == (), "a machine without the driver"


def test_every_gpu_must_be_a_target() -> None:
    assert matches(["gfx942", "gfx942"], ["gfx90a", "gfx942:xnack-"])
    assert not matches(["gfx942", "gfx1036"], ["gfx942"])
    assert matches([], ["gfx942"])
    assert not matches(["gfx942"], ["cpu"])


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        (None, ("gfx1036", "gfx1100")),
        ("1", ("gfx1100",)),
        ("1,0", ("gfx1100", "gfx1036")),
        ("0,7,1", ("gfx1036",)),
        ("-1", ()),
        ("GPU-0123456789abcdef", ("gfx1036", "gfx1100")),
    ],
)
def test_the_runtimes_own_choice_is_honoured(chosen: str | None, left: tuple[str, ...]) -> None:
    assert visible_gpus(("gfx1036", "gfx1100"), chosen) == left
