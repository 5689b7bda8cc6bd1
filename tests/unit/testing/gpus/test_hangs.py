"""GPUs that hang are left out, and named; a program that sleeps stands for what asks one of them."""

import time
from pathlib import Path

import pytest

from cairn.errors import PrerequisiteError
from cairn.testing.gpus import hangs
from cairn.testing.gpus.hangs import Answering
from helpers.hardware import MI300X, Machine

# It does not end when it is asked to, as little as a program in the driver.
HANGS = 'case ",{gpus}," in *,"$ROCR_VISIBLE_DEVICES",*) trap "" TERM; while :; do /bin/sleep 1; done;; esac'


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "LIMIT", 1.0)


def hide(folder: Path, gpus: str, *known: int, **variables: str) -> Answering:
    """Ask a machine with three GPUs, of which these hang."""
    machine = Machine(folder)
    for number in (1, 2, 3):
        machine.node(number, MI300X, place=number << 8, unique=number)
    machine.program("rocminfo", "", then=HANGS.format(gpus=gpus))
    own = {"PATH": str(machine.programs), **variables}
    began = time.monotonic()
    found = hangs.hide(
        own, python=None, log=folder / "log", nodes=machine.nodes, sysfs=machine.sysfs, hanging_nodes=known
    )
    assert time.monotonic() - began < 10
    return found


def shown(found: Answering) -> tuple[str | None, list[str]]:
    return found.variables.get("ROCR_VISIBLE_DEVICES"), [hangs.name_of(gpu) for gpu in found.hanging]


def test_one_that_hangs_is_hidden_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(hide(tmp_path, "1")) == ("0,2", ["gfx942 at 0000:02:00.0"])
    assert "left out, since it hangs: gfx942 at 0000:02:00.0" in capsys.readouterr().err


def test_where_none_hangs_nothing_changes(tmp_path: Path) -> None:
    assert shown(hide(tmp_path, "7")) == (None, [])


def test_only_visible_ones_are_asked_and_keep_their_numbers(tmp_path: Path) -> None:
    found = hide(tmp_path, "0,2", ROCR_VISIBLE_DEVICES="2,1", HIP_VISIBLE_DEVICES="1,0")
    assert shown(found) == ("1", ["gfx942 at 0000:03:00.0"])
    assert "HIP_VISIBLE_DEVICES" not in found.variables


def test_known_ones_are_not_asked(tmp_path: Path) -> None:
    assert shown(hide(tmp_path, "7", 1, 3)) == ("1", ["gfx942 at 0000:01:00.0", "gfx942 at 0000:03:00.0"])


def test_a_machine_whose_gpus_all_hang_tests_nothing(tmp_path: Path) -> None:
    found = hide(tmp_path, "0,1,2")
    assert found.variables["ROCR_VISIBLE_DEVICES"] == "-1"
    with pytest.raises(PrerequisiteError, match=r"no GPU of this machine answers: gfx942 at 0000:01:00.0, "):
        found.require()
