"""What commands cost beside the number of sets: log, yank, rollback, check, gc, one more set.

    python benchmarks/index_growth.py [--sets 50 500] [--keep FOLDER]

A set has twenty wheels, and each generation brings one set. The stores are made by Cairn's own writer, which
leaves out all pages but those of the last generation. Wheels are a few bytes: what is measured is the index.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from wheel_measure import Cost, measured

from cairn import start
from cairn.release import wholes
from cairn.release.index import commit, generation, keys, listing, write
from cairn.release.index.generation import FileEntry, Pointer, digest_of, encode
from cairn.release.index.snapshot import Change, Index, empty
from cairn.release.ledger import Ledger
from cairn.release.publish import locks
from cairn.store.folder import LocalStore
from cairn.wheels import wheelset
from cairn.wheels.wheelset import SetWheel, WheelSet

INDEX = "release"
PROJECTS = ("torch", "torchaudio", "torchvision", "triton", *(f"part-{n}" for n in range(16)))
MANIFEST = b'{"schema":"cairn.manifest/3"}\n'


def put_wheels(store: LocalStore, number: int) -> Iterator[tuple[SetWheel, FileEntry]]:
    """Put the wheels of a set into a store; yield each as its set and as the index have it."""
    version = f"2.{number}.0"
    for project in PROJECTS:
        name = f"{project.replace('-', '_')}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode()
        sha256, of_metadata = digest_of(name.encode()), digest_of(metadata)
        for key, data in (
            (keys.file_key(sha256, name), name.encode()),
            (keys.sidecar_key(sha256, name), metadata),
        ):
            store.write(key, data)
        manifest = digest_of(MANIFEST)
        file = FileEntry(
            filename=name,
            sha256=sha256,
            size=len(name),
            version=version,
            build=manifest,
            upload_time=generation.now(),
            metadata_sha256=of_metadata,
            requires_python=">=3.10",
        )
        yield (
            SetWheel(
                distribution=project,
                version=version,
                file_name=name,
                sha256=sha256,
                size=len(name),
                metadata_sha256=of_metadata,
                targets=(),
            ),
            file,
        )


def put_set(store: LocalStore, number: int) -> tuple[WheelSet, list[FileEntry]]:
    """Put a sealed set and its wheels into a store."""
    wheels, files = zip(*put_wheels(store, number), strict=True)
    made = WheelSet(
        manifest_sha256=digest_of(MANIFEST),
        stack="pytorch",
        line=f"release/2.{number % 3}",
        python=("3.11", "3.12")[number % 2],
        platform="linux_x86_64",
        family="gfx94X-dcgpu",
        targets=("gfx942",),
        wheels=tuple(sorted(wheels, key=lambda wheel: (wheel.distribution, wheel.file_name))),
    )
    made = wheelset.seal(made, ())
    whole = {
        **locks.of_set(made, locks.metadata_of(store, made)),
        **write.set_objects(made),
        keys.set_key(made.id, "manifest.json"): MANIFEST,
        keys.set_key(made.id, "set.json"): wheelset.dumps(made),
    }
    for key, data in whole.items():
        store.write(key, data)
    return made, [msgspec.structs.replace(file, sets=(made.id,)) for file in files]


def fill(store: LocalStore, count: int) -> list[str]:
    """Make an index of so many sets; return their ids."""
    index, ids, names = Index(store, INDEX), [], dict[str, str]()
    before = commit._begun(index.load())  # noqa: SLF001 - the writer, without the pages of each generation
    if before is None:
        raise SystemExit(f"{store.url} is there already")
    for number in range(count):
        made, files = put_set(store, number)
        ids.append(made.id)
        names |= {file.filename: file.sha256 for file in files}
        if number % 500 == 499 or number == count - 1:
            Ledger(store).add(names={"": names})
            names = {}
        projects = {
            project: before.project(project).with_files((file,))
            for project, file in zip(PROJECTS, files, strict=True)
        }
        change = Change(projects=projects, sets={made.id: listing.index_set(made)})
        last = Ledger(store).last() if number % 500 == 499 or number == count - 1 else None
        state = commit._next(before, change, "promote", change_id=f"{number}", why=None, ledger=last)  # noqa: SLF001
        data = encode(state)
        store.write(keys.generation_key(INDEX, state.number, digest_of(data)), data)
        before = index.at(state, digest_of(data))
    zero = digest_of(encode(empty(INDEX)))
    pointer = Pointer(generation=count, digest=before.digest or "", rendered=0, rendered_digest=zero)
    store.write(keys.state_key(INDEX), encode(pointer))
    wholes.begin(store, INDEX)
    commit.recover(index)
    return ids


def one_more(folder: Path, number: int) -> int:
    """Commit one more set, as a promotion does after the gate."""
    store = LocalStore(folder)
    made, files = put_set(store, number)
    for attempt in commit.attempts(Index(store, INDEX)):
        projects = {
            project: attempt.before.project(project).with_files((file,))
            for project, file in zip(PROJECTS, files, strict=True)
        }
        change = Change(projects=projects, sets={made.id: listing.index_set(made)})
        if attempt.commit(change, "promote"):
            break
    return 0


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What commands cost beside the number of sets.")
    parser.add_argument("--sets", type=int, nargs="+", default=[50, 500], help="how many (default: 50 500)")
    parser.add_argument("--keep", type=Path, help="where the stores stay, and are taken from")
    parser.add_argument("--add", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.add is not None:
        return start.run(lambda: one_more(options.keep, options.add))
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as temporary:
        for count in options.sets:
            folder = (options.keep or Path(temporary)) / f"sets-{count}"
            if not folder.exists():
                fill(LocalStore(folder), count)
                one_more(folder, count)  # whose states name their pages, as those of every command do
            measure(folder, count)
    return 0


def measure(folder: Path, count: int) -> None:
    """Measure each command once on one store."""
    generations = sum(file.stat().st_size for file in (folder / INDEX / "generations").iterdir())
    parts = sum(file.stat().st_size for file in (folder / INDEX / "parts").iterdir())
    print(f"\n{count} sets: generations {generations / 1e6:.1f} MB, parts {parts / 1e6:.1f} MB")
    cairn = [sys.executable, "-m", "cairn"]
    at = ["--store", str(folder)]
    newest = f"2.{count - 1}.0"
    ids = sorted(path.name for path in (folder / "sets").iterdir())
    number = len(list((folder / INDEX / "generations").iterdir()))
    here = Path(__file__).resolve()
    wheel = next(folder.glob(f"files/*/*/torch-{newest}-*.whl")).name
    commands = {
        "one more set": [sys.executable, str(here), "--keep", str(folder), "--add", str(count + number)],
        "release log": [*cairn, "release", "log", "--index", INDEX, "--limit", "20", *at],
        "release log, all": [*cairn, "release", "log", "--index", INDEX, "--limit", "99999", *at],
        "release yank": [*cairn, "release", "yank", ids[0], "--reason", "bad", *at],
        "release rollback": [*cairn, "release", "rollback", "--index", INDEX, "--to", f"{number:07}", *at],
        "index gc --dry-run": [*cairn, "index", "gc", "--dry-run", "--older-than", "30", *at],
        "index check": [*cairn, "index", "check", *at],
    }
    print(f"{wheel}\n{'':20}{'CPU s':>10}{'wall s':>10}{'peak MB':>10}")
    for name, command in commands.items():
        show(name, measured(command, any_status=True))


def show(name: str, cost: Cost) -> None:
    """Print a line of the table."""
    print(f"{name:20}{cost.cpu:10.2f}{cost.wall:10.2f}{cost.memory / 1e6:10.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
