"""Names of GPUs as people type them: the right target, or a question; never a wrong one."""

import tomllib
from pathlib import Path

import pytest

from cairn import targets
from cairn.errors import UsageError

# Target: by what people call its GPUs, on boxes, in forums, in `lspci` and in /proc/cpuinfo.
NAMES = {
    "gfx803": ("RX 480", "rx580", "Radeon RX 590 8GB", "R9 Fury X", "MI8"),
    "gfx900": ("MI25", "Vega 64", "RX Vega 56", "Vega 10"),
    "gfx906": ("MI50", "Radeon VII", "radeon pro vii", "AMD Instinct MI60", "Vega 20"),
    "gfx908": ("MI100", "AMD Instinct(TM) MI100"),
    "gfx90a": ("MI250X", "mi210", "Instinct MI250"),
    "gfx90c": ("Renoir", "Ryzen 5 5600G", "5700G", "AMD Ryzen 7 4800H with Radeon Graphics"),
    "gfx942": ("MI300", "mi300x", "AMD Instinct MI300A", "MI325X", "MI300X 192GB", "MI308X"),
    "gfx950": ("MI350", "MI355X", "Instinct MI350X"),
    "gfx1010": ("RX 5700 XT", "5700xt", "RX 5600", "W5700", "Navi 10"),
    "gfx1011": ("V520", "Radeon Pro V520"),
    "gfx1012": ("RX 5500", "rx 5500xt", "W5500"),
    "gfx1030": ("RX 6800", "6900 XT", "RX6950XT", "W6800", "V620", "RX 6900"),
    "gfx1031": ("6700 XT", "RX 6700", "RX 6750", "RX 6800M"),
    "gfx1032": ("RX 6600", "6650XT", "RX 6700S", "RX 6800S", "Radeon PRO W6600"),
    "gfx1033": ("Steam Deck", "steam deck oled", "Van Gogh"),
    "gfx1034": ("RX 6400", "6500 XT", "rx6500"),
    "gfx1035": ("680M", "Radeon 660M", "Ryzen 7 6800U", "AMD Ryzen 7 7735HS with Radeon Graphics"),
    "gfx1036": ("Raphael",),
    "gfx1100": (
        *("RX 7900 XTX", "AMD Radeon(TM) RX 7900 XTX", "7900xtx", "7900 xtx", "rx7900", "RX 7900XTX", "7900"),
        *(
            "AMD Radeon™ RX 7900 XT",
            "RX 7900 GRE",
            "W7900",
            "Radeon PRO W7800",
            "RX 7900 XTX 24GB",
            "Navi 31",
        ),
    ),
    "gfx1101": ("RX 7800 XT", "7700 XT", "RX 7700", "W7700", "7800"),
    "gfx1102": ("RX 7600", "7600XT", "RX 7700S", "RX 7600M XT", "W7600", "Navi 33"),
    "gfx1103": (
        *("780M", "Radeon 780M Graphics", "760m", "7840HS", "Ryzen 7 8845HS", "Z1 Extreme", "Phoenix"),
        *("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "Ryzen 7 8700G", "Ryzen 9 7940HS"),
    ),
    "gfx1150": (
        *("890M", "880M", "Strix Point", "Ryzen AI 9 HX 370", "AMD Ryzen AI 9 HX 370 w/ Radeon 890M"),
        *("HX 370", "Ryzen AI 9 365", "Z2 Extreme"),
    ),
    "gfx1151": (
        *("Ryzen AI Max 395", "Ryzen AI Max+ 395", "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "Radeon 8060S"),
        *("8060s", "Strix Halo", "Ryzen AI Max+ PRO 395", "AI Max 395", "Max+ 395", "Framework Desktop"),
    ),
    "gfx1152": ("Krackan 1", "Ryzen AI 7 350", "860M", "Radeon 840M"),
    "gfx1153": ("820M", "Ryzen AI 5 430"),
    "gfx1200": ("RX 9060 XT", "9060xt", "RX 9060 XT 16GB"),
    "gfx1201": ("RX 9070", "9070 XT", "R9700", "Radeon AI PRO R9700", "Navi 48"),
    "gfx1250": ("MI450", "MI455X"),
    "gfx904": ("Radeon Pro Vega 20",),  # no Vega 20, which is a chip
}
# What AMD calls its GPUs, and which target it names for each. ROCm/legacy-rocm-build,
# docs/install/include/gpu-selector.rst, and product pages; read 2026-11-28.
UPSTREAM = tomllib.loads(Path(__file__).with_name("gpu_names.toml").read_text(encoding="utf-8"))
TYPED = [(name, target) for names in (NAMES, UPSTREAM) for target, found in names.items() for name in found]


@pytest.mark.parametrize(("written", "target"), TYPED)
def test_a_product_is_found_by_what_its_owner_calls_it(written: str, target: str) -> None:
    assert targets.parse_product(written) == target


@pytest.mark.parametrize(
    ("written", "maker"),
    [
        *((name, "NVIDIA") for name in ("RTX 4090", "rtx4090", "GTX 1060", "GeForce RTX 5090 Ti", "H100")),
        *((name, "NVIDIA") for name in ("NVIDIA A100-SXM4-80GB", "Tesla V100", "GT 1030", "L40S")),
        *((name, "Intel") for name in ("Arc A770", "Intel Arc B580", "Intel UHD 770", "Iris Xe", "a770")),
        ("Apple M2", "Apple"),
        ("Snapdragon X Elite", "Qualcomm"),
    ],
)
def test_a_gpu_of_another_maker_is_said_to_be_one(written: str, maker: str) -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_product(written)
    assert str(caught.value) == f"{written!r} is a GPU of {maker}, and ROCm runs on those of AMD"
    assert "--gpu cpu" in str(caught.value.tip)


@pytest.mark.parametrize(
    ("written", "message", "offers"),
    [
        # Several it may be: by their targets they can be told apart.
        ("RX 6", "is not a product that is known", ()),
        ("6900", "may be several products", ("RX 6900 XT (gfx1030)", "Ryzen 9 6900HX (gfx1035)")),
        # Lines number their models independently.
        ("5600M", "may be several products", ("RX 5600M (gfx1010)", "Pro 5600M (gfx1011)")),
        ("Radeon Pro 7900 XTX", "is not a product that is known", ("RX 7900 XTX (gfx1100)",)),
        ("Radeon R7 250", "is not a product that is known", ("Ryzen 7 250 (gfx1103)",)),
        ("Radeon 250", "is not a product that is known", ()),
        ("Vega", "may be several products", ("RX Vega 56 (gfx900)",)),
        ("Strix", "may be several products", ("Strix Point iGPU (gfx1150)", "Strix Halo iGPU (gfx1151)")),
        ("Krackan", "may be several products", ("Krackan 1 iGPU (gfx1152)",)),
        ("R9", "may be several products", ("R9 Nano (gfx803)",)),
        ("Ryzen 7 7840HS w/ Radeon 890M", "may be several products", ("gfx1103", "gfx1150")),
        ("Ryzen 5 5600", "may be several products", ("Ryzen 5 5600G (gfx90c)",)),
        ("8700", "may be several products", ("Ryzen 7 8700G (gfx1103)",)),
        # A typing error in letters is offered, one in the number is not.
        ("RX 7900 XTZ", "is not a product that is known", ("RX 7900 XTX (gfx1100)",)),
        ("Raedon RX 7900 XTXX", "is not a product that is known", ("RX 7900 XTX (gfx1100)",)),
        ("RX 7990 XTX", "is not a product that is known", ()),
        ("RX 79000", "is not a product that is known", ()),
        ("RX 460000", "is not a product that is known", ()),
        # Others of the same number: a processor is not the card.
        ("Ryzen 9 7900X", "is not a product that is known", ()),
        ("Ryzen 5 7600", "is not a product that is known", ()),
        ("Ryzen 7 7700", "is not a product that is known", ()),
        ("Ryzen AI Max 999", "is not a product that is known", ()),
        ("HD 7970", "is not a product that is known", ()),
        ("R9 290X", "is not a product that is known", ()),
        ("AMD Radeon Graphics", "is not a product that is known", ()),
        ("Voodoo 2", "is not a product that is known", ()),
        ("gfx1100", "is not a product that is known", ()),
        ("", "is not a product that is known", ()),
        ("0" * 5000, "is not a product that is known", ()),
    ],
)
def test_a_product_that_is_not_clear_is_asked_for(
    written: str, message: str, offers: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_product(written)
    assert str(caught.value) == f"{written!r} {message}"
    tip = str(caught.value.tip)
    assert ("did you mean" in tip) is bool(offers)
    assert all(offer in tip for offer in offers)


def test_every_name_has_one_target() -> None:
    for target in (*targets.known_targets(), *targets.unbuilt_targets()):
        assert targets.product_names(target) or target not in targets.known_targets()
        for name in targets.product_names(target):
            assert targets.parse_product(name) == target
