"""A set that is over budget, or breaks a consumer of the last one, is refused, unless that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.release.gate.case import opened
from cairn.release.gate.files_of_set import findings
from cairn.stack import Budget, Consumer, Stack
from cairn.store.memory import MemoryStore
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.gate import AWAY, case_of, kept, record_of, stack_of, stage_torch
from helpers.release import make_set, make_wheel, move, put, stage_set, with_bill
from helpers.wheels import LINUX, build_wheel

GONE = "user.a: ImportError: cannot import name 'gone' from 'torch'"
TOLD = ("has not", "budget", "consumer", "is not known", "no longer", "requires")
HERE = {"python": "3.11", "platform": "linux_x86_64"}


def _told(store: MemoryStore, made: Any, stack: Stack) -> list[str]:
    case = case_of(store, made, stack=stack)
    with opened(case) as files:
        return [text for text in findings(case, files) if any(word in text for word in TOLD)]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    store = MemoryStore()
    old = stage_torch(store, tmp_path / "old", content="def gone(): pass\n", **HERE)
    move(store, old)
    return store


def test_a_break_and_a_budget_are_refused_with_names_and_numbers(store: MemoryStore, tmp_path: Path) -> None:
    new = stage_torch(store, tmp_path / "new", "2.10.0", content="", **HERE)
    build_wheel(tmp_path, name="user", requires=(), files={"user/a.py": b"from torch import gone\n"})
    plain = stack_of(new)
    assert _told(store, new, plain) == []
    strict = msgspec.structs.replace(
        plain,
        budgets={"torch": Budget(installed_size=100, new_requirements=0)},
        consumers=(Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),)),),
    )
    over, broken = _told(store, new, strict)
    assert "(installed_size): " in over
    assert "over the budget of 100" in over
    assert over.endswith("(consumers: user)")
    assert f"(user): user 1.0 can no longer be imported: {GONE}" in broken
    allow = tmp_path / "allow.toml"
    allow.write_text(
        'schema = "cairn.allow/1"\n'
        '[[finding]]\nwheel = "torch-*"\ncode = "over-budget"\nmember = "installed_size"\nreason = "once"\n'
        '[[finding]]\nwheel = "torch-*"\ncode = "consumer-breaks"\nmember = "user"\nreason = "announced"\n'
    )
    allowed = msgspec.structs.replace(strict, gate=msgspec.structs.replace(strict.gate, allow=str(allow)))
    assert _told(store, new, allowed) == []
    allow.write_text(allow.read_text() + "expires = 2020-01-01\n")
    assert len(_told(store, new, allowed)) == 1


def test_what_breaks_nothing_goes_through_and_a_consumer_that_is_not_there_does_not(
    store: MemoryStore, tmp_path: Path
) -> None:
    new = stage_torch(store, tmp_path / "new", "2.10.0", content="def gone(): pass\n", **HERE)
    build_wheel(tmp_path, name="user", requires=(), files={"user/a.py": b"from torch import gone\n"})
    build_wheel(
        tmp_path,
        name="user",
        tags=["cp312-cp312-manylinux_2_28_x86_64"],
        requires=(),
        files={"user/a.py": b"from torch import gone\n"},
    )
    user = Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),))
    assert _told(store, new, msgspec.structs.replace(stack_of(new), consumers=(user,))) == []
    # A release without wheels, as aiter's tags are (ROCm/aiter#4305), and one that was cut off on its way.
    lost = (
        Consumer(name="aiter", wheels=(str(tmp_path / "aiter-*.whl"),)),
        user,
        Consumer(name="broken", wheels=(str(tmp_path / "broken-1-py3-none-any.whl"),)),
    )
    (tmp_path / "broken-1-py3-none-any.whl").write_bytes(b"PK")
    budgets = {"torch": Budget(installed_size=100)}
    newer = stage_torch(store, tmp_path / "newer", "2.11.0", content="", **HERE)
    told = _told(store, newer, msgspec.structs.replace(stack_of(newer), consumers=lost, budgets=budgets))
    assert len(told) == 4
    assert any("whether aiter breaks is not known: there is no wheel" in text for text in told)
    assert any("whether broken breaks is not known: " in text for text in told)
    assert any(GONE in text for text in told)
    assert any("over the budget of 100" in text for text in told)


def _torch(folder: Path, version: str, kernels: Mapping[str, Sequence[str]], triton: str) -> Path:
    """A torch with these kernels by target, which requires triton so."""
    code = {
        f"hipv4-amdgcn-amd-amdhsa--{target}": make_code_object(
            target, b"code", [{".name": name, ".symbol": f"{name}.kd"} for name in names]
        )
        for target, names in kernels.items()
    }
    library = make_elf(soname="libtorch_hip.so", sections={".hip_fatbin": make_bundle(code)})
    files = {"torch/__init__.py": b"", "torch/lib/libtorch_hip.so": library}
    return with_bill(
        build_wheel(
            folder, name="torch", version=version, tags=LINUX, requires=[f"triton{triton}"], files=files
        )
    )


@pytest.mark.parametrize(
    ("kernels", "triton", "said"),
    [
        pytest.param(
            {"gfx942": ["gemm", "roll"], "gfx1100": ["gemm"]},
            "==3.5.0",
            "1 kernels lost since 2.9.0, where the budget is 0: roll for gfx1100 (consumers: user)",
            id="a kernel lost for one target",
        ),
        pytest.param(
            {"gfx942": ["gemm", "roll"]},
            "==3.5.0",
            "1 targets lost since 2.9.0, where the budget is 0: gfx1100 (consumers: user)",
            id="a target lost",
        ),
        pytest.param(
            {"gfx942": ["gemm", "roll"], "gfx1100": ["gemm", "roll"]},
            ">=3.5",
            "1 requirements that were exact in 2.9.0, where the budget is 0: triton (consumers: user)",
            id="a requirement loosened",
        ),
    ],
)
def test_a_loss_that_no_consumer_names_is_over_budget_and_names_the_consumers(
    tmp_path: Path, kernels: Mapping[str, Sequence[str]], triton: str, said: str
) -> None:
    store = MemoryStore()
    build_wheel(tmp_path, name="user", requires=(), files={"user/a.py": b"import torch\n"})
    sets = []
    both = {"gfx942": ["gemm", "roll"], "gfx1100": ["gemm", "roll"]}
    for version, has, requires in (("2.9.0", both, "==3.5.0"), ("2.10.0", kernels, triton)):
        wheel = _torch(tmp_path / version, version, has, requires)
        put(store, "staging", [make_wheel(tmp_path / version, "triton", "3.5.0")])
        sets.append(
            stage_set(
                store,
                "staging",
                make_set([wheel], targets=("gfx942", "gfx1100"), family="gfx94X-dcgpu"),
                [wheel],
            )
        )
    move(store, sets[0])
    stack = msgspec.structs.replace(
        stack_of(sets[1], device_code=["torch"]),
        budgets={"torch": Budget(targets_lost=0, kernels_lost=0, loosened_requirements=0)},
        consumers=(Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),)),),
    )
    (told,) = _told(store, sets[1], stack)
    assert told.endswith(said)


def test_the_last_set_of_another_stack_is_a_consumer(store: MemoryStore, tmp_path: Path) -> None:
    new = stage_torch(store, tmp_path / "new", "2.10.0", content="", **HERE)
    user = Consumer(name="sample", index="dev")
    stack = msgspec.structs.replace(stack_of(new), consumers=(user,))
    (nobody,) = _told(store, new, stack)
    assert "whether sample breaks is not known: " in nobody
    for number, code in ((1, "import torch\n"), (2, "from torch import gone\n")):
        wheel = make_wheel(tmp_path / "user", "torchvision", f"1.{number}", content=code)
        stage_set(store, "dev", make_set([wheel]), [wheel])
    (broken,) = _told(store, new, stack)
    assert "(torchvision): torchvision 1.2 can no longer be imported: torchvision: ImportError: " in broken
    away = make_wheel(tmp_path / "other", "torchvision", "1.3", content="import torch\n")
    stage_set(store, "dev", make_set([away], **AWAY), [away])  # for a different platform
    assert len(_told(store, new, stack)) == 1


def test_a_module_that_fails_beside_both_sets_is_no_break_and_is_named(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a consumer requires besides the set is not installed, unless its wheels are named as well."""
    new = stage_torch(store, tmp_path / "new", "2.10.0", content="", **HERE)
    files = {
        "user/__init__.py": b"",
        "user/a.py": b"import helper\nfrom torch import gone\n",
        "user/tests/b.py": b"from torch import gone\n",
        "user/c.py": b"def f():\n    from torch import gone\n",
    }
    build_wheel(tmp_path, name="user", requires=(), files=files)
    user = Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),))
    assert _told(store, new, msgspec.structs.replace(stack_of(new), consumers=(user,))) == []
    assert "not compared, since they can be imported beside neither set: user.a" in capsys.readouterr().err
    build_wheel(tmp_path, name="helper", requires=(), files={"helper/__init__.py": b""})
    helper = Consumer(name="helper", wheels=(str(tmp_path / "helper-*.whl"),))
    (told,) = _told(store, new, msgspec.structs.replace(stack_of(new), consumers=(user, helper)))
    assert GONE in told


def test_consumers_that_cannot_be_installed_beside_the_set_are_told(
    store: MemoryStore, tmp_path: Path
) -> None:
    new = stage_torch(store, tmp_path / "new", "2.10.0", **HERE)
    for version in ("1.0", "1.1"):
        build_wheel(tmp_path, name="user", version=version, requires=())
    user = Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),))
    (told,) = _told(store, new, msgspec.structs.replace(stack_of(new), consumers=(user,)))
    assert "whether a consumer breaks is not known: " in told


def test_where_no_python_of_the_set_is_consumers_are_read_and_not_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    move(store, stage_torch(store, tmp_path / "old", content="def gone(): pass\n"))
    new = stage_torch(store, tmp_path / "new", "2.10.0", content="")
    build_wheel(tmp_path, name="user", requires=("torch<2.10",), files={"user/a.py": b"import torch.gone\n"})
    user = Consumer(name="user", wheels=(str(tmp_path / "user-*.whl"),))
    (told,) = _told(store, new, msgspec.structs.replace(stack_of(new), consumers=(user,)))
    assert "requires torch<2.10: torch 2.9.0 is, 2.10.0 is not" in told
    assert "consumers were not imported, since no interpreter is at hand: user-1.0" in capsys.readouterr().err


def test_an_import_that_takes_longer_than_its_budget_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    new = stage_torch(store, tmp_path / "new", "2.10.0")
    runs = kept(record_of(new, import_seconds=3.5), record_of(new, import_seconds=3.25), record_of(new))
    for most, said in ((3.0, ["3.25 seconds for its import, where the budget is 3.00"]), (3.25, [])):
        budgets = {"torch": Budget(import_seconds=most)}
        stack = msgspec.structs.replace(stack_of(new), budgets=budgets)
        case = case_of(store, new, stack=stack, set_records=runs)
        with opened(case) as files:
            told = [text.partition("): ")[2] for text in findings(case, files) if "import_seconds" in text]
        assert told == said
