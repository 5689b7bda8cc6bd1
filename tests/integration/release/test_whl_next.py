"""An index in the shape of AMD's present ones, which lists no sets: what is installed and locked of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from cairn import targets, venv
from cairn.errors import NetworkError
from cairn.release.publish import sdk_index, sdk_packages
from cairn.release.publish.compatibility import Platform
from helpers import sdk_index as sdk_stack
from helpers.hardware import RX7900, TORCH, kernel_nodes
from helpers.program import Cairn
from helpers.release import make_wheel
from helpers.whl_next import NEWEST, OLDER_ROCM, OLDER_TORCH, WhlNext

SET = "torch[device-gfx1100]==2.14.0+rocm10.1.0", "torchvision[device-gfx1100]==0.29.0a0+rocm10.1.0"
AUDIO, ROCM = "torchaudio==2.11.0.3+rocm10.1.0", "rocm==10.1.0"
OLDER = (
    "torch[device-gfx1100]==2.13.0+rocm10.0.0",
    "torchvision[device-gfx1100]==0.28.0+rocm10.0.0",
    "torchaudio==2.11.0.2+rocm10.0.0",
    "rocm==10.0.0",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two ROCm builds, the newer with two versions of torch."""
    folder = tmp_path_factory.mktemp("whl-next")
    for release in (NEWEST, OLDER_TORCH, OLDER_ROCM):
        WhlNext(folder).add(release, ("gfx942", "gfx1100", "gfx1201"), torch=TORCH)
    return folder


@pytest.fixture
def index(files: Path, tmp_path: Path) -> Iterator[WhlNext]:
    """The index, for the test to change."""
    with WhlNext(shutil.copytree(files, tmp_path / "whl-next")).serving() as served:
        yield served


def choices(cairn: Cairn, index: WhlNext, *words: str) -> tuple[tuple[str, ...], str, list[str]]:
    """What `cairn install` would install, what it could not know, and its warnings."""
    found = cairn.json("install", "--dry-run", "--index-url", index.url, "--gpu", "gfx1100", *words)
    (choice,) = found["choices"]
    return tuple(choice["packages"]), choice["untested"], found["warnings"]


def test_one_set_of_the_newest_build_is_taken_by_exact_versions(cairn: Cairn, index: WhlNext) -> None:
    packages, untested, warnings = choices(cairn, index)
    assert packages == (*SET, AUDIO, ROCM)
    assert untested.startswith(
        f"{index.url} does not say what was tested on which GPU; it gives no hash of torch-2.14"
    )
    assert untested.endswith("unverified")
    assert warnings == []
    index.hashed = True
    assert choices(cairn, index)[1] == f"{index.url} does not say what was tested on which GPU"


def test_several_gpus_get_their_code_in_one_environment(cairn: Cairn, index: WhlNext, tmp_path: Path) -> None:
    nodes = kernel_nodes(tmp_path / "nodes", 110000, 120001, 100306)
    out, err = cairn("install", "--dry-run", "--index-url", index.url, "--topology-dir", nodes)
    assert '"torch[device-gfx1100,device-gfx1201]==2.14.0+rocm10.1.0"' in out
    assert "left out, as graphics of the processor: gfx1036" in err


@pytest.mark.parametrize(
    ("hidden", "packages", "why"),
    [
        # Two ROCm builds side by side, and the newer one is not whole.
        (
            ["torchvision-0.29", "torchvision-0.28.0+rocm10.1"],
            OLDER,
            "no torchvision of ROCm 10.1.0 that goes with it",
        ),
        (
            ["amd_torch_device_gfx110x-2.14", "amd_torch_device_gfx110x-2.13.0+rocm10.1"],
            OLDER,
            "amd-torch-device-gfx110x==",
        ),
        (
            ["amd_torch_device_gfx1100-2.14", "amd_torch_device_gfx1100-2.13.0+rocm10.1"],
            OLDER,
            "amd-torch-device-gfx1100==",
        ),
        (["rocm_bootstrap", "torchaudio-2.11.0.3"], (), "no rocm-bootstrap"),
        # A torchvision of another torch does not make a set with the newest one.
        (
            ["torchvision-0.29"],
            (
                SET[0].replace("2.14.0", "2.13.0"),
                SET[1].replace("0.29.0a0", "0.28.0"),
                AUDIO[:-12] + "2+rocm10.1.0",
                ROCM,
            ),
            "no torchvision of ROCm 10.1.0 that goes with it, and has 0.28.0+rocm10.1.0",
        ),
        # Yesterday's files are gone.
        (
            ["torch-2.14", "torchvision-0.29"],
            (
                SET[0].replace("2.14.0", "2.13.0"),
                SET[1].replace("0.29.0a0", "0.28.0"),
                AUDIO[:-12] + "2+rocm10.1.0",
                ROCM,
            ),
            "",
        ),
    ],
)
def test_a_set_that_is_not_whole_is_passed_over_and_named(
    cairn: Cairn, index: WhlNext, hidden: list[str], packages: tuple[str, ...], why: str
) -> None:
    index.hidden = hidden
    if not packages:
        _, err = cairn("install", "--dry-run", "--index-url", index.url, "--gpu", "gfx1100", code=3)
        assert "has no whole set for gfx1100" in err
        assert why in err
        return
    taken, _, warnings = choices(cairn, index)
    assert taken == packages
    assert [why in text for text in warnings[:1]] == ([True] if why else [])


def test_requirements_that_cannot_be_read_are_told(cairn: Cairn, index: WhlNext) -> None:
    index.sidecars = False
    packages, untested, _ = choices(cairn, index)
    assert packages == (*SET, AUDIO)
    assert "it shows no requirements of torch-2.14.0" in untested
    # Of an older torch nobody can tell then which torchvision goes with it.
    index.hidden = ["torchvision-0.29"]
    assert choices(cairn, index)[0][0] == "torch[device-gfx1100]==2.14.0+rocm10.1.0"


def test_requirements_without_a_sidecar_are_read_from_the_wheels_themselves(
    cairn: Cairn, index: WhlNext
) -> None:
    index.hidden = ["torchvision-0.29"]  # so that the newest torch has none that goes with it
    expected = choices(cairn, index)
    index.sidecars, index.ranges = False, True
    assert choices(cairn, index) == expected
    (wheel,) = index.folder.glob("torch-2.14.0*.whl")
    wheel.write_bytes(b"no wheel")
    index.hidden = []
    packages, _, warnings = choices(cairn, index)
    assert packages == expected[0]
    assert "is not a ZIP archive" in warnings[0]


def test_a_newer_torch_without_code_for_the_gpu_does_not_keep_from_the_older(
    cairn: Cairn, index: WhlNext
) -> None:
    """Nobody can read then which torchaudio goes with the older one: the installer can."""
    index.sidecars = False
    index.add(NEWEST._replace(torch="2.15.0", vision="0.30.0", audio="2.11.0.4"), ())
    packages, untested, warnings = choices(cairn, index)
    assert packages == (*SET, "torchaudio")
    assert "the installer finds the torchaudio that goes with it" in untested
    assert "torch-2.15.0+rocm10.1.0" in warnings[0]
    assert "has no code for gfx1100" in warnings[0]


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (b"\x00\xff\xfe", "cannot be read"),
        (
            b"Metadata-Version: 2.1\nName: torch\nVersion: 2.14.0+rocm10.1.0\nRequires-Dist: ((((\n",
            "cannot be read",
        ),
        (b"Metadata-Version: 2.1\nName: requests\nVersion: 1.0\n", "is that of requests 1.0"),
    ],
)
def test_a_wheel_whose_metadata_cannot_be_believed_is_passed_over(
    cairn: Cairn, index: WhlNext, metadata: bytes, why: str
) -> None:
    (sidecar,) = index.folder.glob("torch-2.14.0*.metadata")
    sidecar.write_bytes(metadata)
    packages, _, warnings = choices(cairn, index)
    assert packages[0] == SET[0].replace("2.14.0", "2.13.0")
    assert f"the metadata of {sidecar.name.removesuffix('.metadata')} {why}" in warnings[0]


def test_what_was_announced_is_installed(cairn: Cairn, index: WhlNext, tmp_path: Path) -> None:
    environment = venv.create(tmp_path / "environment")
    nodes = kernel_nodes(tmp_path / "nodes", RX7900)
    out, err = cairn(
        "install", "--index-url", index.url, "--topology-dir", nodes, "--python", environment.python,
        "--installer", "uv",
    )  # fmt: skip
    assert "compared by version alone: torch, torchvision, torchaudio; the index does not offer parts" in err
    assert "it works: torch 2.14.0+rocm10.1.0 has multiplied matrices on RX 7900 XTX (gfx1100)" in out
    command = [venv.uv_program(), "pip", "freeze", "--python", environment.python]
    frozen = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert {
        *("torch==2.14.0+rocm10.1.0", "torchvision==0.29.0a0+rocm10.1.0", AUDIO, ROCM),
        *("amd-torch-device-gfx1100==2.14.0+rocm10.1.0", "amd-torch-device-gfx110x==2.14.0+rocm10.1.0"),
        *("amd-torchvision-device-gfx1100==0.29.0a0+rocm10.1.0", "rocm-bootstrap==10.1.0"),
    } <= set(frozen)


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_torch_of_the_same_version_without_the_extra_is_not_taken_for_it(
    cairn: Cairn, index: WhlNext, tmp_path: Path, installer: str
) -> None:
    environment = venv.create(tmp_path / "environment")
    wheel = make_wheel(tmp_path, "torch", "2.14.0+rocm10.1.0", content=TORCH.replace("{version}", "2.14.0"))
    uv = [venv.uv_program(), "pip", "install", "-q", "--python", environment.python, "--no-deps", wheel]
    subprocess.run(uv, check=True)
    words = ("--gpu", "gfx1100", "--python", environment.python, "--installer", installer)
    _, err = cairn("install", "--index-url", index.url, *words, code=3)
    assert re.search("not all of it was installed: .*extra", err)


def test_a_gpu_that_the_index_lacks(cairn: Cairn, index: WhlNext) -> None:
    _, err = cairn("install", "--dry-run", "--index-url", index.url, "--gpu", "gfx900", code=3)
    assert "has no torch with code for gfx900" in err
    assert "it has code for gfx942, gfx1100, gfx1201" in err
    _, err = cairn("install", "--dry-run", "--index-url", index.url, "--gpu", "cpu", code=3)
    assert "no GPU is named" in err


@pytest.fixture
def streams(index: WhlNext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WhlNext]:
    """AMD's streams by other addresses: stable is `index`, nightly has more, rc and dev do not answer."""
    nightly = WhlNext(tmp_path / "nightly")
    nightly.add(NEWEST._replace(rocm="10.2.0a20261101", torch="2.15.0a0"), ("gfx900", "gfx1100"))
    with nightly.serving():
        silent = "http://127.0.0.1:9/"
        addresses = {"stable": index.url, "nightly": nightly.url, "rc": silent, "dev": silent}
        monkeypatch.setattr(targets, "upstream_streams", lambda: addresses)
        yield nightly


def test_the_stable_stream_is_the_default_and_says_which_other_has_more(
    cairn: Cairn, streams: WhlNext
) -> None:
    out, _ = cairn("install", "--dry-run", "--gpu", "gfx1100")
    assert out.splitlines()[0].endswith(f'"{SET[0]}" "{SET[1]}" {AUDIO} {ROCM}')
    out, _ = cairn("install", "--dry-run", "--gpu", "gfx1100", "--stream", "nightly")
    assert f"{streams.url} " in out
    assert '"torch[device-gfx1100]==2.15.0a0+rocm10.2.0a20261101"' in out
    _, err = cairn("install", "--dry-run", "--gpu", "gfx900", code=3)
    assert "AMD's stream stable" in err
    assert "the stream nightly has: --stream nightly; rc and dev did not answer" in err
    _, err = cairn("install", "--dry-run", "--gpu", "gfx1100", "--stream", "rc", code=5)
    assert "cannot read http://127.0.0.1:9/torch/: Connection refused" in err


def test_a_build_for_a_gpu_takes_the_sdk_of_a_stream_and_says_which_other_has_it(
    cairn: Cairn, streams: WhlNext, index: WhlNext, tmp_path: Path
) -> None:
    stack = sdk_stack.write_stack(tmp_path / "stack")
    words = (
        "build",
        "--stack",
        stack,
        "--root-checkout-dir",
        tmp_path / "src",
        "--output-dir",
        tmp_path / "o",
    )
    dry = (*words, "--dry-run", "--gpu")
    assert f"ROCm SDK  the newest of {index.url}" in cairn(*dry, "gfx900").out
    assert f"ROCm SDK  the newest of {streams.url}" in cairn(*dry, "gfx900", "--stream", "nightly").out
    _, err = cairn(*words, "--gpu", "gfx900", code=3)
    assert f"AMD's stream stable ({index.url}) has no ROCm SDK for gfx900" in err
    assert "the stream nightly has: --stream nightly; rc and dev did not answer" in err
    _, err = cairn(*words, "--gpu", "gfx942", "--stream", "nightly", code=3)
    assert "the stream stable has: --stream stable" in err
    _, err = cairn(*words, "--gpu", "gfx942", "--stream", "nightly", "--index-url", index.url, code=2)
    assert "not allowed with" in err
    _, err = cairn(*words, "--gpu", "gfx942", "--stream", "rc", code=5)
    assert "cannot read http://127.0.0.1:9/" in err
    assert not (tmp_path / "src").exists()


def test_an_index_that_does_not_answer_is_told_as_that(cairn: Cairn, index: WhlNext) -> None:
    index.down = True
    _, err = cairn("install", "--dry-run", "--index-url", index.url, "--gpu", "gfx1100", code=5)
    assert re.search(r"cannot read http\S+: it answers 503", err)


def test_the_sdk_of_the_index_is_offered_and_what_it_dropped_is_named(index: WhlNext, tmp_path: Path) -> None:
    offered = sdk_index.offered(index.url)
    assert {f"rocm-{version}-py3-none-any.whl" for version in ("10.0.0", "10.1.0")} <= offered.keys()
    assert all(file.url.startswith(f"{index.address}/rocm/core/whl-next/rocm") for file in offered.values())
    place = Platform.here()
    newest, older = Version("10.1.0"), Version("10.0.0")
    lacks = sdk_packages.lacks_by_version(index.url, [(place, ("gfx1100", "gfx942"))])
    assert lacks == {newest: (), older: ()}
    lacks = sdk_packages.lacks_by_version(index.url, [(place, ("gfx1100", "gfx900"))])
    assert sdk_packages.never_there(lacks) == ("rocm-sdk-device-gfx900",)
    index.hidden = ["rocm-10.1.0"]
    assert list(sdk_packages.lacks_by_version(index.url, [(place, ())])) == [older]
    with pytest.raises(NetworkError, match=r"has no rocm-10\.1\.0\S* any more; it has rocm 10\.0\.0"):
        sdk_index.fetch_installed(
            index.url, {"rocm-10.1.0-py3-none-any.whl": "0" * 64}, tmp_path / "fetched", tip="look"
        )
    index.down = True
    with pytest.raises(NetworkError, match="503"):
        sdk_packages.lacks_by_version(index.url, [(place, ())])


def test_the_build_for_the_cpu_is_announced_and_installed_by_exact_versions(
    cairn: Cairn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WhlNext(tmp_path / "cpu").serving() as cpu:
        monkeypatch.setattr(targets, "upstream_cpu_index", lambda: cpu.url)
        cpu.add_cpu("2.12.0+cpu", "0.27.0+cpu", "2.11.0+cpu")
        cpu.add_cpu("2.13.0+cpu", "0.28.0+cpu", "2.11.0+cpu")
        cpu.add_cpu("2.14.0+cu130", "0.29.0+cu130", "2.11.0+cu130")
        cpu.add_cpu("2.14.0+cpu", "0.29.0+cpu", "2.11.0+cpu")
        cpu.hidden = ["torchvision-0.29.0"]  # its publisher is at work
        environment = venv.create(tmp_path / "environment")
        words = ("install", "--gpu", "cpu", "--python", environment.python)
        out, err = cairn(*words, "--dry-run")
        assert out.splitlines()[0].endswith(
            "torch==2.13.0+cpu torchvision==0.28.0+cpu torchaudio==2.11.0+cpu"
        )
        assert "passed over: torch 2.14.0+cpu: the index has no torchvision for the CPU" in err
        assert "does not say what was tested" in err
        put = [
            venv.uv_program(),
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--find-links",
            cpu.folder,
        ]
        subprocess.run([*put, "--python", environment.python, "torch==2.14.0+cu130"], check=True)
        assert "it works: torch 2.13.0+cpu has multiplied matrices on the CPU" in cairn(*words).out
        cpu.down = True
        assert "it answers 503" in cairn(*words, code=5).err
