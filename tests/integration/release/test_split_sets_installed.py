"""What pip and uv make of host and device wheels in an index of ours, by version of the installer.

The tests by hand install with each version that the table of docs/explanation/device-wheels-and-installers.md
has a column for, and compare every cell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from uv import find_uv_bin

from cairn import datafile
from cairn.cli.main import main
from cairn.release.index.keys import index_url
from cairn.release.publish import files
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from cairn.wheels.metadata import variants, wheel_info
from cairn.wheels.metadata.variants import Provider
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.join import variant_for, write_variant
from cairn.wheels.split.split import split
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.pages import PLATFORM, PYTHON
from helpers.release import make_set, make_wheel, move, stage_set, with_bill
from helpers.wheels import build_wheel

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/explanation/device-wheels-and-installers.md"
TARGETS = ("gfx942", "gfx1100")
OLD, NEW = "2.9.0+rocm7.14.0a20261101", "2.9.0+rocm7.14.0a20261102"
INSTALLERS = ("pip 23.0", "pip 24.0", "pip 25.3", "pip 26.3", "uv 0.5.31", "uv 0.8.24", "uv 0.13.9")
PREVIEW = "uv 0.13.9 with `--preview-features wheel-variants`"

# What an installer may say besides, and the words of the table for it.
_SAID = {
    r"does not (provide|have) (the|an) extra": "names the extra that is missing",
    r"which is incompatible|has requirement": "names the version that no longer fits",
}
Install = Callable[..., "subprocess.CompletedProcess[str]"]


def whole_wheel(folder: Path, version: str) -> Path:
    codes = {target: make_code_object(target, version.encode() * 40) for target in TARGETS}
    return build_wheel(
        folder,
        name="torch",
        version=version,
        tags=["py3-none-any"],
        requires=[],
        pure=False,
        files={"torch/__init__.py": b"", "torch/lib/x.so": make_hip_library([make_bundle(codes)])},
    )


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an index with the host and device wheels of two nights."""
    folder = tmp_path_factory.mktemp("nights")
    parts = [part for v in (OLD, NEW) for part in split(whole_wheel(folder / v, v), folder / "parts")]
    store = LocalStore(folder / "store")
    files.publish(store, "dev", parts)
    with serving(store) as server:
        yield index_url(server.url, "dev")


def variants_of(parts: Sequence[Path], *, fixed: bool) -> list[Path]:
    """The variants of a split; if `fixed`, with a list of what every machine has for a provider."""
    host, *devices = parts
    made = [write_variant(host, device, host.parent) for device in devices]
    return [_with_fixed_list(path) for path in made] if fixed else made


def _with_fixed_list(path: Path) -> Path:
    """A variant whose `variant.json` says of each machine that it has a GPU of gfx942."""
    label = wheel_info.split_label(path.name)[1] or ""
    said = variant_for(label)
    provider = Provider(static_properties={variants.GFX_ARCH: ("gfx942",)})
    said = msgspec.structs.replace(said, providers={variants.AMD: provider})
    folder = path.parent / "fixed"
    folder.mkdir(exist_ok=True)
    plain = path.rename(folder / wheel_info.split_label(path.name)[0])
    about = f"torch-{plain.name.split('-')[1]}.dist-info"
    change = Edit(replace_files={f"{about}/{variants.IN_WHEEL}": datafile.dumps(said).encode()})
    return edit_wheel(plain, change, folder / "changed").rename(path)


def store_with_variants(folder: Path, *, plain: bool, fixed: bool) -> LocalStore:
    """A store whose index dev has the variants of two nights."""
    store = LocalStore(folder / "store")
    for night in (OLD, NEW):
        parts = split(whole_wheel(folder / night, night), folder / "parts")
        chosen = variants_of(parts, fixed=fixed)
        files.publish(store, "dev", [*parts, *chosen] if plain else chosen)
    return store


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """A store whose index dev has plain wheels and variants."""
    return store_with_variants(tmp_path_factory.mktemp("beside"), plain=True, fixed=False)


def names_in(site: Path) -> set[str]:
    return {path.name.removesuffix(".dist-info") for path in site.glob("torch*.dist-info")}


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_an_extra_brings_the_code_of_its_gpu_alone(
    nights: str, install: Install, tmp_path: Path, tool: str
) -> None:
    done = install(tool, nights, "torch[device-gfx942]", target=tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path / "site") == {f"torch-{NEW}", f"torch_device_gfx942-{NEW}"}
    there = {path.name for path in (tmp_path / "site/torch/.kpack").iterdir()}
    assert there == {"torch_gfx942.kpack"}


def test_cairn_install_names_the_extra_or_refuses(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An extra that does not exist is a warning of pip's; asked first, the index has an answer."""
    parts = split(with_bill(whole_wheel(tmp_path, NEW)), tmp_path / "parts")
    files.publish(store, "staging", [make_wheel(tmp_path, "rocm-sdk-core", "7.14.0")])
    made = make_set(parts, family="gfx942-gfx1100", targets=TARGETS, python=PYTHON, platform=PLATFORM)
    move(store, stage_set(store, "staging", made, parts))
    ask = ["install", "--dry-run", "--index-url", index_url(store.path.as_uri(), "release"), "--gpu"]
    assert main([*ask, "gfx1100"]) == 0
    assert "torch[device-gfx1100]" in capsys.readouterr().out
    assert main([*ask, "gfx906"]) != 0
    said = capsys.readouterr()
    assert "device-" not in said.out
    assert "gfx906" in said.err


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_plain_installers_take_the_plain_wheel_beside_variants(
    beside: LocalStore, install: Install, tmp_path: Path, tool: str
) -> None:
    """By the JSON pages of a server, and by the HTML pages of a folder."""
    with serving(beside) as server:
        done = install(tool, index_url(server.url, "dev"), "torch", target=tmp_path / "site")
    assert done.returncode == 0, done.stderr
    html = install(tool, index_url(beside.path.as_uri(), "dev"), "torch", target=tmp_path / "by HTML")
    assert names_in(tmp_path / "by HTML") == {f"torch-{NEW}"}, html.stderr
    assert names_in(tmp_path / "site") == {f"torch-{NEW}"}
    assert not (tmp_path / f"site/torch-{NEW}.dist-info" / variants.IN_WHEEL).exists()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table: what is asked for, one command after the other, in one environment."""

    title: str
    commands: Sequence[Sequence[str]]


CASES = (
    Case(title="`torch`", commands=[["torch"]]),
    Case(title="`torch[device-gfx942]`", commands=[["torch[device-gfx942]"]]),
    Case(title="`torch[device-gfx942,device-gfx1100]`", commands=[["torch[device-gfx942,device-gfx1100]"]]),
    Case(title="`torch[device-all]`", commands=[["torch[device-all]"]]),
    Case(title="`torch[device-gfx906]`, which does not exist", commands=[["torch[device-gfx906]"]]),
    Case(
        title="upgrade with `torch[device-gfx942]`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch[device-gfx942]"]],
    ),
    Case(
        title="upgrade with `torch`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch"]],
    ),
    Case(
        title="that, then `torch[device-gfx942]`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch"], ["torch[device-gfx942]"]],
    ),
)


class Installer:
    """One version of an installer, and environments to install into."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.tool, version = name.split()
        self._folder, self._env, self._count = folder, env, 0
        self._program = folder / name.replace(" ", "-")
        fetch = [find_uv_bin(), "pip", "install", "--quiet", "--target", self._program]
        subprocess.run([*fetch, f"{self.tool}=={version}"], check=True)

    def cell(self, index: str, commands: Sequence[Sequence[str]], options: Sequence[str] = ()) -> str:
        """What is installed after the commands, and what the last of them said of it."""
        self._count += 1
        venv = self._folder / f"{self._program.name}-{self._count}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        python, env = venv / "bin/python", self._env
        start = [self._program / "bin/uv", "pip", "install", "--python", python, *options]
        if self.tool == "pip":
            start, env = [python, "-m", "pip", "install"], env | {"PYTHONPATH": str(self._program)}
        for words in commands:
            command = [*start, "--index-url", index, *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        said = [text for pattern, text in _SAID.items() if re.search(pattern, done.stderr + done.stdout)]
        site = next(venv.glob("lib/*/site-packages"))
        found = sorted(names_in(site), key=lambda name: (len(name), name))
        words = [_word(name, site) for name in found] or ["nothing"]
        return "; ".join([", ".join(words), *(["fails"] if done.returncode else []), *said])


def _word(installed: str, site: Path) -> str:
    """A cell's word for what is installed: `host`, `gfx942`, `variant gfx942`; and whether it is old."""
    name, version = installed.split("-")
    word = name.rpartition("_")[2] if "_device_" in name else "host"
    if (said := site / f"{installed}.dist-info" / variants.IN_WHEEL).exists():
        word = f"variant {next(iter(variants.loads(said.read_bytes(), name=said.name).variants))}"
    return f"{word} (old)" if version == OLD else word


def table(title: str, installers: Sequence[str], found: dict[str, list[str]]) -> str:
    """The table in Markdown; installers that never differ share a column."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in zip(installers, *found.values(), strict=True):
        columns.setdefault(tuple(cells), []).append(name)
    heads = [_together(names) for names in columns.values()]
    lines = [f"| {title} | {' | '.join(heads)} |", f"| --- {'| --- ' * len(heads)}|"]
    lines += [f"| {case} | {' | '.join(row)} |" for case, *row in zip(found, *columns, strict=True)]
    return "\n".join(lines)


def _together(names: Sequence[str]) -> str:
    """The head of a column: `pip 23.0, 24.0; uv 0.13.9`."""
    versions: dict[str, list[str]] = {}
    for name in names:
        tool, version = name.split(" ", 1)
        versions.setdefault(tool, []).append(version)
    return "; ".join(f"{tool} {', '.join(listed)}" for tool, listed in versions.items())


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> list[Installer]:
    folder = tmp_path_factory.mktemp("installers")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV"))}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    kept |= {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder / "uv-cache")}
    return [Installer(name, folder, kept) for name in INSTALLERS]


@pytest.mark.by_hand
def test_the_table_of_host_and_device_wheels(nights: str, installers: list[Installer]) -> None:
    found = {case.title: [one.cell(nights, case.commands) for one in installers] for case in CASES}
    _is_on_the_page(table("what is asked for", INSTALLERS, found))


@pytest.mark.by_hand
def test_the_table_of_wheel_variants(beside: LocalStore, installers: list[Installer], tmp_path: Path) -> None:
    asked = (
        Case(title="`torch`", commands=[["torch"]]),
        Case(title="`torch[device-gfx942]`", commands=[["torch[device-gfx942]"]]),
        Case(title="upgrade with `torch`", commands=[[f"torch=={OLD}"], ["--upgrade", "torch"]]),
    )
    alone = store_with_variants(tmp_path / "alone", plain=False, fixed=False)
    fixed = store_with_variants(tmp_path / "fixed", plain=True, fixed=True)
    found = {}
    file = next((tmp_path / "alone").glob(f"parts/*{NEW}*-gfx942.whl"))
    for title, store, cases in (
        ("plain wheels and variants", beside, asked),
        ("variants alone", alone, asked[:1]),
        ("any", alone, [Case(title="the file of a variant, by its path", commands=[[str(file)]])]),
        ("plain wheels and variants, with a fixed list", fixed, asked),
    ):
        with serving(store) as server:
            index = index_url(server.url, "dev")
            for case in cases:
                cells = [one.cell(index, case.commands) for one in installers]
                preview = ["--preview-features", "wheel-variants"]
                cells.append(installers[-1].cell(index, case.commands, preview))
                found[f"{title}: {case.title}"] = cells
    _is_on_the_page(table("what the index has: what is asked for", (*INSTALLERS, PREVIEW), found))


_CHOOSE = """
import json, sys
from variantlib.api import get_variants_by_priority
chosen = get_variants_by_priority(variants_json=json.load(sys.stdin), venv_python_executable=sys.executable)
print(*(one.label for one in chosen))
"""


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("gpus", "labels"), [("gfx942", "gfx942 null"), ("gfx1100", "gfx1100 null"), ("gfx906", "null")]
)
def test_the_authors_of_the_drafts_choose_by_the_gpu(
    beside: LocalStore, tmp_path: Path, gpus: str, labels: str
) -> None:
    """variantlib reads what our index says, and asks ROCm's own provider which GPUs there are."""
    said = next(beside.path.glob(f"files/*/*/torch-{NEW}-variants.json"))
    fetch = [find_uv_bin(), "pip", "install", "--quiet", "--target", tmp_path]
    subprocess.run([*fetch, "variantlib==0.2.2", "rocm-bootstrap==0.3.0"], check=True)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": gpus}
    done = subprocess.run(
        [sys.executable, "-c", _CHOOSE],
        env=env,
        input=said.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == labels


def _is_on_the_page(wanted: str) -> None:
    assert wanted in PAGE.read_text(encoding="utf-8"), f"the page should have\n{wanted}"
