from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.rocm_version import with_rocm
from cairn.wheels.rewrite.set_version import RenamedWheel, RocmChange, repinned, set_versions
from cairn.wheels.rewrite.version_options import NewVersion
from cairn.wheels.verify import Expectation, verify
from helpers.wheels import MakeWheel, altered, cairn_wheel, members_of, rocm_versions, validated

Stones = dict[str, Path]

INIT = b'''"""Loads the ROCm libraries."""


def initialize():
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames=[
            'amdhip64',
        ],
        check_version='7.10.0rc1',
    )
'''
VERSION = b"""from typing import Optional

__all__ = ['__version__', 'debug', 'hip']
__version__ = '2.9.0+rocm7.10.0rc1'
debug = False
hip: Optional[str] = '7.1.25424'
rocm: Optional[str] = "7.10.0rc1"
git_version = '0123456789abcdef0123456789abcdef01234567'
"""


@pytest.fixture
def stones(make_wheel: MakeWheel) -> Stones:
    """A set as a build leaves it."""
    return {
        "triton": make_wheel(name="triton", version="3.5.0+rocm7.10.0rc1", requires=()),
        "torch": make_wheel(
            name="torch",
            version="2.9.0+rocm7.10.0rc1",
            requires=(
                "filelock",
                "rocm[libraries]==7.10.0rc1",
                "rocm-sdk-core == 7.10.0rc1 ; sys_platform == 'linux'",
                "rocm-bootstrap==0.3",
                "triton==3.5.0+rocm7.10.0rc1; platform_machine == 'x86_64'",
                'torch-device-gfx942==2.9.0+rocm7.10.0rc1 ; extra == "device-gfx942"',
                'torch-device-gfx942==2.9.0+rocm7.10.0rc1 ; extra == "device-all"',
            ),
            files={"torch/__init__.py": b"", "torch/_rocm_init.py": INIT, "torch/version.py": VERSION},
        ),
        "vision": make_wheel(
            name="torchvision",
            version="0.24.0+rocm7.10.0rc1",
            requires=("torch==2.9.0+rocm7.10.0rc1", "numpy!=1.0,>=1"),
            files={"torchvision/version.py": b"__version__ = '0.24.0+rocm7.10.0rc1'\n"},
        ),
    }


def contents(path: Path) -> Mapping[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def requires(path: Path) -> list[str]:
    return list(wheel_info.read(path).requires_dist)


@pytest.mark.parametrize(
    ("wanted", "rocm", "suffix"),
    [
        (NewVersion(rocm_version="7.10.1"), "7.10.1", "rocm7.10.1"),
        (NewVersion(stage="final"), "7.10.0", "rocm7.10.0"),
        (NewVersion(stage="rc2"), "7.10.0rc2", "rocm7.10.0rc2"),
        (NewVersion(rocm_version="10.0.0"), "10.0.0", "rocmv.10.0.0.0"),
        (
            NewVersion(rocm_version="7.14.0a20260811+bkc.20260813"),
            "7.14.0a20260811+bkc.20260813",
            "rocm7.14.0a20260811.bkc.20260813",
        ),
        (NewVersion(rocm_version="7.10.0.dev0+efed3c"), "7.10.0.dev0+efed3c", "devrocm7.10.0.dev0.efed3c"),
    ],
)
def test_a_set_stays_a_set_under_another_rocm_version(
    stones: Stones, tmp_path: Path, wanted: NewVersion, rocm: str, suffix: str
) -> None:
    made = set_versions(list(stones.values()), wanted, tmp_path / "out")
    triton, torch, vision = (change.target for change in made)
    assert [path.name.split("-")[1] for path in (triton, torch, vision)] == [
        f"3.5.0+{suffix}",
        f"2.9.0+{suffix}",
        f"0.24.0+{suffix}",
    ]
    assert requires(torch) == [
        "filelock",
        f"rocm[libraries]=={rocm}",
        f"rocm-sdk-core == {rocm} ; sys_platform == 'linux'",
        "rocm-bootstrap==0.3",
        f"triton==3.5.0+{suffix}; platform_machine == 'x86_64'",
        f'torch-device-gfx942==2.9.0+{suffix} ; extra == "device-gfx942"',
        f'torch-device-gfx942==2.9.0+{suffix} ; extra == "device-all"',
    ]
    assert requires(vision) == [f"torch==2.9.0+{suffix}", "numpy!=1.0,>=1"]
    inside = contents(torch)
    assert f"check_version='{rocm}'," in inside["torch/_rocm_init.py"]
    assert inside["torch/_rocm_init.py"] == INIT.decode().replace("7.10.0rc1", rocm)
    assert f"__version__ = '2.9.0+{suffix}'\n" in inside["torch/version.py"]
    assert f'rocm: Optional[str] = "{rocm}"\n' in inside["torch/version.py"]
    assert "'7.1.25424'" in inside["torch/version.py"]
    assert contents(vision)["torchvision/version.py"] == f"__version__ = '0.24.0+{suffix}'\n"
    for path in (triton, torch, vision):
        validated(path)
        assert "rocm7.10.0rc1" not in "".join(contents(path).values())
    pinned = Expectation(siblings={"torch": f"2.9.0+{suffix}"})
    assert not [f for f in verify(vision, pinned) if "sibling" in f.code]


def test_the_input_stays_and_what_is_done_is_said(
    stones: Stones, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in stones.values()}
    out = tmp_path / "out"
    arguments = ("--rocm-version", "7.10.1", "--output-dir", out)
    assert cairn_wheel("set-version", *arguments, "--dry-run", *stones.values()) == 0
    planned = capsys.readouterr()
    assert not out.exists()
    assert cairn_wheel("set-version", *arguments, *stones.values()) == 0
    assert capsys.readouterr() == planned
    assert "requires rocm[libraries]==7.10.1, before rocm[libraries]==7.10.0rc1" in " ".join(
        planned.err.split()
    )
    assert [Path(line).name for line in planned.out.split()] == [
        f"{name}+rocm7.10.1-py3-none-any.whl"
        for name in ("triton-3.5.0", "torch-2.9.0", "torchvision-0.24.0")
    ]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        Path(line).name for line in planned.out.split()
    )
    assert before == {path: path.read_bytes() for path in stones.values()}
    assert cairn_wheel("set-version", *arguments, "--json", *stones.values()) == 0
    torch = json.loads(capsys.readouterr().out)["wheels"][1]
    assert torch["version"] == {"old": "2.9.0+rocm7.10.0rc1", "new": "2.9.0+rocm7.10.1"}
    assert torch["files"] == ["torch/_rocm_init.py", "torch/version.py"]
    assert {"old": "rocm[libraries]==7.10.0rc1", "new": "rocm[libraries]==7.10.1"} in torch["requirements"]


def test_siblings_follow_any_version(stones: Stones, tmp_path: Path) -> None:
    torch = stones["torch"]
    (change,) = set_versions([torch], NewVersion(version="2.9.1+rocm7.10.0rc1"), tmp_path / "one")
    pins = requires(change.target)
    assert "rocm[libraries]==7.10.0rc1" in pins
    assert 'torch-device-gfx942==2.9.1+rocm7.10.0rc1 ; extra == "device-all"' in pins
    both = [stones["triton"], torch]
    made = set_versions(both, NewVersion(version="4.0"), tmp_path / "two")
    assert "triton==4.0; platform_machine == 'x86_64'" in requires(made[1].target)
    assert "rocm[libraries]==7.10.0rc1" in requires(made[1].target)


@pytest.mark.parametrize(
    ("version", "rocm", "expected"),
    [
        ("2.9.0", "7.10.0", "2.9.0+rocm7.10.0"),
        ("2.12.0a0+git1a2b3c4d.rocm7.13.0a20260430", "7.13.0", "2.12.0a0+git1a2b3c4d.rocm7.13.0"),
        ("2.12.0a0+git1a2b3c4d", "7.13.0", "2.12.0a0+git1a2b3c4d.rocm7.13.0"),
        ("2.9.0+devrocm7.10.0.dev0.abc", "7.10.0", "2.9.0+rocm7.10.0"),
        ("2.9.0+rocm10.1.0a20260811.bkc.20260813", "10.1.0rc1", "2.9.0+rocmv.10.1.0.rc.1"),
        ("2.9.0+fat.rocm7.10.0rc1", "7.10.0", "2.9.0+fat.rocm7.10.0"),
    ],
)
def test_the_rocm_part_alone_changes(
    make_wheel: MakeWheel, tmp_path: Path, version: str, rocm: str, expected: str
) -> None:
    wheel = make_wheel(version=version, requires=())
    (change,) = set_versions([wheel], NewVersion(rocm_version=rocm), tmp_path / "out")
    assert change.new == expected
    assert wheel_info.read(change.target).version == expected


@pytest.mark.parametrize(
    ("rocm", "expected"),
    [
        ("7.10.2", "rocm[libraries]~=7.10.1"),  # as it is, since it allows that
        ("7.11.0", "rocm[libraries]~=7.11.0"),
        ("7.12.0a20261128", "rocm[libraries]~=7.12.0a20261128"),
    ],
)
def test_a_compatible_release_of_the_sdk_stays_one(
    make_wheel: MakeWheel, tmp_path: Path, rocm: str, expected: str
) -> None:
    wheel = make_wheel(version="2.9.0+rocm7.10.1", requires=["rocm[libraries]~=7.10.1"])
    (change,) = set_versions([wheel], NewVersion(rocm_version=rocm), tmp_path / "out")
    assert requires(change.target) == [expected]


@pytest.mark.parametrize("local", ["git1a2b3c4d.rocm7.10.0", "fat.rocm7.10.0", "fat", None])
def test_the_old_local_part_may_end_the_new_one(
    make_wheel: MakeWheel, tmp_path: Path, local: str | None
) -> None:
    new = "2.9.0" + (f"+{local}" if local else "")
    files = {"demo/version.py": b"__version__ = '2.9.0+rocm7.10.0'\n"}
    wheel = make_wheel(version="2.9.0+rocm7.10.0", requires=(), files=files)
    (change,) = set_versions([wheel], NewVersion(version=new), tmp_path / "out")
    assert contents(change.target)["demo/version.py"] == f"__version__ = '{new}'\n"


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"version": "2.9.0+cpu"}, "a different kind of build"),
        ({"version": "2.9.0+fat.rocm7.9.0"}, "carries ROCm 7.9.0 itself"),
        ({"requires": ["rocm[libraries]<7.10"]}, "which excludes rocm 7.10.0"),
        ({"requires": ["rocm-sdk-core~=7.9.0,<7.10"]}, "which excludes rocm-sdk-core 7.10.0"),
        ({"requires": ["rocm==7.9.0,<7.10"]}, "which excludes rocm 7.10.0"),
        ({"version": "1.0+rocm7.9.0", "requires": ["triton==3.5+rocm7.8.0"]}, "is of ROCm 7.9.0"),
        ({"files": {"demo/_rocm_init.py": b"f(check_version=VERSION)"}}, "not written out"),
        (
            {
                "version": "1.0+rocm7.9.0",
                "files": {"demo/version.py": b"__version__ = '1.0' + '+rocm7.9.0'\n"},
            },
            "cannot be changed safely",
        ),
    ],
)
def test_what_cannot_follow_is_refused_and_nothing_written(
    make_wheel: MakeWheel, tmp_path: Path, properties: dict[str, object], match: str
) -> None:
    good = make_wheel(name="good", requires=())
    wheel = make_wheel(**({"requires": ()} | properties))
    with pytest.raises(WheelError, match=match):
        set_versions([good, wheel], NewVersion(rocm_version="7.10.0"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_requirement_given_by_hand_wins(make_wheel: MakeWheel, tmp_path: Path) -> None:
    torch = make_wheel(name="torch", version="2.9.0+rocm7.9.0", requires=("rocm<7.10", "triton==3.4"))
    triton = make_wheel(name="triton", version="3.5", requires=())
    with pytest.raises(WheelError, match=r"triton given with it is 3\.5"):
        set_versions(
            [torch, triton], NewVersion(rocm_version="7.10.0", requires=("rocm>=7.10",)), tmp_path / "out"
        )
    wanted = NewVersion(rocm_version="7.10.0", requires=("rocm>=7.10", "triton==3.5+rocm7.10.0"))
    made = set_versions([torch, triton], wanted, tmp_path / "out")
    assert requires(made[0].target) == ["rocm>=7.10", "triton==3.5+rocm7.10.0"]
    assert requires(made[1].target) == ["rocm>=7.10"]


def test_several_requirements_of_one_project_may_be_given(make_wheel: MakeWheel, tmp_path: Path) -> None:
    pair = ("numpy<2; python_version < '3.12'", "numpy>=2; python_version >= '3.12'")
    for own in ((), ("numpy", "filelock")):
        wheel = make_wheel(requires=own)
        (change,) = set_versions([wheel], NewVersion(version="2", requires=pair), tmp_path / "out")
        assert sorted(requires(change.target)) == sorted((*pair, *own[1:]))


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        ("1.2.3", "1.3.0rc1", "(1, 2, 3)", "(1, 3, 0, 'rc1')"),
        ("1.2.dev4+gabc", "2.0", "(1, 2, 'dev4', 'gabc')", "(2, 0)"),
        ("1.2.dev4+gabc", "2.0+rocm7.10.0", '(1, 2, "dev4", "gabc")', "(2, 0, 'rocm7.10.0')"),
        ("1.2.3", "2.0", "(1, 8)", "(1, 8)"),  # of something else
        ("1.2.3", "2.0", "(MAJOR, 2, 3)", "(MAJOR, 2, 3)"),
    ],
)
def test_the_parts_of_the_version_follow_too(
    make_wheel: MakeWheel, tmp_path: Path, old: str, new: str, before: str, after: str
) -> None:
    # As setuptools-scm and hatch-vcs write it.
    text = "__version__ = version = '{}'\n__version_tuple__ = version_tuple = {}\n"
    files = {"demo/_version.py": text.format(old, before).encode()}
    wheel = make_wheel(version=old, requires=(), files=files)
    (change,) = set_versions([wheel], NewVersion(version=new), tmp_path / "out")
    assert contents(change.target)["demo/_version.py"] == text.format(new, after)


def test_a_pin_that_allows_the_new_version_stays(make_wheel: MakeWheel, tmp_path: Path) -> None:
    torch = make_wheel(name="torch", version="2.9.0+rocm7.9.0", requires=("triton==3.5", "rocm==7.*"))
    triton = make_wheel(name="triton", version="3.5+rocm7.9.0", requires=())
    made = set_versions([torch, triton], NewVersion(rocm_version="7.10.0"), tmp_path / "out")
    assert requires(made[0].target) == ["triton==3.5", "rocm==7.*"]


def test_device_wheels_follow_their_host(make_wheel: MakeWheel, tmp_path: Path) -> None:
    device = make_wheel(
        name="amd_torch_device_gfx942",
        version="2.9.0+rocm7.9.0",
        requires=("torch==2.9.0+rocm7.9.0", "rocm-sdk-device-gfx942==7.9.0"),
    )
    (change,) = set_versions([device], NewVersion(rocm_version="7.10.0"), tmp_path / "a")
    assert requires(change.target) == ["torch==2.9.0+rocm7.10.0", "rocm-sdk-device-gfx942==7.10.0"]
    (change,) = set_versions([device], NewVersion(version="3.0+rocm7.9.0"), tmp_path / "b")
    assert requires(change.target) == ["torch==3.0+rocm7.9.0", "rocm-sdk-device-gfx942==7.9.0"]


def test_packages_of_the_sdk_get_its_version(make_wheel: MakeWheel, tmp_path: Path) -> None:
    core = make_wheel(
        name="rocm_sdk_core",
        version="7.9.0rc1",
        requires=(),
        files={
            "rocm_sdk_core/_dist_info.py": b"__version__ = '7.9.0rc1'\nother = 'rocm7.9.0rc1'\n",
            "_rocm_sdk_core/share/therock/therock_manifest.json": b'{"rocm_version": "7.9.0rc1"}',
            "_rocm_sdk_core/lib/python/site/version.py": b"__version__ = '7.9.0rc1'\n",
        },
    )
    devel = make_wheel(name="rocm_sdk_devel", version="7.9.0rc1", requires=("rocm-sdk-core==7.9.0rc1",))
    for wanted in (NewVersion(rocm_version="7.9.0"), NewVersion(stage="final")):
        made = set_versions([core, devel], wanted, tmp_path / "out")
        assert [change.new for change in made] == ["7.9.0", "7.9.0"]
        assert requires(made[1].target) == ["rocm-sdk-core==7.9.0"]
        inside = contents(made[0].target)
        assert inside["rocm_sdk_core/_dist_info.py"].startswith("__version__ = '7.9.0'\n")
        assert inside["_rocm_sdk_core/share/therock/therock_manifest.json"] == '{"rocm_version": "7.9.0"}'
        assert "rc1" in inside["_rocm_sdk_core/lib/python/site/version.py"]
    profiler = make_wheel(name="rocm_profiler", version="7.9.0rc1", requires=("rocm-sdk-core==7.9.0rc1",))
    (renamed,) = set_versions([profiler], NewVersion(rocm_version="7.9.0"), tmp_path / "profiler")
    assert (renamed.new, requires(renamed.target)) == ("7.9.0", ["rocm-sdk-core==7.9.0"])


def test_two_wheels_of_one_name_and_the_source_itself_are_refused(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    one, two = make_wheel(version="1.0", requires=()), make_wheel(version="1.1", requires=())
    with pytest.raises(WheelError, match="both be named"):
        set_versions([one, two], NewVersion(version="2"), tmp_path / "out")
    with pytest.raises(WheelError, match="own source"):
        set_versions([one], NewVersion(version="1.0"), one.parent)
    assert sorted(path.name for path in one.parent.iterdir()) == sorted((one.name, two.name))


def test_one_wheel_for_each_python_keeps_its_pin(make_wheel: MakeWheel, tmp_path: Path) -> None:
    projects = (("torch", "2.9.0", ()), ("torchaudio", "2.9", ("torch==2.9.0+rocm7.9.0",)))
    wheels = [
        make_wheel(name=name, version=f"{base}+rocm7.9.0", tags=(f"cp{python}-none-any",), requires=pins)
        for python in (311, 312)
        for name, base, pins in projects
    ]
    made = set_versions(wheels, NewVersion(rocm_version="7.10.0"), tmp_path / "out")
    found = [Requirement(text) for change in made for text in requires(change.target)]
    assert [(canonicalize_name(pin.name), str(pin.specifier)) for pin in found] == [
        ("torch", "==2.9.0+rocm7.10.0"),
        ("torch", "==2.9.0+rocm7.10.0"),
    ]


@given(rocm_versions(), rocm_versions(), st.sampled_from(["", "+git1a2b3c4d"]))
def test_exact_pins_follow_from_any_rocm_version_to_any_other(old: str, new: str, commit: str) -> None:
    before = {"torch": f"2.9.0{commit}", "triton": "3.5.0"}
    olds = {name: with_rocm(base, old) for name, base in before.items()}
    news = {name: with_rocm(version, new) for name, version in olds.items()}
    assert news == {name: with_rocm(base, new) for name, base in before.items()}
    requirements = [f"rocm[libraries]=={old}", *(f"{name}==={version}" for name, version in olds.items())]
    for siblings in ({}, {name: {olds[name]: news[name]} for name in olds}):
        wheel = RenamedWheel(
            file_name="v.whl",
            distribution="torchvision",
            old=with_rocm("0.24", old),
            new=with_rocm("0.24", new),
            rocm=RocmChange(old=old, new=new),
            siblings=siblings,
        )
        changed = repinned(requirements, wheel)
        found = [Requirement(changed.get(text, text)).specifier for text in requirements]
        for specifier, wanted in zip(found, (new, *news.values()), strict=True):
            assert specifier.contains(wanted, prereleases=True)


_KILLED = """
import os, sys
from pathlib import Path
from cairn.wheels.rewrite.set_version import NewVersion, set_versions
left = int(sys.argv[1])
def kill(event, arguments):
    global left
    left -= event == "os.rename"
    if event == "os.rename" and not left:
        os._exit(9)
sys.addaudithook(kill)
set_versions([Path(each) for each in sys.argv[3:]], NewVersion(rocm_version="7.10.1"), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("existing", [False, True])
def test_a_kill_leaves_nothing_that_the_same_command_does_not_mend(
    stones: Stones, tmp_path: Path, *, existing: bool
) -> None:
    """In a folder that was not there, no reader meets some of the wheels without the others."""
    seen, code, moment = [], 9, 0
    while code:
        out = tmp_path / (str(moment) if not existing else "out")
        out.parent.mkdir(exist_ok=True)
        if existing:
            out.mkdir(exist_ok=True)
        moment += 1
        command = [sys.executable, "-c", _KILLED, str(moment), str(out), *map(str, stones.values())]
        code = subprocess.run(command, check=False).returncode
        assert code in (0, 9)
        seen.append(sum(1 for _ in out.glob("*.whl")))
    assert seen[-1] == len(stones)
    assert existing or set(seen) == {0, len(stones)}


def test_line_ends_stay_as_they_are(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel(requires=("triton==3.5.0",))
    metadata, build = "demo-1.0.dist-info/METADATA", "demo-1.0.dist-info/WHEEL"
    content = {name: data.replace(b"\n", b"\r\n") for name, data in members_of(wheel).items()}
    altered(wheel, content, record=True)
    wanted = NewVersion(version="2.0", build="1", requires=("numpy",))
    (change,) = set_versions([wheel], wanted, tmp_path / "out")
    made = members_of(change.target)
    for name in (metadata, build):
        data = made[name.replace("1.0", "2.0")]
        assert data.count(b"\n") == data.count(b"\r\n") > content[name].count(b"\n")
    validated(change.target)
