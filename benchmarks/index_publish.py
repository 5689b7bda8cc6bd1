"""What one more wheel, and a whole regeneration, cost in an index of 100,000 wheels, beside dumb-pypi.

    python -m pip install dumb-pypi
    python benchmarks/index_publish.py [--wheels 100000]

In two layouts: 5,000 projects of 20 files, and 20 projects of 5,000. Each program is measured as it is typed,
start-up included: `cairn index publish` of one wheel into a folder, and dumb-pypi's incremental run
(`--previous-package-list-json`), which is told what was there before. The whole regeneration is
`cairn index repair` of pages that are lost, and dumb-pypi's run with nothing before it. What is read and
written of the store by the one more wheel is counted too.

Only the gate lets wheels into an index that is signed: the one more signed wheel is a commit into `release`
as the gate makes it once it has judged, in a program of its own (`index_one_more.py`): without a root, and
with one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from wheel_measure import Cost, measured, median, report

from cairn.release.index.commit import attempts
from cairn.release.index.generation import PUBLISHED, FileEntry, ProjectState
from cairn.release.index.snapshot import Change, Index
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store

RUNS = 3


def entries(project: str, count: int) -> tuple[FileEntry, ...]:
    """So many files of a project, each a version of its own, already in order."""
    made = []
    for number in range(count):
        version = f"1.{number}.0+rocm7.10.0"
        name = f"{project}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
        digest = hashlib.sha256(name.encode()).hexdigest()
        made.append(
            FileEntry(
                filename=name,
                sha256=digest,
                size=123_456,
                version=version,
                build=PUBLISHED,
                upload_time="2026-01-02T03:04:05.678901Z",
                requires_python=">=3.10",
                metadata_sha256=digest,
                needs=("numpy", "triton"),
            )
        )
    return tuple(made)


def filled(store: Store, projects: int, files: int, *, index: str = "staging") -> None:
    """Have an index hold so many projects of so many files; their bytes are not there."""
    states = {
        f"project{n}": ProjectState(name=f"project{n}", files=entries(f"project{n}", files))
        for n in range(projects)
    }
    for attempt in attempts(Index(store, index)):
        if attempt.commit(Change(projects=states), "publish"):
            break


def package_list(projects: int, files: int) -> Iterator[str]:
    """The same as dumb-pypi wants to be told of it."""
    for n in range(projects):
        for entry in entries(f"project{n}", files):
            plain = {
                "filename": entry.filename,
                "hash": f"sha256={entry.sha256}",
                "requires_python": entry.requires_python,
                "upload_timestamp": 1767323045,
                "core_metadata": f"sha256={entry.metadata_sha256}",
            }
            yield json.dumps(plain)


def one_wheel(folder: Path, project: str, version: str) -> Path:
    """A wheel that says nothing but its name."""
    info = f"{project}-{version}.dist-info"
    path = folder / f"{project}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def touched(store: LocalStore, command: list[str]) -> tuple[Cost, list[str]]:
    """What a command costs, and the keys that it wrote."""
    before = {found.key: found.modified for found in store.list("")}
    cost = measured(command)
    written = [found.key for found in store.list("") if before.get(found.key) != found.modified]
    return cost, written


def compare(projects: int, files: int, work: Path) -> None:
    """One layout: one more wheel, and all pages again."""
    print(f"\n{projects} projects of {files} files")
    store = LocalStore(work / "store")
    filled(store, projects, files)
    cairn = [sys.executable, "-m", "cairn"]
    at = ["--store", str(store.path), "--index", "staging", "--quiet"]
    ours: list[Cost] = []
    written: list[str] = []
    for run in range(RUNS):
        wheel = one_wheel(work, "project7", f"2.{run}.0")
        cost, written = touched(store, [*cairn, "index", "publish", str(wheel), *at])
        ours.append(cost)

    before, after = work / "before.json", work / "after.json"
    lines = "\n".join(package_list(projects, files))
    before.write_text(lines + "\n")
    more = json.dumps({"filename": "project7-2.0.0-py3-none-any.whl", "hash": f"sha256={'0' * 64}"})
    after.write_text(f"{lines}\n{more}\n")
    dumb = [
        sys.executable,
        "-m",
        "dumb_pypi.main",
        "--packages-url",
        "../../files/",
        "--output-dir",
        str(work / "dumb"),
    ]
    whole_peer = measured([*dumb, "--package-list-json", str(before)])
    theirs = [
        measured([*dumb, "--package-list-json", str(after), "--previous-package-list-json", str(before)])
        for _ in range(RUNS)
    ]
    print("one more wheel")
    report(median(theirs), median(ours), peer_name="dumb-pypi, incremental")
    print(f"{len(written)} objects written: {', '.join(sorted(key.split('/')[1] for key in written))}")

    compare_signed(projects, files, work, median(theirs))

    shutil.rmtree(store.path / "staging" / "simple")
    print("every page again")
    report(whole_peer, measured([*cairn, "index", "repair", *at]), peer_name="dumb-pypi")


def compare_signed(projects: int, files: int, work: Path, peer: Cost) -> None:
    """One more wheel in `release`, without a root and with one."""
    from cairn.release.trust import root, signers  # noqa: PLC0415 - which the commit that is measured does not load

    store = LocalStore(work / "released")
    os.environ["CAIRN_CACHE_DIR"] = str(work / "cache")
    filled(store, projects, files, index="release")
    command = [sys.executable, str(Path(__file__).with_name("index_one_more.py")), str(store.path)]
    print("one more wheel that the gate let in, without a root")
    report(peer, median([measured([*command, f"3.{n}.0"]) for n in range(RUNS)]), peer_name="dumb-pypi")
    signers.create(work / "keys")
    os.environ[signers.VARIABLE] = str(work / "keys" / signers.PRIVATE_NAME)
    only = signers.signer(work / "keys" / signers.PRIVATE_NAME)
    root.sign_all(store, root.publish(store, root.first([only], {}, 1)), {})
    print("the same, signed")
    report(peer, median([measured([*command, f"4.{n}.0"]) for n in range(RUNS)]), peer_name="dumb-pypi")
    del os.environ[signers.VARIABLE]  # what comes after signs nothing


def main() -> int:
    """Measure both layouts and print them."""
    parser = argparse.ArgumentParser(description="One more wheel in an index of many, beside dumb-pypi.")
    parser.add_argument(
        "--wheels", type=int, default=100_000, help="in the index before (default: %(default)s)"
    )
    options = parser.parse_args()
    for projects in (options.wheels // 20, 20):
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            compare(projects, options.wheels // projects, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
