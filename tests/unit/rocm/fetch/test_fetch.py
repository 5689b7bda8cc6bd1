import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from cairn.errors import NetworkError, StoreError, UsageError
from cairn.rocm import tree
from cairn.rocm.fetch import fetch
from cairn.rocm.fetch.choose import ArtifactFilters
from cairn.rocm.fetch.fetch import FetchRequest
from cairn.rocm.fetch.unpack import UnsafeArchiveError
from cairn.store.folder import LocalStore
from cairn.store.transfer import Progress
from helpers import artifacts
from helpers.faults import Fault, FaultyStore, Plan

Ask = Callable[..., FetchRequest]


@pytest.fixture
def run(tmp_path: Path) -> LocalStore:
    """A run with three artifacts, one of them of 3 MB that do not compress."""
    folder = tmp_path / "run ä"
    artifacts.write(folder, "base_lib_generic.tar.zst", {".info/version": b"7.10.0-1\n", "lib/x.so": b"x"})
    big = random.Random(942).randbytes(3_000_000)  # noqa: S311 - nothing secret
    artifacts.write(folder, "blas_lib_gfx942.tar.zst", {"lib/blas.so": big})
    artifacts.write(folder, "blas_lib_gfx1100.tar.xz", {"lib/blas.so": b"1100"})
    (folder / "index.html").write_text("")
    return LocalStore(folder)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def make(**options: object) -> FetchRequest:
        wanted = ArtifactFilters(
            **{k: options.pop(k) for k in ("groups", "targets", "include") if k in options}
        )  # type: ignore[arg-type]
        return FetchRequest(filters=wanted, output_dir=tmp_path / "out", **options)  # type: ignore[arg-type]

    return make


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != fetch.NOTES)


def test_what_is_fetched_is_a_tree_of_artifacts(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    said: list[Progress] = []
    done = fetch.fetch(run, ask(), on_progress=said.append)
    assert names(tmp_path / "out") == ["base_lib_generic", "blas_lib_gfx1100", "blas_lib_gfx942"]
    assert [each.already for each in done] == [False] * 3
    found = tree.read_artifacts(tmp_path / "out")
    assert found.targets == ("gfx942", "gfx1100")
    assert found.rocm_version() == "7.10.0"
    assert (said[-1].done, said[-1].size) == (3, said[-1].of_size)
    assert sorted(p.name for p in (tmp_path / "out" / fetch.NOTES).iterdir()) == [
        "base_lib_generic.json", "blas_lib_gfx1100.json", "blas_lib_gfx942.json", "fetch.lock",
    ]  # fmt: skip


def test_a_second_time_nothing_is_fetched_but_what_changed(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    fetch.fetch(run, ask())
    artifacts.write(run.path, "blas_lib_gfx1100.tar.xz", {"lib/blas.so": b"again"})
    plan = Plan()
    done = fetch.fetch(FaultyStore(run, plan), ask())
    assert [each.artifact.target for each in done if not each.already] == ["gfx1100"]
    assert [key for kind, key in plan.requests if kind == "open"] == ["blas_lib_gfx1100.tar.xz"]
    blas = tmp_path / "out/blas_lib_gfx1100/base/blas_lib_gfx1100/stage/lib/blas.so"
    assert blas.read_bytes() == b"again"
    # What was unpacked and is not there any more, or not whole, is not in place.
    for spoil in (Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"aga")):
        spoil(blas)
        done = fetch.fetch(run, ask())
        assert [each.artifact.target for each in done if not each.already] == ["gfx1100"]
        assert blas.read_bytes() == b"again"


def test_a_dry_run_changes_nothing_and_says_what_is_there(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    done = fetch.fetch(run, ask(groups=("gfx110X-all",)), dry_run=True)
    assert [each.artifact.target for each in done] == ["generic", "gfx1100"]
    assert all(each.sha256 and not each.already for each in done)
    assert not (tmp_path / "out").exists()


def test_all_in_one_tree_and_archives_alone(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    fetch.fetch(run, ask(layout="flatten", targets=("gfx1100",)))
    assert (tmp_path / "out/lib/blas.so").read_bytes() == b"1100"
    assert (tmp_path / "out/lib/x.so").read_bytes() == b"x"
    fetch.fetch(run, ask(layout="archives"))
    for name in ("base_lib_generic.tar.zst", "blas_lib_gfx942.tar.zst"):
        assert (tmp_path / "out" / name).read_bytes() == (run.path / name).read_bytes()
    done = fetch.fetch(run, ask(keep_archives=True))
    assert (tmp_path / "out/base_lib_generic.tar.zst").is_file()
    assert (tmp_path / "out/base_lib_generic").is_dir()
    assert [each.path.name for each in done] == ["base_lib_generic", "blas_lib_gfx1100", "blas_lib_gfx942"]


def test_an_archive_without_a_sha256_is_refused_unless_allowed(
    run: LocalStore, ask: Ask, tmp_path: Path
) -> None:
    (run.path / "base_lib_generic.tar.zst.sha256sum").unlink()
    with pytest.raises(UsageError, match=r"1 archive\(s\)") as caught:
        fetch.fetch(run, ask())
    assert "--allow-unverified" in str(caught.value.tip)
    assert not (tmp_path / "out").exists()
    assert len(fetch.fetch(run, ask(verified_only=False))) == 3
    # What nothing vouches for is fetched each time: there is no telling whether it is the same.
    again = fetch.fetch(run, ask(verified_only=False))
    assert [each.artifact.target for each in again if not each.already] == ["generic"]


@pytest.mark.parametrize("text", ["", "not a digest\n", "<html>"])
def test_a_sidecar_that_says_nothing_is_refused(run: LocalStore, ask: Ask, text: str) -> None:
    (run.path / "base_lib_generic.tar.zst.sha256sum").write_text(text)
    with pytest.raises(StoreError, match="sha256sum"):
        fetch.fetch(run, ask(verified_only=False))


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_what_is_not_what_its_sha256_says_is_refused(
    run: LocalStore, ask: Ask, tmp_path: Path, damage: str
) -> None:
    path = run.path / "blas_lib_gfx942.tar.zst"
    data = path.read_bytes()
    path.write_bytes(data[:-7] if damage == "truncated" else data[:-7] + b"changed")
    with pytest.raises(StoreError, match="not what its sha256sum says"):
        fetch.fetch(run, ask(jobs=1))
    assert not (tmp_path / "out/blas_lib_gfx942").exists()
    path.write_bytes(data)
    assert len(fetch.fetch(run, ask())) == 3
    assert (tmp_path / "out/blas_lib_gfx942").is_dir()


def test_a_malformed_archive_leaves_nothing_behind(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    members = [artifacts.member("artifact_manifest.txt", b"base\n"), artifacts.member("../../evil", b"x")]
    name = "bad_lib_generic.tar.zst"
    artifacts.write_bytes(run.path, name, artifacts.compressed(artifacts.tar(members), name))
    with pytest.raises(UnsafeArchiveError):
        fetch.fetch(run, ask())
    assert not (tmp_path / "out/bad_lib_generic").exists()
    assert not list((tmp_path / "out" / fetch.NOTES).glob("unpacking.*"))
    assert not list(tmp_path.rglob("evil"))


def test_what_lies_in_the_way_of_an_artifact_is_not_removed(
    run: LocalStore, ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/base_lib_generic").write_text("mine")
    with pytest.raises(UsageError, match="in the way"):
        fetch.fetch(run, ask())
    assert (tmp_path / "out/base_lib_generic").read_text() == "mine"


def test_a_folder_that_no_fetch_has_made_is_not_removed(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    mine = tmp_path / "out" / "blas_lib_gfx942" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    plan = Plan()
    with pytest.raises(UsageError, match="in the way"):
        fetch.fetch(FaultyStore(run, plan), ask())
    assert mine.read_text() == "mine"
    assert not [key for kind, key in plan.requests if kind == "open"], "known before anything is fetched"


def test_a_fetch_that_was_killed_while_it_replaced_a_folder_ends_right(
    run: LocalStore, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.fetch(run, ask())
    artifacts.write(run.path, "blas_lib_gfx1100.tar.xz", {"lib/blas.so": b"again"})

    def killed(_archive: Path, _folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fetch.unpack, "unpack", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch.fetch(run, ask())
    done = fetch.fetch(run, ask())
    assert [each.artifact.target for each in done if not each.already] == ["gfx1100"]
    blas = tmp_path / "out/blas_lib_gfx1100/base/blas_lib_gfx1100/stage/lib/blas.so"
    assert blas.read_bytes() == b"again"


def test_a_fetch_that_broke_goes_on_where_it_ended(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    only = {"include": ("gfx942",), "jobs": 1}
    counting = Plan()
    fetch.fetch(FaultyStore(run, counting), ask(**only), dry_run=True)
    breaks = Plan(Fault.TRUNCATED, len(counting.requests) + 1)
    with pytest.raises(NetworkError):
        fetch.fetch(FaultyStore(run, breaks), ask(**only))
    (part,) = (tmp_path / "out").rglob("*.part")
    begun = part.stat().st_size
    assert begun == 1 << 20

    starts: list[int] = []

    class Asked(LocalStore):
        def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
            starts.append(start)
            return super().open(key, start=start, count=count)

    fetch.fetch(Asked(run.path), ask(**only))
    assert begun in starts
    assert (tmp_path / "out/blas_lib_gfx942").is_dir()


def test_what_a_broken_fetch_left_of_different_bytes_is_not_used(
    run: LocalStore, ask: Ask, tmp_path: Path
) -> None:
    part = tmp_path / "out" / fetch.NOTES / "archives" / "blas_lib_gfx942.tar.zst.part"
    part.parent.mkdir(parents=True)
    for left in (b"different", b"x" * 10_000_000):
        part.write_bytes(left)
        fetch.fetch(run, ask(include=("gfx942",)))
        assert tree.read_artifacts(tmp_path / "out").targets == ("gfx942",)
        (tmp_path / "out" / fetch.NOTES / "blas_lib_gfx942.json").unlink()
        shutil.rmtree(tmp_path / "out" / "blas_lib_gfx942")
        part.parent.mkdir(exist_ok=True)


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.TIMEOUT, Fault.TRUNCATED, Fault.LOST])
def test_after_a_fault_at_any_request_the_next_run_is_right(
    run: LocalStore, tmp_path: Path, fault: Fault
) -> None:
    counting = Plan()
    fetch.fetch(
        FaultyStore(run, counting), FetchRequest(filters=ArtifactFilters(), output_dir=tmp_path / "c", jobs=1)
    )
    for at in range(1, len(counting.requests) + 1):
        request = FetchRequest(filters=ArtifactFilters(), output_dir=tmp_path / f"{at}", jobs=1)
        plan = Plan(fault, at)
        try:
            fetch.fetch(FaultyStore(run, plan), request)
        except NetworkError:
            assert plan.happened == 1
        fetch.fetch(run, request)
        assert names(request.output_dir) == ["base_lib_generic", "blas_lib_gfx1100", "blas_lib_gfx942"]


_KILLED = """
import sys
from pathlib import Path
from cairn.rocm.fetch import fetch
from cairn.rocm.fetch.choose import ArtifactFilters
from cairn.store.folder import LocalStore
print("begun", flush=True)
request = fetch.FetchRequest(filters=ArtifactFilters(), output_dir=Path(sys.argv[2]))
fetch.fetch(LocalStore(Path(sys.argv[1])), request)
"""


@pytest.mark.slow
def test_whenever_it_is_killed_the_next_run_ends_right(run: LocalStore, ask: Ask, tmp_path: Path) -> None:
    for number in range(12):
        artifacts.write(
            run.path, f"more{number}_lib_generic.tar.xz", {f"f{n}": b"%d" % n for n in range(300)}
        )
    for number in (0, 3, 7):
        command = [sys.executable, "-c", _KILLED, str(run.path), str(tmp_path / "out")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 * (number + 1))
            process.kill()
    done = fetch.fetch(run, ask())
    assert len(done) == 15
    for number in range(12):
        stage = tmp_path / f"out/more{number}_lib_generic/base/more{number}_lib_generic/stage"
        assert len(list(stage.iterdir())) == 300
    assert not list((tmp_path / "out").rglob("*.part"))
    assert not list((tmp_path / "out" / fetch.NOTES).glob("unpacking*"))
