"""What a machine's GPUs are, where its sources agree, and that nothing is believed where they do not."""

import sys
from pathlib import Path

import pytest

from cairn.testing.gpus import attest as attesting
from cairn.testing.gpus import kernel, sources
from cairn.testing.gpus.gpu import Gpu
from helpers.hardware import GIB, INSTINCT, MI300X, RAPHAEL, RX7900, Machine, rocminfo, smi

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are shell scripts")
CARD = 0x0C00  # 0000:0c:00.0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_that_agree_are_named_and_complete_each_other(machine: Machine) -> None:
    machine.node(1, MI300X, place=CARD, gib=192, unique=0x6F2A49B8C3D10E57)
    machine.file("bus/pci/devices/0000:0c:00.0/current_compute_partition", "SPX\n")
    machine.file("bus/pci/devices/0000:0c:00.0/current_memory_partition", "NPS1\n")
    machine.file("module/amdgpu/version", "6.12.12\n")
    machine.rocminfo((1, "gfx942"))
    machine.amd_smi(smi("gfx942", "0000:0C:00.0"))
    found = machine.attest(machine.torch(("gfx942:sramecc+:xnack-", INSTINCT, 191)))
    assert (found.disagreements, found.silent, found.hardware) == ((), (), ("gfx942",))
    assert found.gpus == (
        Gpu(
            target="gfx942",
            name=INSTINCT,
            driver="6.12.12",
            memory_bytes=192 * GIB,
            compute_partition="SPX",
            memory_partition="NPS1",
            uuid="GPU-6f2a49b8c3d10e57",
            pci="0000:0c:00.0",
            node=1,
            seen_by=("kernel", "rocminfo", "amd-smi", "torch"),
        ),
    )


def test_each_partition_of_a_card_is_a_gpu(machine: Machine) -> None:
    for part in range(8):
        machine.node(part + 1, MI300X, place=CARD | part, gib=24)
    machine.file("bus/pci/devices/0000:0c:00.0/current_compute_partition", "CPX\n")
    machine.rocminfo(*((part + 1, "gfx942") for part in range(8)))
    # It lists the card once, and calls what the others do not have by its word for that.
    machine.amd_smi(smi("gfx942", "0000:0c:00.0", partition={"compute_partition": "CPX"}))
    found = machine.attest(machine.torch(*[("gfx942", INSTINCT, 24)] * 8))
    assert (found.disagreements, found.hardware) == ((), ("gfx942",) * 8)
    assert {(gpu.compute_partition, gpu.memory_bytes) for gpu in found.gpus} == {("CPX", 24 * GIB)}
    assert [gpu.pci[-1] for gpu in found.gpus] == list("01234567")
    assert all(gpu.seen_by == ("kernel", "rocminfo", "amd-smi", "torch") for gpu in found.gpus)


def test_what_is_hidden_from_the_tests_is_none_of_theirs(machine: Machine) -> None:
    machine.node(1, RAPHAEL, place=0x0F00)
    machine.node(2, RX7900, place=0x0300, gib=24, unique=0xABC)
    machine.rocminfo((1, "gfx1036"), (2, "gfx1100"))
    assert machine.attest().hardware == ("gfx1036", "gfx1100")
    for hidden in (
        {"ROCR_VISIBLE_DEVICES": "1"},
        {"HIP_VISIBLE_DEVICES": "1"},
        {"CUDA_VISIBLE_DEVICES": "1"},
        {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "7"},
        {"ROCR_VISIBLE_DEVICES": "GPU-0000000000000abc"},
    ):
        found = machine.attest(None, **hidden)
        assert (found.hardware, found.disagreements) == (("gfx1100",), ()), hidden
    assert machine.attest(None, ROCR_VISIBLE_DEVICES="-1").hardware == ()


def test_a_container_that_may_open_some_has_these(machine: Machine) -> None:
    machine.node(4, MI300X, place=CARD)
    (machine.nodes / "5").mkdir()  # what the kernel hides has no properties that can be read
    machine.rocminfo((4, "gfx942"))
    machine.amd_smi(smi("gfx942", "0000:0c:00.0"), smi("gfx942", "0000:1c:00.0"))
    found = machine.attest(machine.torch(("gfx942", INSTINCT, 1)))
    assert (found.hardware, found.disagreements) == (("gfx942",), ())


def test_an_integrated_gpu_may_have_more_memory_than_is_its_own(machine: Machine) -> None:
    machine.node(1, RAPHAEL, gib=1)
    found = machine.attest(machine.torch(("gfx1036", "Radeon", 30)))
    assert (found.disagreements, found.hardware) == ((), ("gfx1036",))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        # HSA_OVERRIDE_GFX_VERSION makes one GPU look like a different one to everything but the kernel.
        ([("gfx942", INSTINCT, 24)], "torch sees gfx942, not among what the machine has for it: gfx1100"),
        ([("gfx1100", "RX", 24)] * 2, "torch sees 2x gfx1100, of which 1 are among"),
        ([("gfx1100", "RX", 192)], f"torch sees {192 * GIB} bytes of memory on gfx1100, and the kernel"),
    ],
)
def test_a_torch_that_sees_others_is_not_believed(
    machine: Machine, seen: list[tuple[str, str, int]], said: str
) -> None:
    machine.node(1, RX7900, gib=24)
    found = machine.attest(machine.torch(*seen))
    assert found.disagreements[0].startswith(said)
    assert found.hardware == ("gfx1100",)


def test_programs_that_contradict_the_kernel_are_named(machine: Machine) -> None:
    machine.node(1, RX7900, place=CARD, gib=24)
    machine.file("bus/pci/devices/0000:0c:00.0/current_memory_partition", "NPS4\n")
    machine.file("module/amdgpu/version", "6.8.5\n")
    machine.rocminfo((1, "gfx942"), (9, "gfx942"))
    machine.amd_smi(smi("gfx942", "0000:0c:00.0"))
    found = machine.attest()
    assert found.disagreements == (
        "rocminfo calls node 1 gfx942, and the kernel gfx1100",
        "rocminfo lists gfx942 as node 9, where the kernel has no GPU",
        "amd-smi calls the target of 0000:0c:00 gfx942, and the kernel gfx1100",
        "amd-smi calls the memory partition of 0000:0c:00 NPS1, and the kernel NPS4",
        "amd-smi says that the driver is 6.12.12, and the kernel 6.8.5",
    )
    assert (found.gpus[0].target, found.gpus[0].name, found.gpus[0].seen_by) == ("gfx1100", "", ("kernel",))


def test_programs_cannot_make_a_gpu_where_the_kernel_has_none(machine: Machine) -> None:
    machine.rocminfo((1, "gfx942"))
    machine.amd_smi(smi("gfx942", "0000:0c:00.0"))
    found = machine.attest(machine.torch(("gfx942", INSTINCT, 192)))
    assert found.hardware == ()
    assert len(found.disagreements) == 2


@pytest.mark.parametrize(
    "output",
    [
        "",
        "no such device\n",
        b"\xff\xfe\x00Agent 1\x80",
        "{" * 100_000,
        '[{"asic": 7, "bus": [], "vram": {"size": {"value": true}}}, null]',
        '{"gpu_data": "none"}',
        "Agent 2\n  Name: gfx942; rm -rf /\n  Device Type: GPU\n",
        f"Agent 2\n  Name: gfx942\n  Device Type: GPU\n  Internal Node ID: {'9' * 9000}\n",
    ],
)
@pytest.mark.parametrize("name", ["rocminfo", "amd-smi"])
def test_garbage_says_nothing(machine: Machine, name: str, output: str | bytes) -> None:
    machine.node(1, RX7900, gib=24)
    machine.program(name, output)
    found = machine.attest()
    assert found.hardware == ("gfx1100",)
    assert found.silent or found.disagreements


def test_what_hangs_says_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_TIMEOUT", 0.5)
    machine.node(1, RX7900, gib=24)
    machine.program("rocminfo", rocminfo((1, "gfx942")), then="exec /bin/sleep 60")
    found = machine.attest()
    assert (found.hardware, found.disagreements) == (("gfx1100",), ())
    assert found.silent == ("rocminfo did not end within 0.5 seconds",)


def test_what_fails_says_nothing(machine: Machine) -> None:
    machine.node(1, RX7900, gib=24)
    machine.program("amd-smi", "[]", then="exit 3")
    found = machine.attest(machine.program("python", "no answer"))
    assert (found.hardware, found.disagreements) == (("gfx1100",), ())
    assert found.silent == (
        "amd-smi static --json failed with exit code 3",
        "torch does not say which GPUs it sees",
    )


def test_names_in_any_alphabet_reach_no_terminal_as_they_are(machine: Machine) -> None:
    machine.node(1, RX7900, place=CARD)
    machine.amd_smi(smi("gfx1100", "0000:0c:00.0", asic={"market_name": "Ra\x1b[31mdeon™ 显卡" + "x" * 999}))
    (gpu,) = machine.attest().gpus
    assert gpu.name.startswith("Ra")
    assert gpu.name.isprintable()
    assert "显卡" in gpu.name
    assert len(gpu.name) == 100


def test_an_nvidia_gpu_is_called_that(machine: Machine) -> None:
    machine.program("nvidia-smi", "")  # whose presence has torch asked
    found = machine.attest(machine.torch(("", "NVIDIA H200", 139), hip=None, cuda="13.0"))
    (gpu,) = found.gpus
    assert (gpu.vendor, gpu.target) == ("nvidia", "NVIDIA H200")
    assert (gpu.seen_by, found.disagreements) == (("torch",), ())


def test_a_machine_without_any_asks_nobody(machine: Machine, tmp_path: Path) -> None:
    found = machine.attest(Path("/no/such/python"))
    assert (found.gpus, found.disagreements, found.silent) == ((), (), ())
    machine.rocminfo((1, "gfx942"))
    variables = {"PATH": str(machine.programs)}
    found = attesting.attest(variables, python=None, log=tmp_path / "log", nodes=tmp_path / "none")
    assert (found.gpus, found.disagreements) == ((), ())


def test_a_translated_torch_sees_none(machine: Machine) -> None:
    machine.node(1, RX7900, gib=24)
    found = machine.attest(machine.torch(("gfx942", "a CPU", 1), hip=None))
    assert (found.hardware, found.disagreements, found.gpus[0].seen_by) == (("gfx1100",), (), ("kernel",))


def test_a_file_that_is_called_like_a_device_is_no_wsl(tmp_path: Path) -> None:
    (tmp_path / "dxg").touch()
    assert not kernel.is_wsl(kernel.KFD_NODES, device=tmp_path / "dxg", release="6.6-microsoft-standard-WSL2")
    assert not kernel.is_wsl(kernel.KFD_NODES, device=Path("/dev/null"), release="6.6.87-generic")
    assert kernel.is_wsl(kernel.KFD_NODES, device=Path("/dev/null"), release="6.6-microsoft-standard-WSL2")
