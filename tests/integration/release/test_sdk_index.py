"""The ROCm SDK of an index to which others may write: what a lock names is installed, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import interpreters, web
from cairn import stack as stacks
from cairn.build import job as jobs
from cairn.build import rocm_sdk
from cairn.build.model import InstalledSdk, Job, SdkRequest
from cairn.cli.main import main
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.pipeline.night import needs, signed
from cairn.pipeline.night.build import LegBuild, _install_sdk, _job
from cairn.pipeline.night.needs import FreezeRequest
from cairn.pipeline.night.plan import NightRun
from cairn.release.publish import mirror_lock, sdk_index
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.trust import anchor
from cairn.simple_index import IndexFile
from cairn.store.memory import MemoryStore
from cairn.venv import PackageSource
from helpers import packing
from helpers.night import FROZEN, leg_of, plan_of
from helpers.release import make_wheel
from helpers.serving import serving
from helpers.trust import rooted, trust_of_roles

pytestmark = pytest.mark.slow

HERE = interpreters.current()
FAMILIES = ("gfx94X-dcgpu", "gfx110X-all")
# Not a shipped stack: one project, of which the SDK is all that matters.
STACK = f"""schema = "cairn.stack/1"
name = "sample"
line = "main"
targets = ["gfx942", "gfx1100"]
pythons = ["{HERE.version}"]
platforms = ["{HERE.platform}"]

[sdk]

[[projects]]
name = "tiny"
distribution = "tiny"
checkout_dir = "tiny"
hashtag = "main"
origin = {{ url = "https://example.invalid/tiny" }}
"""
MATRIX = f"""schema = "cairn.matrix-toml/1"
platforms.{HERE.platform}.build = ["anything"]
triggers.nightly.families = ["gfx94X-dcgpu", "gfx110X-all"]
families.gfx94X-dcgpu.{HERE.platform} = {{}}
families.gfx110X-all.{HERE.platform} = {{}}
"""
PYPROJECT = """[build-system]
requires = ["builder"]
build-backend = "b"
backend-path = ["."]
"""
# As TheRock's, it is an sdist that is built by a tool, and its module says where the SDK is.
BACKEND = packing.backend("""
import builder

def build_wheel(folder, settings=None, metadata=None):
    by = "MADE_BY_HIM = 1" if hasattr(builder, "MADE_BY_HIM") else ""
    members = {"rocm/__init__.py": by}
    needs = ["rocm-sdk-core==VERSION"]
    return write_wheel(folder, "rocm", "VERSION", members, requires=needs).name
""")
MODULE = """import pathlib, sys
words = {"version": "VERSION", "targets": "gfx942"}
print(words.get(sys.argv[1], pathlib.Path(__file__).parent))
"""


def rocm(
    folder: Path,
    version: str,
    requires: str = "",
    *,
    described: Mapping[str, object] | None = None,
    libraries: Sequence[str] = ("gfx94x-dcgpu", "gfx110x-all", "gfx120x-all"),
) -> None:
    """Write the packages of an SDK, whose sdist says what it requires, or has the description of ours."""
    info = f"Metadata-Version: 2.2\nName: rocm\nVersion: {version}\nDynamic: Requires-Dist\n{requires}"
    files = {
        "PKG-INFO": info,
        "pyproject.toml": PYPROJECT,
        "b.py": BACKEND.replace("VERSION", version),
    }
    if described is not None:
        files["rocm_sdk/_dist.json"] = json.dumps(described)
    with tarfile.open(folder / f"rocm-{version}.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"rocm-{version}/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    module = {"rocm_sdk/__init__.py": "", "rocm_sdk/__main__.py": MODULE.replace("VERSION", version)}
    packing.write_wheel(folder, "rocm-sdk-core", version, module)
    for family in libraries:
        make_wheel(folder, f"rocm-sdk-libraries-{family}", version)
    make_wheel(folder, "rocm-sdk-devel", version)
    make_wheel(folder, "rocm-profiler", version, tag="py3-none-win_arm64")


@dataclass(kw_only=True)
class Place:
    """An index of ROCm, which has an SDK for two families, and a stack that takes it from there."""

    folder: Path
    url: str

    @property
    def stack(self) -> stacks.Stack:
        return stacks.load(self.folder / "stack")

    @property
    def lock(self) -> MirrorLock:
        return mirror_lock.read(mirror_lock.path_of(self.stack))

    def offer(self, packages: Path, families: tuple[str, ...] = FAMILIES, *, hashes: bool = True) -> None:
        for family in families:
            root = self.folder / "www" / family
            shutil.rmtree(root, ignore_errors=True)
            names: dict[str, list[str]] = {"setuptools": []}
            for path in sorted(packages.iterdir()):
                name = path.name.split("-")[0].replace("_", "-")
                sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
                link = f"../{path.name}#sha256={sha256}" if hashes else f"../{path.name}"
                names.setdefault(name, []).append(f'<a href="{link}">{path.name}</a>')
                root.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, root)
            for name, links in names.items():
                (root / name).mkdir(parents=True)
                (root / name / "index.html").write_text("\n".join(links))
            (root / "index.html").write_text("".join(f'<a href="{name}/">{name}</a>' for name in names))

    def locks(self, *words: str) -> int:
        place = ("--stack", str(self.folder / "stack"), "--rocm-index-url", f"{self.url}/{{family}}/")
        return main(["index", "mirror", "lock", *place, *words])

    def freezing(self) -> FreezeRequest:
        return FreezeRequest(
            night="8",
            stack=self.stack,
            legs=tuple(map(leg_of, FAMILIES)),
            work_dir=self.folder,
            rocm_index_url=f"{self.url}/{{family}}/",
            like="",
            release="release",
        )

    def installs(self, folder: Path, version: str) -> InstalledSdk:
        """Install the SDK, as a build of a night in a store with a root does."""
        leg = leg_of(FAMILIES[0])
        run = NightRun(store=MemoryStore(), plan=plan_of(leg), stack=self.stack, trust=trust_of_roles())
        (build,) = run.plan.builds
        url = f"{self.url}/{{family}}/"
        request = LegBuild(run=run, build=build, output_dir=folder / "out", work_dir=folder / "work")
        frozen = msgspec.structs.replace(FROZEN, sdk_version=version, rocm_index_url=url)
        whole = jobs.resolve(_job(request, frozen, HERE), None)
        assert whole.cache_dir.name == f"wheels-night-{signed.name_of(trust_of_roles().builders or {})}"
        sdk = SdkRequest(version=version, extras=(), family=build.families[0])
        job: dict[str, Any] = {"output_dir": folder / "out", "env_dir": folder / "envs", "python": HERE}
        built = Job(stack=self.stack, checkouts={}, sdk=sdk, install_rocm=True, targets="gfx942", **job)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))  # pip keeps what it has made of the sdist
            return _install_sdk(request, built, frozen)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    builder = make_wheel(tmp_path / "www/pypi/builder", "builder", "1.0")
    sha256 = hashlib.sha256(builder.read_bytes()).hexdigest()
    (builder.parent / "index.html").write_text(f'<a href="{builder.name}#sha256={sha256}">{builder.name}</a>')
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/stack.toml").write_text(STACK)
    (tmp_path / "stack/matrix.toml").write_text(MATRIX)
    for version in ("7.10.0", "7.11.0"):
        (tmp_path / version).mkdir()
        rocm(tmp_path / version, version)
    with serving(tmp_path / "www") as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/pypi/")
        made = Place(folder=tmp_path, url=url)
        made.offer(tmp_path / "7.10.0")
        yield made


def test_what_an_index_offers_is_locked_for_the_gpus_and_platforms_of_the_stack(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.locks("--dry-run", "--json") == 0
    assert '"+ rocm-7.10.0.tar.gz"' in capsys.readouterr().out
    assert not mirror_lock.path_of(place.stack).exists()
    assert place.locks() == 0
    libraries = [
        f"rocm_sdk_libraries_{name}-7.10.0-py3-none-any.whl" for name in ("gfx110x_all", "gfx94x_dcgpu")
    ]
    others = [f"rocm_sdk_{name}-7.10.0-py3-none-any.whl" for name in ("core", "devel")]
    names = ["rocm-7.10.0.tar.gz", *others, *libraries]
    assert place.lock.sdk == {
        name: hashlib.sha256((place.folder / "7.10.0" / name).read_bytes()).hexdigest() for name in names
    }
    assert [file.name for file in place.lock.files] == ["builder"]  # which builds the sdist
    # Those of a family may be other bytes under the same name.
    other = place.folder / "other"
    shutil.copytree(place.folder / "7.10.0", other)
    core = make_wheel(other, "rocm-sdk-core", "7.10.0")
    place.offer(other, FAMILIES[1:])
    before = place.lock.sdk
    assert place.locks() == 0
    both = {before[core.name], hashlib.sha256(core.read_bytes()).hexdigest()}
    assert set(place.lock.sdk[core.name].split()) == both
    assert {**place.lock.sdk, core.name: ""} == {**before, core.name: ""}
    # Another version is added, since sets with the first are yet to be promoted.
    place.offer(place.folder / "7.11.0")
    assert place.locks() == 0
    assert {name.split("-")[1].removesuffix(".tar.gz") for name in place.lock.sdk} == {"7.10.0", "7.11.0"}
    assert place.locks("--upgrade") == 0
    assert {name.split("-")[1].removesuffix(".tar.gz") for name in place.lock.sdk} == {"7.11.0"}


@pytest.mark.parametrize(
    ("families", "words", "why"),
    [
        (FAMILIES, ("--rocm-version", "7.12.0"), "gfx94X-dcgpu/ has no rocm 7.12.0; it has rocm 7.11.0"),
        (FAMILIES[:1], (), "has no rocm that the others have, too"),
    ],
)
def test_an_index_that_cannot_be_locked_is_named(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    families: tuple[str, ...],
    words: tuple[str, ...],
    why: str,
) -> None:
    place.offer(place.folder / "7.11.0", families)
    assert place.locks(*words) != 0
    assert why in capsys.readouterr().err


REQUIRES = """Requires-Dist: rocm-sdk-core==7.11.0
Requires-Dist: rocm-sdk-libraries-gfx94x-dcgpu==7.11.0; extra == "libraries"
Requires-Dist: rocm-sdk-runtime==7.11.0; sys_platform != "other"
Requires-Dist: rocm-sdk-none==7.11.0; sys_platform == "other"
Requires-Dist: rocm-sdk-libraries-gfx120x-all==7.11.0; extra == "libraries"
Requires-Dist: rocm-sdk-device-gfx942==7.11.0; extra == "device-gfx942"
Requires-Dist: rocm-sdk-device-gfx1201==7.11.0; extra == "device-gfx1201"
"""


@pytest.mark.parametrize(
    ("removed", "requires", "missing"),
    [
        ("rocm_sdk_core-*", "", "rocm-sdk-core"),
        ("rocm_sdk_devel-*", "", "rocm-sdk-devel"),
        ("rocm_sdk_libraries_gfx110x*", "", "rocm-sdk-libraries-gfx110x-all"),
        ("rocm_sdk_libraries_gfx120x*", "", ""),  # of GPUs that the stack is not for
        # What an sdist as TheRock's requires, too.
        ("none", REQUIRES, "rocm-sdk-runtime, rocm-sdk-device-gfx942"),
    ],
)
def test_an_sdk_that_lacks_a_package_is_not_locked(
    place: Place, capsys: pytest.CaptureFixture[str], removed: str, requires: str, missing: str
) -> None:
    packages = place.folder / "7.11.0"
    rocm(packages, "7.11.0", requires)
    for path in packages.glob(removed):
        path.unlink()
    place.offer(packages)
    assert place.locks() == (2 if missing else 0)
    shown = capsys.readouterr().err
    assert not missing or f"has ROCm 7.11.0 without {missing}, which builds for Python" in shown
    assert mirror_lock.path_of(place.stack).exists() == (not missing)


def test_an_sdk_of_cairns_own_says_what_it_has(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sdist names the packages of each family, and that it has no libraries, where that is meant."""
    packages = place.folder / "7.11.0"
    families = {"gfx94X-dcgpu": ["gfx942"], "gfx110X-all": ["gfx1100", "gfx1101", "gfx1102", "gfx1103"]}
    described = {
        "families": families,
        "requires": ["rocm-sdk-core==7.11.0"],
        "extras": {"devel": ["rocm-sdk-devel==7.11.0"], "libraries": {"gfx94X-dcgpu": [], "gfx110X-all": []}},
    }
    for path in packages.glob("rocm_sdk_libraries*"):
        path.unlink()
    rocm(packages, "7.11.0", described=described, libraries=())
    place.offer(packages)
    assert place.locks() == 0
    del families["gfx110X-all"]
    rocm(packages, "7.11.0", described=described, libraries=())
    place.offer(packages)
    assert place.locks() == 2
    assert "without rocm-sdk-libraries-gfx1100, " in capsys.readouterr().err


def test_a_file_without_a_hash_is_locked_as_unverified_and_refused_under_a_root(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.offer(place.folder / "7.11.0", hashes=False)
    assert place.locks() == 0
    assert "unverified, since the index gives no sha256: rocm" in capsys.readouterr().err
    lock = place.lock
    assert set(lock.unverified) == lock.sdk.keys()
    for path in (place.folder / "7.11.0").iterdir():
        if path.name in lock.sdk:
            assert lock.sdk[path.name] == hashlib.sha256(path.read_bytes()).hexdigest()
    store = MemoryStore()
    with anchor.acting(root=rooted(store).fingerprint):
        with pytest.raises(UsageError, match=r"the index gave no sha256: rocm") as no:
            needs.reviewed(store, place.freezing())
        assert "delete their names from `unverified`" in str(no.value.tip)
        # Somebody has compared them. They stay verified while they have the same bytes.
        path = mirror_lock.path_of(place.stack)
        mirror_lock.write(path, msgspec.structs.replace(lock, unverified=()))
        assert place.locks() == 0
        assert place.lock.unverified == ()
        assert needs.reviewed(store, place.freezing())
        changed = place.folder / "changed"
        shutil.copytree(place.folder / "7.11.0", changed)
        core = make_wheel(changed, "rocm-sdk-core", "7.11.0")
        place.offer(changed, hashes=False)
        assert place.locks() == 0
        assert place.lock.unverified == (core.name,)


def test_a_night_takes_the_newest_that_was_reviewed_and_is_not_begun_without(place: Place) -> None:
    store = MemoryStore()
    assert needs.reviewed(store, place.freezing()) is None  # nobody signs there
    with anchor.acting(root=rooted(store).fingerprint):
        with pytest.raises(
            UsageError, match=r"the ROCm SDK of builds is reviewed, and .* has no \[sdk\]"
        ) as no:
            needs.reviewed(store, place.freezing())
        assert "cairn index mirror lock --stack STACK --rocm-index-url URL" in str(no.value.tip)
        assert place.locks() == 0
        both = place.folder / "both"
        shutil.copytree(place.folder / "7.10.0", both)
        shutil.copytree(place.folder / "7.11.0", both, dirs_exist_ok=True)
        place.offer(both)
        reviewed = needs.reviewed(store, place.freezing())
    assert needs.version_of_sdk(place.freezing(), print) == "7.11.0"
    assert needs.version_of_sdk(place.freezing(), print, reviewed) == "7.10.0"
    place.offer(place.folder / "7.11.0")
    with pytest.raises(CairnError, match="has no version of ROCm that was reviewed"):
        needs.version_of_sdk(place.freezing(), print, reviewed)


def test_a_build_installs_what_was_reviewed_and_runs_nothing_else_of_the_index(
    place: Place, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"has no \[sdk\]"):
        place.installs(tmp_path / "none", "7.10.0")
    other = place.folder / "other"
    shutil.copytree(place.folder / "7.10.0", other)
    make_wheel(other, "rocm-sdk-core", "7.10.0")
    place.offer(other, FAMILIES[1:])
    assert place.locks() == 0
    installed = place.installs(tmp_path / "honest", "7.10.0")
    assert all(sha256 in place.lock.sdk[name] for name, sha256 in installed.files.items())
    assert {name.split("-")[0] for name in installed.files} == {"rocm", "rocm_sdk_core"}
    # He changes the SDK, and adds what pip would like better, a newer SDK, and a newer tool to build it with.
    his = place.folder / "his"
    shutil.copytree(place.folder / "7.10.0", his)
    ran = tmp_path / "ran"
    evil = f"open({str(ran)!r}, 'w')\n"
    (his / "rocm-7.10.0.tar.gz").unlink()
    shutil.copytree(place.folder / "7.11.0", his, dirs_exist_ok=True)
    make_wheel(his, "builder", "9.0", content=evil)
    make_wheel(his, "rocm-sdk-core", "7.10.0", tag=f"cp{HERE.tag[2:]}-none-any", content=evil)
    for name, why in (
        ("rocm-7.10.0.tar.gz", "has other bytes: sha256 "),
        ("rocm_sdk_core-7.10.0-py3-none-any.whl", "DO NOT MATCH THE HASHES"),
    ):
        shutil.copy(place.folder / "7.10.0" / "rocm-7.10.0.tar.gz", his)
        place.offer(his)
        for path in place.folder.glob(f"www/*/{name}"):
            path.write_bytes(path.read_bytes() + b"his")
        with pytest.raises(CairnError) as refused:
            place.installs(tmp_path / name, "7.10.0")
        assert why in str(refused.value) + getattr(refused.value, "output", "")
    place.offer(his)
    assert place.installs(tmp_path / "beside", "7.10.0").files == installed.files
    assert not ran.exists()


CORE = "rocm_sdk_core-7.10.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "link",
    [
        "../{name}?x=1&amp;{kind}={his}&amp;y#sha256={reviewed}",
        "../{name}#{kind}={his}&amp;sha256={reviewed}",
        "../a&amp;{kind}={his}&amp;b/{name}#sha256={reviewed}",
        "http://u&amp;{kind}={his}&amp;:p@{host}/{family}/{name}#sha256={reviewed}",
    ],
    ids=["in the query", "in the fragment", "in the path", "in the login"],
)
@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_pip_is_given_no_link_in_which_it_sees_another_hash(
    place: Place, tmp_path: Path, kind: str, link: str
) -> None:
    """His file has the RECORD of the honest one, so that all else looks the same."""
    assert place.locks() == 0
    ran, honest = tmp_path / "ran", (place.folder / "7.10.0" / CORE).read_bytes()
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["rocm_sdk/__main__.py"] = f"open({str(ran)!r}, 'w')\n".encode() + members["rocm_sdk/__main__.py"]
    his = io.BytesIO()
    with zipfile.ZipFile(his, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    values = {
        "kind": kind,
        "name": CORE,
        "his": hashlib.new(kind, his.getvalue()).hexdigest(),
        "reviewed": hashlib.sha256(honest).hexdigest(),
        "host": place.url.partition("://")[2],
    }
    for path in place.folder.glob(f"www/*/{CORE}"):
        path.write_bytes(his.getvalue())
        own = link.format(family=path.parent.name, **values)
        (path.parent / "rocm-sdk-core/index.html").write_text(f'<a href="{own}">{CORE}</a>')
        inner = path.parent / f"a&{kind}={values['his']}&b"
        inner.mkdir()
        shutil.copy(path, inner)
    for _ in range(2):
        with pytest.raises(CairnError):
            place.installs(tmp_path / "attacked", "7.10.0")
    assert not ran.exists()


@pytest.mark.usefixtures("place")
def test_a_file_of_which_pip_says_no_sha256_is_not_run(tmp_path: Path) -> None:
    """Whatever pip believes of a link: what it says that it installed is compared with what was reviewed."""
    ran = tmp_path / "ran"
    identity = SdkRequest(source=PackageSource(), version="7.10.0", extras=(), digest="d").identity()
    marker = {
        "schema": "cairn.sdk-environment/1",
        "request": identity,
        "digest": "d",
        "version": "7.10.0",
        "targets": [],
        "bin": "/",
        "cmake": "/",
        "root": "/",
    }
    reports = json.dumps({"install": []})
    module = {
        "rocm_sdk/__init__.py": "",
        "rocm_sdk/__main__.py": f"open({str(ran)!r}, 'w')\n{MODULE}",
        "rocm_sdk_core-7.10.0.data/data/cairn-sdk.json": json.dumps(marker),
        "rocm_sdk_core-7.10.0.data/data/cairn-sdk-report.json": reports,
        "rocm_sdk_core-7.10.0.data/data/env-report.json": reports,
    }
    packing.write_wheel(tmp_path, "rocm-sdk-core", "7.10.0", module)
    make_wheel(tmp_path, "rocm", "7.10.0", requires=["rocm-sdk-core"])
    page, names = tmp_path / "page.html", ("rocm-7.10.0-py3-none-any.whl", CORE)
    md5 = {name: hashlib.md5((tmp_path / name).read_bytes()).hexdigest() for name in names}  # noqa: S324
    page.write_text("".join(f'<a href="{name}#md5={md5[name]}">{name}</a>' for name in names))
    reviewed = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names}
    source = PackageSource(find_links=(str(page),), no_index=True)
    request = SdkRequest(source=source, version="7.10.0", extras=(), digest="d", reviewed=reviewed)
    for _ in range(2):  # nothing that it brought makes the second run believe the first
        with pytest.raises(UsageError, match="with sha256 None is not one that was reviewed"):
            rocm_sdk.install(tmp_path / "env", request, python=HERE, log=tmp_path / "log", say=print)
    assert not ran.exists()


def test_the_users_other_places_of_packages_are_not_looked_into(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.locks() == 0
    ran = tmp_path / "ran"
    make_wheel(tmp_path / "links", "builder", "9.0", content=f"open({str(ran)!r}, 'w')\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    assert place.installs(tmp_path, "7.10.0").files
    assert not ran.exists()


def test_what_an_earlier_lock_had_builds_no_sdk(place: Place, tmp_path: Path) -> None:
    assert place.locks() == 0
    assert place.installs(tmp_path, "7.10.0").files
    (stale,) = tmp_path.glob("work/**/sdk-index")
    ran = tmp_path / "ran"
    make_wheel(stale / "build" / "0", "builder", "9.0", content=f"open({str(ran)!r}, 'w')\n")
    for left in ("envs", "cache"):
        shutil.rmtree(tmp_path / left, ignore_errors=True)
    assert place.installs(tmp_path, "7.10.0").files
    assert not ran.exists()


def test_what_pip_made_of_the_sdk_for_a_build_by_hand_is_not_taken(place: Place, tmp_path: Path) -> None:
    assert place.locks() == 0
    his, ran = tmp_path / "his", tmp_path / "ran"
    shutil.copytree(place.folder / "7.10.0", his)
    make_wheel(his, "builder", "9.0", content=f"open({str(ran)!r}, 'w')\nMADE_BY_HIM = 1\n")
    place.offer(his)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
        source = PackageSource(index_url=f"{place.url}/{FAMILIES[0]}/", pre=True)
        request = SdkRequest(source=source, version="7.10.0", extras=(), family=FAMILIES[0])
        rocm_sdk.install(tmp_path / "env", request, python=HERE, log=tmp_path / "log", say=print)
    assert ran.exists()  # by hand, it was his choice
    place.offer(place.folder / "7.10.0")
    installed = place.installs(tmp_path, "7.10.0")
    (module,) = installed.environment.glob("lib/python*/site-packages/rocm/__init__.py")
    assert "MADE_BY_HIM" not in module.read_text()


class _Endless(BaseHTTPRequestHandler):
    """Answers with bytes that never end, and no length."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            while True:
                self.wfile.write(bytes(1 << 16))

    def log_message(self, *_args: object) -> None:
        pass


def test_a_file_that_never_ends_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_LARGEST", 1 << 20)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    with server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        url = f"http://127.0.0.1:{server.server_port}/rocm-1.tar.gz"
        try:
            with pytest.raises(NetworkError, match="is larger than 1 MiB"):
                sdk_index.fetch(IndexFile(name="rocm-1.tar.gz", url=url, sha256=None), "0" * 64, tmp_path)
        finally:
            server.shutdown()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
