"""Verify a wheel against everything that an index says of it, link by link, from its bytes to the commits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cairn.errors import CairnError, NetworkError, PrerequisiteError, StoreError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, PUBLISHED, FileEntry, IndexSet
from cairn.release.provenance import attest, evidence, judged
from cairn.release.provenance.attest import Vouched
from cairn.release.provenance.dsse import UntrustedKeyError
from cairn.release.provenance.evidence import Offer
from cairn.release.provenance.statement import claims_of
from cairn.release.trust.signers import Trust
from cairn.store.protocol import Reader
from cairn.wheels.build_statement import Source
from cairn.wheels.wheelset import WheelSet

LinkName = Literal[
    "generation", "wheel", "provenance", "set", "manifest", "builder", "statement", "records", "judgement"
]
State = Literal["good", "broken", "unsigned"]


@dataclass(frozen=True, kw_only=True)
class Link:
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
    own = trust.with_former() if trust is not None and file.yanked is None else trust
    statements = _provenance(report, reader, offer, file, own)
    for set_id, listed in offer.sets.items():
        if offer.signed and set_id in (statements or {}):
            listed = evidence.with_evidence(listed, (statements or {})[set_id].claims)  # noqa: PLW2901
        if statements is None or set_id in statements or trust is None:
            _set(report, reader, file, listed, (statements or {}).get(set_id), trust)
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
        yanked = (file.yanked, *(listed.yanked for listed in offer.sets.values()))
        report.warnings += [f"it was yanked: {why}" for why in dict.fromkeys(yanked) if why is not None]
        failed = dict.fromkeys(listed.failed for listed in offer.sets.values() if listed.failed is not None)
        report.warnings += [f"a test has failed since it came: {why}" for why in failed]
        untested = dict.fromkeys(listed.untested for listed in offer.sets.values())
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
        known = {set_id: one for set_id, one in every.items() if set_id in offer.sets}
        if not known:
            raise StoreError(f"no statement is about a set that {report.index} has")
        for one in known.values():
            by = f"signed by {one.by}" if one.by else "signature not checked"
            texts.append(f"{by}, built by {one.claims.builder.id}")
        return known
    return None


def _set(
    report: Report,
    reader: Reader,
    file: FileEntry,
    listed: IndexSet,
    vouched: Vouched | None,
    trust: Trust | None,
) -> None:
    """Check the links of one set that has the file."""
    wheel_set: WheelSet | None = None
    with report.link("set", listed.set_id) as texts:
        wheel_set = evidence.sealed_set(reader, listed, file)
        texts.append(
            f"{listed.set_id}: {listed.stack} {listed.line}, Python {listed.python}, {listed.platform}, "
            f"{listed.family}, {len(wheel_set.files)} files"
        )
    if wheel_set is None:
        return
    with report.link("manifest", listed.set_id) as texts:
        sources = attest.sources_of(reader, wheel_set)
        texts.append(f"{wheel_set.manifest_sha256}: {len(sources)} projects")
        report.sources = sources
    if report.links[-1].state == "good":
        _builder(report, reader, wheel_set, listed, trust)
        if vouched:
            _statement(report, wheel_set, report.sources, listed, vouched)
    _records(report, reader, wheel_set, listed, trust and evidence.trust_in(listed, trust))
    with report.link("judgement", listed.set_id) as texts:
        if listed.judgement is None and keys.is_gated(report.index):
            raise StoreError(f"{report.index} has the set without a judgement of the gate")
        if listed.judgement is None:
            texts.append(f"none: {report.index} asks no gate")
        else:
            judgement = judged.judgement(reader, listed.set_id, listed.judgement, report.index)
            if wrong := list(judged.contradictions(reader, wheel_set, listed, judgement)):
                raise StoreError("; ".join(wrong))
            met = sum(demand.outcome == "met" for demand in judgement.demands)
            texts.append(f"{met} of {len(judgement.demands)} demands met, {judgement.judged}")


def _builder(
    report: Report, reader: Reader, wheel_set: WheelSet, listed: IndexSet, trust: Trust | None
) -> None:
    """Check that a builder signed the statement, and that it and the wheel name the manifest's commits."""
    with report.link("builder", listed.set_id) as texts:
        evidence.require_builder(reader, wheel_set, [report.path] if report.path else ())
        who = evidence.builder_statement(reader, wheel_set).builder
        beside = ", and so does its bill of materials" if report.path else ""
        by = "nobody signed that"
        if trust is not None and trust.builders is not None:
            signers = evidence.builder_signers(reader, wheel_set, trust, listed=listed)
            by = f"signed by key {', '.join(short_id(key) for key in signers)}"
        texts.append(f"{who.id} says that it built it of these commits{beside}; {by}")


def _statement(
    report: Report, wheel_set: WheelSet, sources: tuple[Source, ...], listed: IndexSet, vouched: Vouched
) -> None:
    """Check that the signed statement agrees with the index, the set and the manifest."""
    claims = vouched.claims
    of_set = claims_of(wheel_set, listed, sources=sources, index=report.index, builder=claims.builder)
    expected = dataclasses.replace(of_set, file_name=report.file_name, sha256=report.sha256)
    with report.link("statement", listed.set_id) as texts:
        differing = [name for name, value in vars(expected).items() if vars(claims)[name] != value]
        if differing:
            names = ", ".join(name.replace("_", " ") for name in differing)
            raise StoreError(f"what was signed differs from what {report.index} has: {names}")
        texts.append("says the same of set, manifest, commits and evidence")


def _records(
    report: Report, reader: Reader, wheel_set: WheelSet, listed: IndexSet, trust: Trust | None
) -> None:
    with report.link("records", listed.set_id) as texts:
        if not listed.records and listed.untested is None and keys.is_gated(report.index):
            raise StoreError(f"{report.index} has the set without a test record, and does not say so")
        for digest in listed.records:
            data, record = evidence.record(reader, wheel_set, digest)
            hardware = ", ".join(dict.fromkeys(record.hardware)) or "a CPU"
            signers = _signers(report, reader, wheel_set.id, data, trust)
            texts.append(f"{record.kind} {record.verdict} on {hardware}{signers}")
        if not listed.records:
            texts.append(listed.untested or "none yet")


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
