"""Verify a wheel against everything that an index says of it, link by link, from its bytes to the commits.

The readers of an index come first: over HTTP, recording for a bundle, or out of one.
"""

from __future__ import annotations

import contextlib
import io
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import msgspec
from msgspec import structs

from cairn import files, web
from cairn.errors import CairnError, NetworkError, PrerequisiteError, StoreError, UsageError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, PUBLISHED, FileEntry, IndexSet
from cairn.release.provenance import attest, evidence, judged
from cairn.release.provenance.attest import Vouched
from cairn.release.provenance.dsse import UntrustedKeyError, claims_of
from cairn.release.provenance.evidence import Offer
from cairn.release.trust import anchor
from cairn.release.trust.metadata import MetadataError
from cairn.release.trust.signers import Trust
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.opening import open_existing
from cairn.store.protocol import MissingKeyError, Reader, Store, StoredObject, valid_key
from cairn.wheels.build_statement import Source
from cairn.wheels.wheelset import WheelSet

if TYPE_CHECKING:
    from cairn.release.trust.client import SignedStore

LinkName = Literal[
    "generation", "wheel", "provenance", "set", "manifest", "builder", "statement", "records", "judgement"
]
State = Literal["good", "broken", "unsigned"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain.

    Attributes:
        name: what was checked.
        state: `unsigned` is one that nobody vouches for, where the user asked for no more than digests.
        text: what was found, or what is wrong.
        set_id: the set that it is about, or None.
    """

    name: LinkName
    state: State
    text: str
    set_id: str | None = None


@dataclass(kw_only=True)
class Report:
    """The result of verifying one wheel.

    Attributes:
        file_name, sha256: of the wheel.
        index: the index that was asked.
        path: the wheel itself; None where nobody has it at hand.
        links: every link that could be checked; behind a broken one there may be others.
        sources: the commits that it was built from, as far as the links to them hold.
        warnings: what does not break the chain and should be known: yanked, untested, a record unsigned.
    """

    file_name: str
    sha256: str
    index: str
    path: Path | None = None
    links: list[Link] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    warnings: list[str] = field(default_factory=list)

    @property
    def broken(self) -> tuple[Link, ...]:
        """The links that do not hold."""
        return tuple(link for link in self.links if link.state == "broken")

    def link(self, name: LinkName, set_id: str | None = None, *, good: State = "good") -> _Checking:
        """Record the link that the block checks: it appends its results, and an exception breaks the link."""
        return _Checking(self.links, name, set_id, good)


class _Checking:
    """See `Report.link`."""

    def __init__(self, links: list[Link], name: LinkName, set_id: str | None, good: State) -> None:
        self._links, self._name, self._set_id, self._good = links, name, set_id, good
        self._said: list[str] = []

    def __enter__(self) -> list[str]:
        return self._said

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        # Of what could not be read, or not be checked here, nothing is known.
        broken = isinstance(error, CairnError) and not isinstance(error, NetworkError | PrerequisiteError)
        if broken or error is None:
            text = str(error) if broken else "; ".join(self._said)
            state = "broken" if broken else self._good
            self._links.append(Link(name=self._name, state=state, text=text, set_id=self._set_id))
        return broken


def check(
    reader: Reader,
    index: str,
    *,
    file_name: str,
    sha256: str,
    trust: Trust | None,
    path: Path | None = None,
) -> Report:
    """Verify a wheel against what an index offers under its name.

    Args:
        reader: what has the index.
        index: its name.
        file_name: of the wheel.
        sha256: of its bytes.
        trust: who must have signed; None checks digests alone. Its former keys count for what the state of
            the index names by digests: give them only where a promoter of today has signed that state.
        path: the wheel, whose bill of materials is then compared with the manifest too.

    Raises:
        NetworkError: the index could not be read to the end; that is neither good nor bad.
    """
    report = Report(file_name=file_name, sha256=sha256, index=index, path=path)
    offer: Offer | None = None
    with report.link("generation") as texts:
        offer = evidence.offer(reader, index, file_name)
        texts.append(offer.state)
    file = _offered(report, offer) if offer else None
    if offer is None or file is None:
        return report
    file_trust = trust.with_former() if trust is not None and file.yanked is None else trust
    statements = _provenance(report, reader, offer, file, file_trust)
    for set_id, entry in offer.sets.items():
        if offer.signed and set_id in (statements or {}):
            entry = evidence.with_evidence(entry, (statements or {})[set_id].claims)  # noqa: PLW2901
        if statements is None or set_id in statements or trust is None:
            _set(report, reader, file, entry, (statements or {}).get(set_id), trust)
        else:
            report.warnings.append(f"nobody has signed for the set {short_id(set_id)}, which has it too")
    return report


def _offered(report: Report, offer: Offer) -> FileEntry | None:
    """The index's entry of exactly this file."""
    file = offer.file
    with report.link("wheel") as texts:
        if file is None:
            raise StoreError(f"{report.index} does not offer {report.file_name}")
        if file.sha256 != report.sha256:
            raise StoreError(
                f"this file has sha256 {report.sha256}, and what {report.index} offers has {file.sha256}"
            )
        if file.build in (MIRRORED, PUBLISHED):
            came = f"{file.filename} came into {report.index} as {file.build}, not by a build of ours"
            raise StoreError(f"{came}; sets that need it name it by its hash: verify a wheel of such a set")
        if not offer.sets:
            raise StoreError(f"{report.index} has no set with {file.filename} any more")
        texts.append(f"sha256 {file.sha256}, {file.size:,} bytes")
        yanked = (file.yanked, *(entry.yanked for entry in offer.sets.values()))
        report.warnings += [f"it was yanked: {why}" for why in dict.fromkeys(yanked) if why is not None]
        failed = dict.fromkeys(entry.failed for entry in offer.sets.values() if entry.failed is not None)
        report.warnings += [f"a test has failed since it came: {why}" for why in failed]
        untested = dict.fromkeys(entry.untested for entry in offer.sets.values())
        report.warnings += [why for why in (offer.warning, *untested) if why is not None]
        return file
    return None


def _provenance(
    report: Report, reader: Reader, offer: Offer, file: FileEntry, trust: Trust | None
) -> dict[str, Vouched] | None:
    """The statements about the sets that the index has; None if they cannot be relied on."""
    if trust is None and file.provenance is None:
        text = "nobody has signed it, and no signature was asked for"
        report.links.append(Link(name="provenance", state="unsigned", text=text))
        return None
    with report.link("provenance", good="unsigned" if trust is None else "good") as texts:
        every = evidence.vouched(reader, report.index, file, trust)
        if strangers := sorted(short_id(set_id) for set_id in every if set_id not in file.sets):
            raise StoreError(f"a statement is about the set {strangers[0]}, with which the file never came")
        offered = {set_id: statement for set_id, statement in every.items() if set_id in offer.sets}
        if not offered:
            raise StoreError(f"no statement is about a set that {report.index} has")
        for statement in offered.values():
            by = f"signed by {statement.by}" if statement.by else "signature not checked"
            texts.append(f"{by}, built by {statement.claims.builder.id}")
        return offered
    return None


def _set(
    report: Report,
    reader: Reader,
    file: FileEntry,
    entry: IndexSet,
    vouched: Vouched | None,
    trust: Trust | None,
) -> None:
    """Check the links of one set that has the file."""
    wheel_set: WheelSet | None = None
    with report.link("set", entry.set_id) as texts:
        wheel_set = evidence.sealed_set(reader, entry, file)
        texts.append(
            f"{entry.set_id}: {entry.stack} {entry.line}, Python {entry.python}, {entry.platform}, "
            f"{entry.family}, {len(wheel_set.files)} files"
        )
    if wheel_set is None:
        return
    with report.link("manifest", entry.set_id) as texts:
        sources = attest.sources_of(reader, wheel_set)
        texts.append(f"{wheel_set.manifest_sha256}: {len(sources)} projects")
        report.sources = sources
    if report.links[-1].state == "good":
        _builder(report, reader, wheel_set, entry, trust)
        if vouched:
            _statement(report, wheel_set, report.sources, entry, vouched)
    _records(report, reader, wheel_set, entry, trust and evidence.trust_in(entry, trust))
    with report.link("judgement", entry.set_id) as texts:
        if entry.judgement is None and keys.is_gated(report.index):
            raise StoreError(f"{report.index} has the set without a judgement of the gate")
        if entry.judgement is None:
            texts.append(f"none: {report.index} asks no gate")
        else:
            judgement = judged.judgement(reader, entry.set_id, entry.judgement, report.index)
            if wrong := list(judged.contradictions(reader, wheel_set, entry, judgement)):
                raise StoreError("; ".join(wrong))
            met = sum(demand.outcome == "met" for demand in judgement.demands)
            texts.append(f"{met} of {len(judgement.demands)} demands met, {judgement.judged}")


def _builder(
    report: Report, reader: Reader, wheel_set: WheelSet, entry: IndexSet, trust: Trust | None
) -> None:
    """Check that a builder signed the statement, and that it and the wheel name the manifest's commits."""
    with report.link("builder", entry.set_id) as texts:
        evidence.require_builder(reader, wheel_set, [report.path] if report.path else ())
        who = evidence.builder_statement(reader, wheel_set).builder
        beside = ", and so does its bill of materials" if report.path else ""
        by = "nobody signed that"
        if trust is not None and trust.builders is not None:
            signers = evidence.builder_signers(reader, wheel_set, trust, entry=entry)
            by = f"signed by key {', '.join(short_id(key) for key in signers)}"
        texts.append(f"{who.id} says that it built it of these commits{beside}; {by}")


def _statement(
    report: Report, wheel_set: WheelSet, sources: tuple[Source, ...], entry: IndexSet, vouched: Vouched
) -> None:
    """Check that the signed statement agrees with the index, the set and the manifest."""
    claims = vouched.claims
    of_set = claims_of(wheel_set, entry, sources=sources, index=report.index, builder=claims.builder)
    expected = structs.replace(of_set, file_name=report.file_name, sha256=report.sha256)
    with report.link("statement", entry.set_id) as texts:
        differing = [
            name for name in expected.__struct_fields__ if getattr(expected, name) != getattr(claims, name)
        ]
        if differing:
            names = ", ".join(name.replace("_", " ") for name in differing)
            raise StoreError(f"what was signed differs from what {report.index} has: {names}")
        texts.append("says the same of set, manifest, commits and evidence")


def _records(
    report: Report, reader: Reader, wheel_set: WheelSet, entry: IndexSet, trust: Trust | None
) -> None:
    with report.link("records", entry.set_id) as texts:
        if not entry.records and entry.untested is None and keys.is_gated(report.index):
            raise StoreError(f"{report.index} has the set without a test record, and does not say so")
        for digest in entry.records:
            data, record = evidence.record(reader, wheel_set, digest)
            hardware = ", ".join(dict.fromkeys(record.hardware)) or "a CPU"
            signers = _signers(report, reader, wheel_set.id, data, trust)
            texts.append(f"{record.kind} {record.verdict} on {hardware}{signers}")
        if not entry.records:
            texts.append(entry.untested or "none yet")


def _signers(report: Report, reader: Reader, set_id: str, record: bytes, trust: Trust | None) -> str:
    """The signers of a record, in words.

    A record without a signer that the user trusts is only a warning: the releaser's statement names the
    digest of the record, and the releaser's gate is what knows the machines that test.
    """
    if trust is None:
        return ""
    try:
        signers = evidence.record_signers(reader, set_id, record, trust)
    except UntrustedKeyError as error:
        report.warnings.append(str(error))
        return ""
    return f", signed by key {', '.join(short_id(key) for key in signers)}"


_MOST_BYTES = 1 << 28  # of an object that is read whole; a project of 100,000 files has less
_MOST_METADATA = 5_000_000  # as python-tuf has it, which looks at the size once all is there
_TIP = "try again, or check without the network: --bundle"
_SECONDS = 30  # without a byte from a server
_FILE_URL = re.compile(r"(.*)/files/([0-9a-f]{2})/(\2[0-9a-f]{62})/([^/]+)")


class WebReader:
    """A store that a web server serves.

    Attributes:
        url: where its keys begin.
        tip: what to do where it does not answer.
    """

    def __init__(self, url: str, *, tip: str = _TIP) -> None:
        self.url, self.tip = url.rstrip("/"), tip

    def read(self, key: str) -> StoredObject:
        """See `Reader.read`."""
        out, url = io.BytesIO(), f"{self.url}/{urllib.parse.quote(valid_key(key))}"
        most = _MOST_METADATA if key.startswith("metadata/") else _MOST_BYTES
        fetch(url, out=out, most=most, tip=self.tip)
        return StoredObject(data=out.getvalue())


class Recorder:
    """A reader that keeps everything it reads from another reader.

    Attributes:
        objects: what was read, by key.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        """The URL of the underlying reader."""
        return self._reader.url

    def read(self, key: str) -> StoredObject:
        """See `Reader.read`."""
        stored = self._reader.read(key)
        self.objects[key] = stored.data
        return stored


def fetch(url: str, *, out: IO[bytes], most: int, tip: str = _TIP) -> None:
    """Write what is at a URL to a file; a server that does not end is not read for ever.

    Raises:
        MissingKeyError: the server answers 404.
        NetworkError: it does not answer, or with an error.
        StoreError: it is larger than so many bytes.
    """
    before = out.tell()
    if not web.read(url, out=out, most=most + 1, timeout=_SECONDS, tip=tip):
        raise MissingKeyError(f"there is no {url}")
    if out.tell() - before > most:
        raise StoreError(f"{url} is larger than what an index has there", tip="do not install from there")


def parse_index_url(url: str) -> tuple[str, str]:
    """Split an `--index-url` into the address of its store and the name of the index.

    Raises:
        UsageError: it is not the address of an index that Cairn wrote.
    """
    plain = url.partition("#")[0].partition("?")[0].rstrip("/")
    if not plain.endswith("/simple"):
        raise UsageError(f"{url} is not an index of Cairn's: it does not end in /simple/")
    for depth in (2, 1):  # a channel and a family, or a channel alone
        base, *parts = plain.removesuffix("/simple").rsplit("/", depth)
        with contextlib.suppress(UsageError):
            return base, keys.checked_index("/".join(parts))
    raise UsageError(f"{url} is not an index of Cairn's: it has no channel before /simple/")


def signed_store(index_url: str, *, tip: str = _TIP) -> tuple[SignedStore | None, str]:
    """Return the store of an index as its promoter signed it, None if it has no root; and the index's name.

    Args:
        index_url: of its simple pages, or of what may be an index of somebody else's.
        tip: what to do where its server does not answer.

    Raises:
        MetadataError: the store has another root than this machine asks for.
    """
    try:
        base, index = parse_index_url(index_url)
    except UsageError:
        return None, ""
    scheme = urllib.parse.urlsplit(base).scheme  # in lower case
    if scheme not in ("file", "http", "https"):
        return None, index
    base = f"{scheme}{base[len(scheme) :]}"
    source: Reader = open_existing(base) if scheme == "file" else WebReader(base, tip=tip)
    trusted = anchor.anchor(source)
    if trusted is None:
        return None, index
    from cairn.release.trust.client import SignedStore  # noqa: PLC0415 - python-tuf, for stores with a root

    return SignedStore(source, trusted), index


def require_signed(index_url: str, file_name: str, sha256: str | None) -> None:
    """Refuse a file of an index that its promoter did not sign, where the store has a root.

    Raises:
        MetadataError: nobody signed it, or other bytes.
    """
    store, index = signed_store(index_url)
    if store is None or not keys.is_gated(index):
        return
    target = store.target(f"{index}/{file_name}")
    if target is None or target.hashes["sha256"] != sha256:
        subject = "a file" if target is None else "the bytes"
        raise MetadataError(
            f"{index_url} lists {subject} that nobody has signed: {file_name}",
            tip="its pages are not what its promoter released: do not install from there",
        )


def parse_file_url(url: str) -> tuple[str, str, str] | None:
    """The store's address, and the file's sha256 and name, in a file URL; None for other URLs."""
    match = _FILE_URL.fullmatch(url.partition("#")[0].partition("?")[0])
    return (match[1], match[3], urllib.parse.unquote(match[4])) if match else None


def open_bundle(path: Path) -> Store:
    """Open a bundle that `save_bundle` wrote, packed or unpacked: a store of a few objects.

    Raises:
        UsageError: it is not a bundle.
    """
    if path.is_dir():
        return LocalStore(path)
    objects: dict[str, bytes] = {}
    left = _MOST_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if keys.kind_of(member.filename) is None or member.filename in objects:
                    raise UsageError(f"{path} is not a bundle: it holds {member.filename[:200]!r}")
                left -= member.file_size
                if left < 0:
                    raise UsageError(f"{path} is not a bundle: {member.filename[:200]!r} is too large")
                with archive.open(member) as stream:
                    objects[member.filename] = stream.read(_MOST_BYTES)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise UsageError(f"{path} is not a bundle: {error}") from error
    return MemoryStore(objects, url=str(path))


def save_bundle(path: Path, objects: Mapping[str, bytes]) -> None:
    """Write the objects that a check has read to a ZIP file, so that they can be checked again elsewhere."""
    with files.writing_beside(path) as part, zipfile.ZipFile(part, "w") as archive:
        for key in sorted(objects):
            # With a time of its own, as `ZipInfo` has it, the same objects make the same bundle.
            archive.writestr(zipfile.ZipInfo(key), objects[key], zipfile.ZIP_DEFLATED)


def index_of_bundle(bundle: Store) -> str:
    """The one index in a bundle, if that is a release.

    Whoever made the bundle chose what is in it, and what is signed for staging was neither tested nor judged:
    a user who wants that says so.

    Raises:
        UsageError: it is of none, of several, or not of a release.
    """
    names = [name for name in keys.possible_indexes() if bundle.exists(keys.state_key(name))]
    if len(names) == 1 and names[0].partition("/")[0] == "release":
        return names[0]
    tip = (
        f"say which: --index {' or '.join(names)}" if names else "save one: cairn index verify --save-bundle"
    )
    raise UsageError(f"{bundle.url} is a bundle of {', '.join(names) or 'no index'}", tip=tip)
