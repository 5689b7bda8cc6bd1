"""Every field of all that is read, changed by somebody who can make every digest fit: which changes show.

Those that do not are listed here. None of them says what the wheel is, what it was built from, or what was
tested; a new field of a format is found by this test, and is either signed or added to the list.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cairn.release.index import keys
from cairn.release.index.generation import digest_of
from cairn.release.provenance import chain
from cairn.store.memory import MemoryStore
from helpers.provenance import TRUST, Released, released

Path = tuple[str | int, ...]
Objects = dict[str, bytes]

FREE = {
    # Which state it is, who made it and when, and how far pages were written.
    "generation": {
        "parent", "action", "who", "when", "why", "change_id", "serial", "recent", "recent.number",
        "recent.who", "recent.when", "recent.sets", "ledger", "brought", "removed", "marked", "changed",
        "sets",  # twice, since of two bins one alone is read
    },
    "bin of projects": {"projects.triton"},
    "pointer": {"rendered", "rendered_digest"},
    # A writer takes lines from the page of that digest, in a signed generation. A status is written and told
    # where it is not the usual one.
    "project": {
        "serial", "page", "files.upload_time", "files.needs", "files.metadata_sha256", "files.sets",
        "files.unpacked",
    },
    # Both sizes are for people, as is `rebuilds`: the sizes of files, and the verdicts, are signed. What it
    # is, its place in a bin says; and what it comes from, `set.json`, with which the audit compares it.
    "set": {
        "added", "yanked", "failed", "untested", "untested_targets", "installed_with", "weakened",
        "download", "rebuilds", "installed", "staged", "schema", "derived_from",
    },
    # A signature may be by several, and the id of a key is a hint.
    "record signature": {"signatures", "signatures.keyid"},
    "provenance": {"envelopes.signatures", "envelopes.signatures.keyid"},
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


def encode(plain: object) -> bytes:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def as_written(plain: object) -> bytes:
    return (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode()


def places(plain: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for step, value in inner:
        yield (*path, step), value
        yield from places(value, (*path, step))


def changes(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from (f"{value}x", "", "0" * 64)
    elif isinstance(value, int | float):
        yield from (value + 1, -1)
    elif isinstance(value, list):
        yield from ([], value * 2)
    yield from ({}, None, "it")


def changed(plain: Any, path: Path, value: Any, *, drop: bool = False) -> Any:
    plain = copy.deepcopy(plain)
    inner = plain
    for step in path[:-1]:
        inner = inner[step]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return plain


class Attacker:
    """Who may write everything, and sign nothing."""

    def __init__(self, made: Released) -> None:
        self.made, self.objects = made, made.store.objects
        self.wheel = made.wheels[-1]
        self.sha256 = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        self.pointer = self._read("release/state.json")
        number, digest = self.pointer["generation"], self.pointer["digest"]
        self.generation = self._read(keys.generation_key("release", number, digest))
        # An index as small as this has one bin of each.
        self.bins = {
            field: self._read(keys.part_key("release", self.generation[field][0]))
            for field in ("projects", "sets")
        }
        self.project = self._read(keys.part_key("release", self.bins["projects"]["projects"]["torch"]))
        self.set = self.bins["sets"]["sets"][made.made.id]
        (self.record,) = self.set["records"]
        self.judgement = self.set["judgement"]
        (self.file,) = self.project["files"]

    def _read(self, key: str) -> Any:
        return json.loads(self.objects[key])

    def of_set(self, name: str) -> str:
        return keys.set_key(self.made.made.id, name)

    def provenance_key(self, digest: str) -> str:
        return keys.provenance_key(self.file["sha256"], self.file["filename"], digest)

    def with_generation(self, generation: Any) -> Objects:
        data = encode(generation)
        key = keys.generation_key("release", self.pointer["generation"], digest_of(data))
        return {key: data, "release/state.json": encode(self.pointer | {"digest": digest_of(data)})}

    def with_bin(self, field: str, plain: Any) -> Objects:
        data = encode(plain)
        part = {keys.part_key("release", digest_of(data)): data}
        return part | self.with_generation(self.generation | {field: [digest_of(data)]})

    def with_project(self, project: Any) -> Objects:
        data = encode(project)
        projects = self.bins["projects"]["projects"] | {"torch": digest_of(data)}
        part = {keys.part_key("release", digest_of(data)): data}
        return part | self.with_bin("projects", self.bins["projects"] | {"projects": projects})

    def with_set(self, listed: Any) -> Objects:
        sets = self.bins["sets"]["sets"] | {self.made.made.id: listed}
        return self.with_bin("sets", self.bins["sets"] | {"sets": sets})

    def with_record(self, record: Any) -> Objects:
        data = as_written(record)
        signature = self.objects[self.of_set(f"records/{self.record}.dsse.json")]
        put = {
            self.of_set(f"records/{digest_of(data)}.json"): data,
            self.of_set(f"records/{digest_of(data)}.dsse.json"): signature,
        }
        return put | self.with_set(self.set | {"records": [digest_of(data)]})

    def with_judgement(self, judgement: Any) -> Objects:
        data = as_written(judgement)
        put = {self.of_set(f"judgements/{digest_of(data)}.json"): data}
        return put | self.with_set(self.set | {"judgement": digest_of(data)})

    def with_provenance(self, provenance: Any) -> Objects:
        data = encode(provenance)
        file = self.file | {"provenance": digest_of(data)}
        return {self.provenance_key(digest_of(data)): data} | self.with_project(
            self.project | {"files": [file]}
        )

    def attacks(self) -> dict[str, tuple[Any, Callable[[Any], Objects]]]:
        """What there is to change, and all that must fit then."""
        signature = self.of_set(f"records/{self.record}.dsse.json")
        manifest, sealed = self.of_set("manifest.json"), self.of_set("set.json")
        return {
            "pointer": (self.pointer, lambda plain: {"release/state.json": encode(plain)}),
            "generation": (self.generation, self.with_generation),
            "bin of projects": (self.bins["projects"], lambda plain: self.with_bin("projects", plain)),
            "project": (self.project, self.with_project),
            "set": (self.set, self.with_set),
            "record": (self._read(self.of_set(f"records/{self.record}.json")), self.with_record),
            "judgement": (self._read(self.of_set(f"judgements/{self.judgement}.json")), self.with_judgement),
            "provenance": (self._read(self.provenance_key(self.file["provenance"])), self.with_provenance),
            "record signature": (self._read(signature), lambda plain: {signature: encode(plain)}),
            "manifest": (
                self._read(manifest),
                lambda plain: {manifest: json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()},
            ),
            "set.json": (
                self._read(sealed),
                lambda plain: {sealed: as_written(plain)},
            ),
        }

    def shows(self, put: Objects) -> bool:
        store = MemoryStore({**self.objects, **put})
        found = chain.check(store, "release", file_name=self.wheel.name, sha256=self.sha256, trust=TRUST)
        return bool(found.broken)


KINDS = (
    "pointer", "generation", "bin of projects", "project", "set", "record", "judgement", "provenance",
    "record signature", "manifest", "set.json",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_signed_or_on_the_list(made: Released, kind: str) -> None:
    attacker = Attacker(made)
    plain, fit = attacker.attacks()[kind]
    assert not attacker.shows(fit(plain))
    unseen = set()
    for path, value in places(plain):
        name = ".".join(step for step in path if isinstance(step, str))
        tries = [changed(plain, path, new) for new in changes(value) if new != value]
        tries.append(changed(plain, path, None, drop=True))
        if not all(attacker.shows(fit(one)) for one in tries):
            unseen.add(name)
    assert unseen == FREE.get(kind, set())
