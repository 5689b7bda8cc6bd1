"""What an extra for a GPU names is published, staged and locked with the wheel of the extra, or missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import StoreError
from cairn.release.gate import files_of_set
from cairn.release.gate.case import opened
from cairn.release.index import write
from cairn.release.index.listing import index_set
from cairn.release.index.snapshot import Index
from cairn.release.publish import distribution, files, locks
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet
from helpers.gate import case_of
from helpers.release import (
    MANIFEST,
    audit,
    in_folder,
    make_set,
    make_wheels,
    put,
    stage_set,
    statement_of,
)

SAMPLE = Path(__file__).parents[4] / "external-builds/sample"
TARGETS = ("gfx942", "gfx1100", "gfx1101", "gfx1102", "gfx1103")
FAMILY = "amd-torch-device-gfx110x==2.9"
HOST = [f'amd-torch-device-{target}==2.9 ; extra == "device-{target}"' for target in TARGETS]
# As AMD's torch has it: a wheel with AOTriton's images for the family, beside the target's own.
HOST += [f'{FAMILY} ; extra == "device-{target}"' for target in TARGETS[1:]]
HOST += [f'amd-torch-device-{target}==2.9 ; extra == "device-all"' for target in TARGETS]
HOST += [f'amd-torch-device-{target}==2.9 ; extra == "device-gfx110x-all"' for target in TARGETS[1:]]


def wheels_of(folder: Path, *names: str) -> list[Path]:
    """The host wheel, and device wheels by the ends of their names."""
    devices = {f"amd-torch-device-{name} 2.9": ["torch==2.9"] for name in names}
    return make_wheels(folder, {"torch 2.9": HOST, **devices})


@pytest.mark.parametrize(
    ("before", "names", "problem"),
    [
        ((), ("gfx942",), ""),
        (("gfx942",), (), ""),
        (("gfx110x",), ("gfx1101",), ""),
        ((), ("gfx942", "gfx110x"), ""),
        ((), ("gfx1101",), r"torch\[device-gfx1101\] lacks amd-torch-device-gfx110x==2.9, and has the rest"),
        ((), ("gfx110x",), "torch-2.9-py3-none-any.whl serves no GPU without one of "),
        ((), (), "torch-2.9-py3-none-any.whl serves no GPU without one of amd-torch-device-gfx942==2.9, "),
        (("gfx9",), (), "torch-2.9-py3-none-any.whl serves no GPU"),
    ],
)
def test_a_host_wheel_is_published_with_what_an_extra_names(
    store: MemoryStore, tmp_path: Path, before: Sequence[str], names: Sequence[str], problem: str
) -> None:
    put(store, "dev", wheels_of(tmp_path / "before", *before)[1:])
    wheels = wheels_of(tmp_path, *names)
    for dry_run in (True, False):
        if problem:
            with pytest.raises(StoreError, match=problem) as raised:
                publish(store, "dev", wheels, dry_run=dry_run)
            assert raised.value.tip.endswith("cairn index publish FILE … --index dev")
        else:
            unserved = publish(store, "dev", wheels, dry_run=dry_run).unserved
            assert "torch[device-gfx1100]" in unserved
            served = "gfx942" if "gfx942" in (*before, *names) else "gfx1101"
            assert f"torch[device-{served}]" not in unserved
    assert publish(store, "dev", wheels_of(tmp_path / "again", *names)[1:]).unserved == {}


def test_what_cannot_be_installed_yet_is_told(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--store", str(tmp_path / "store"), "--index", "dev"]
    in_folder(store, tmp_path / "store")
    wheels = wheels_of(tmp_path, "gfx942")
    assert main(["index", "publish", *map(str, wheels), *words]) == 0
    said = capsys.readouterr()
    told = "torch[device-gfx1100] cannot be installed from dev without amd-torch-device-gfx1100==2.9, "
    assert told in said.out + said.err
    more = wheels_of(tmp_path, "gfx1100", "gfx110x")[1:]
    assert main(["index", "publish", *map(str, more), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unserved"] == {}


def test_libraries_of_a_family_are_missed_too(store: MemoryStore, tmp_path: Path) -> None:
    needs = ['rocm-sdk-libraries-gfx94X-dcgpu==7.10 ; extra == "libraries"', "rocm-sdk-core==7.10"]
    rocm, libraries = make_wheels(tmp_path, {"rocm 7.10": needs, "rocm_sdk_libraries_gfx94x_dcgpu 7.10": []})
    with pytest.raises(StoreError, match="serves no GPU without one of rocm-sdk-libraries-gfx94X-dcgpu"):
        publish(store, "dev", [rocm])
    assert not publish(store, "dev", [rocm, libraries]).unserved


def staged_unasked(store: MemoryStore, made: WheelSet, wheels: Sequence[Path]) -> WheelSet:
    """Stage a set as a Cairn did that asked nobody for what its extras name."""
    sealed = wheelset.seal(made, ())
    offer = files.offer_of(
        [distribution.read(path) for path in wheels], build=sealed.manifest_sha256, entry=index_set(sealed)
    )
    offer.put(store)
    made_locks = locks.of_set(sealed, locks.metadata_of(store, sealed))
    write.write_set(store, sealed, MANIFEST, statement_of(made, wheels), made_locks)
    offer.commit(Index(store, "staging"), "stage")
    return sealed


@pytest.mark.parametrize("lacking", ["gfx942", "gfx1100", "gfx110x", ""])
def test_a_set_has_what_the_extras_for_its_targets_name(
    store: MemoryStore, tmp_path: Path, lacking: str
) -> None:
    """Nobody but the METADATA says what belongs to wheels that others have split."""
    targets = ("gfx942", "gfx1100")
    wheels = wheels_of(tmp_path, *(name for name in (*targets, "gfx110x") if name != lacking))
    made = make_set(wheels, family="gfx942-gfx1100", targets=targets)
    extra = "device-gfx1100" if lacking == "gfx110x" else f"device-{lacking}"
    if lacking:
        said = rf"amd-torch-device-{lacking} is missing, which torch\[{extra}\] asks for"
        with pytest.raises(StoreError, match=said) as raised:
            stage_set(MemoryStore(), "staging", made, wheels)
        assert "make a set of the targets that have theirs" in (raised.value.tip or "")
    sealed = staged_unasked(store, made, wheels)
    said = f"amd-torch-device-{lacking} is missing, which torch[{extra}] asks for"
    told = [text.partition(": ")[2] for text in audit(store, "staging", hashes=False)]
    assert told == ([said] if lacking else [])
    case = case_of(store, sealed)
    with opened(case) as found:
        assert list(files_of_set.unmet(case)) == told
        assert not any(said in text for text in files_of_set.not_of_split(case, found))  # once is enough
    # A set of the targets whose wheels are there is whole.
    served = ("gfx1100",) if lacking == "gfx942" else ("gfx942",)
    assert stage_set(MemoryStore(), "staging", make_set(wheels, family="a", targets=served), wheels)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("rocm", "device-gfx942"), ""),
        (("rocm", "device-gfx1100", "device-gfx11x"), ""),
        (("rocm", "device-gfx1100"), "rocm[device-gfx1100] lacks rocm-sdk-device-gfx11x==7.10, and has the"),
        (("rocm",), "rocm-7.10-py3-none-any.whl serves no GPU without one of rocm-sdk-device-gfx942==7.10, "),
        (("device-gfx1100",), ""),
    ],
)
def test_a_lock_has_what_the_extras_of_its_sdk_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: Sequence[str], problem: str
) -> None:
    """It may be for some families alone; then the other extras are named as left out."""
    stack_file = SAMPLE / "stack.toml"
    needs = [f'rocm-sdk-device-{name}==7.10 ; extra == "device-{name}"' for name in ("gfx942", "gfx1100")]
    needs += ['rocm-sdk-device-gfx11x==7.10 ; extra == "device-gfx1100"']
    made = make_wheels(
        tmp_path, {"rocm 7.10": needs, **{f"rocm-sdk-{name} 7.10": [] for name in given if name != "rocm"}}
    )
    wheels = [str(path) for path in made if path.name.startswith("rocm-") <= ("rocm" in given)]
    words = ["--stack", str(stack_file), "--lock", str(tmp_path / "mirror.lock.toml")]
    assert main(["index", "mirror", "lock", *words, *wheels]) == (2 if problem else 0)
    said = capsys.readouterr()
    assert problem in said.err
    assert (tmp_path / "mirror.lock.toml").exists() != bool(problem)
    left = "device-gfx1100" if "device-gfx942" in given else "device-gfx942"
    assert (f"left out, with what they name: rocm[{left}]" in said.out + said.err) == (
        "rocm" in given and not problem
    )
