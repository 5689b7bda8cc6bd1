from pathlib import Path

import pytest

from cairn.testing.gpus import kernel
from cairn.testing.gpus.gpu import matches
from cairn.testing.gpus.visible import visible_gpus


def node(root: Path, number: int, version: int | None, *, name: str = "properties") -> None:
    folder = root / str(number)
    folder.mkdir(parents=True)
    text = (
        "cpu_cores_count 0\n"
        if version is None
        else f"simd_count 4\ngfx_target_version {version}\nvendor_id 1\n"
    )
    (folder / name).write_text(text, encoding="ascii")


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
    node(tmp_path, 0, 0)
    node(tmp_path, 1, None)
    node(tmp_path, 2, 90402)
    node(tmp_path, 10, 110000)
    (tmp_path / "3").mkdir()
    (tmp_path / "generation_id").write_text("2")
    assert kernel.gpu_names(tmp_path) == ("gfx942", "gfx1100")


def test_a_file_of_its_own_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "gfx_target_version").write_text("90010\n", encoding="ascii")
    assert kernel.gpu_names(tmp_path) == ("gfx90a",)


def test_a_machine_without_the_driver_has_no_gpu(tmp_path: Path) -> None:
    assert kernel.gpu_names(tmp_path / "none") == ()


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
