"""`cairn index verify`: a wheel, link by link, from its bytes to the commits it was built from."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.cli.index import upkeep
from cairn.errors import StoreError, UsageError
from cairn.options import Exclusive, argument, flag, option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.provenance.chain import Recorder, Report, State
    from cairn.release.trust.client import SignedStore
    from cairn.release.trust.signers import Trust
    from cairn.store.protocol import Reader

_WEB = ("http://", "https://")
_MARKS: dict[State, console.Mark] = {"good": "done", "broken": "failed", "unsigned": "bypassed"}
_PLACE = Exclusive()
_UNSIGNED = (
    "nobody has signed which state is current: an earlier one, and a hidden yank, cannot be told from it"
)


@dataclass(frozen=True, kw_only=True)
class Verify(signing.RootOptions, common.OptionalStoreOptions):
    """Options of `cairn index verify`.

    Each link is said to be good, or named as broken. With --bundle nothing is read from the network. Where
    the store has a root, the state of the index is the one that its promoter signed, and --trust may be left
    out.
    Without a wheel, the whole index of a store is compared with its state, as `audit --hashes` does.

        cairn index verify torch-2.9.0-cp311-cp311-linux_x86_64.whl --bundle torch.zip --trust
        cairn-sign.pub
    """

    files: tuple[str, ...] = argument(
        "FILE|URL", "a wheel, or the address of one on an index of Cairn's", nargs="*"
    )
    store: str | None = common.store(required=False, group=_PLACE)
    index_url: str | None = common.index_url(group=_PLACE)
    bundle: Path | None = option(
        "what --save-bundle wrote, in place of an index",
        metavar="FILE|DIR",
        convert=converters.file_or_folder,
        group=_PLACE,
    )
    index: str | None = common.index("release", explicit=True)
    trust: tuple[str, ...] = signing.trust("whose signature must be on each wheel")
    trust_tester: tuple[Path, ...] = repeated(
        "public key of a machine that tests, for its test records alone", convert=converters.file
    )
    allow_unsigned: bool = flag("check digests alone, and say so: nobody vouches for them")
    save_bundle: Path | None = option(
        "write all that was read into a ZIP, to check again without a network", convert=converters.new_file
    )


def _verify(request: Verify) -> Answer:
    from cairn.release.provenance import chain

    if not request.files:
        if request.store is None:
            raise UsageError("nothing to verify", tip="name wheels, or give --store to compare a whole index")
        return upkeep.check(
            upkeep.Check(
                store=request.store,
                endpoint_url=request.endpoint_url,
                index=request.index or "release",
                hashes=True,
                trust=request.trust,
            )
        )
    for file in request.files:
        if "://" in file:
            _place_of(file)
    source, index = _source(request)
    watched = chain.Recorder(source)
    with tempfile.TemporaryDirectory(prefix="cairn-verify-") as memory:
        signed = _signed(watched, index, Path(memory) if request.save_bundle else None)
        return _checked(request, watched, signed, index)


def _checked(request: Verify, watched: Recorder, signed: SignedStore | None, index: str) -> Answer:
    from cairn.release.index import keys
    from cairn.release.provenance import chain

    trust = _trust(request, signed)
    reports = []
    for file in request.files:
        with _wheel(file, signed or watched, index) as (path, sha256):
            report = chain.check(
                signed or watched, index, file_name=path.name, sha256=sha256, trust=trust, path=path
            )
        if signed is None and keys.is_gated(index):
            report.warnings.append(_UNSIGNED)
        reports.append(report)
    broken = [report.file_name for report in reports if report.broken]
    error = StoreError(f"{', '.join(broken)}: not what {index} vouches for", tip="do not install it")
    if request.save_bundle and not broken:
        chain.save_bundle(request.save_bundle, watched.objects)
    return Answer(
        list(map(_plain, reports)),
        itertools.chain.from_iterable(map(_text, reports)),
        error=error if broken else None,
    )


def _signed(watched: Recorder, index: str, memory: Path | None) -> SignedStore | None:
    """The store in the state that its promoter signed; None where it has no root, or the index no promoter.

    Args:
        watched: what has the store.
        index: the index to be read.
        memory: an empty folder, for a bundle: what this machine has seen before is not left out of it.
    """
    from msgspec import structs

    from cairn.release.index import keys
    from cairn.release.trust import anchor
    from cairn.release.trust.metadata import key_of

    trusted = anchor.anchor(watched) if keys.is_gated(index) else None
    if trusted is None:
        return None
    from cairn.release.trust.client import SignedStore

    signed = SignedStore(watched, trusted)
    signed.read(keys.state_key(index))
    if memory is None:
        return signed
    for version in range(1, trusted.root.version + 1):
        watched.read(key_of("root", version))
    signed = SignedStore(watched, structs.replace(trusted, folder=memory))
    watched.objects[keys.state_key(index)] = signed.read(keys.state_key(index)).data
    return signed


def _trust(request: Verify, signed: SignedStore | None) -> Trust | None:
    """Return the trusted keys, or None if the user asked to trust none."""
    trust = signing.read_trust(request.trust, request.trust_tester)
    if trust is None and signed is not None and not request.allow_unsigned:
        return signed.anchor.root.trust()
    if request.allow_unsigned and trust:
        raise UsageError(
            "--allow-unsigned checks no signature, and --trust asks for one", tip="give one of them"
        )
    if not trust and not request.allow_unsigned:
        raise UsageError(
            "nothing says whose signature counts",
            tip="--trust with the releaser's public key, or --allow-unsigned to check digests alone",
        )
    return trust


def _source(request: Verify) -> tuple[Reader, str]:
    """Return the source that the wheels are checked against, and the index."""
    from cairn.release.index import keys
    from cairn.release.provenance import chain

    if request.bundle is not None:
        bundle = chain.open_bundle(request.bundle)
        return bundle, request.index or chain.index_of_bundle(bundle)
    if request.index_url is not None:
        base, index = chain.parse_index_url(request.index_url)
        if request.index not in (None, index):
            raise UsageError(f"{request.index_url} is {index}, not {request.index}", tip="leave --index out")
        return _open(base), index
    index = keys.checked_index(request.index or "release")
    if request.store is not None:
        return request.open_existing_store(), index
    bases = {place[0] for file in request.files if (place := chain.parse_file_url(file))}
    if len(bases) != 1:
        raise UsageError("nothing says where these wheels are from", tip="--index-url, --store or --bundle")
    return _open(bases.pop()), index


def _open(url: str) -> Reader:
    from cairn.release.provenance import chain
    from cairn.store.opening import open_existing

    return chain.WebReader(url) if url.startswith(_WEB) else open_existing(url)


def _place_of(url: str) -> tuple[str, str, str]:
    """The store's address, and the wheel's sha256 and name, in the address of a wheel."""
    from cairn.release.provenance import chain

    place = chain.parse_file_url(url)
    if place is None or Path(place[2]).name != place[2] or not place[2].endswith(".whl"):
        raise UsageError(
            f"{url} is not the address of a wheel on an index of Cairn's",
            tip="copy one from a page below simple/: https://…/files/…/torch-….whl#sha256=…",
        )
    return place


@contextlib.contextmanager
def _wheel(text: str, source: Reader, index: str) -> Iterator[tuple[Path, str]]:
    """Yield the wheel as a file, and the sha256 of its bytes; no more is fetched than the index has of it."""
    from cairn import files
    from cairn.release.index import keys
    from cairn.release.provenance import chain, evidence
    from cairn.store.opening import open_existing

    if "://" not in text:
        path = converters.file(text)
        yield path, files.sha256_of(path)
        return
    base, expected, name = _place_of(text)
    with contextlib.ExitStack() as stack:
        if base.startswith(_WEB):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-verify-"))
            path, offered = Path(folder, name), evidence.offer(source, index, name).file
            if offered is None:
                raise StoreError(f"{index} does not offer {name}", tip="do not install it")
            with path.open("wb") as out:
                chain.fetch(text, out=out, most=offered.size)
        else:
            path = stack.enter_context(open_existing(base).as_file(keys.file_key(expected, name)))
        sha256 = files.sha256_of(path)
        if sha256 != expected:
            raise StoreError(f"{text} gave bytes with sha256 {sha256}", tip="do not install it")
        yield path, sha256


def _text(report: Report) -> Iterator[Piece]:
    yield f"{report.file_name}, as {report.index} has it"
    for link in report.links:
        yield _MARKS[link.state], f"{link.name:10} {link.text}"
    for source in report.sources:
        hashtag = f" ({source.hashtag})" if source.hashtag != source.commit else ""
        yield f"    {source.name}: {source.commit} of {source.origin}{hashtag}"
    for warning in report.warnings:
        yield "bypassed", warning


def _plain(report: Report) -> dict[str, object]:
    return {
        "file": report.file_name,
        "sha256": report.sha256,
        "index": report.index,
        "good": not report.broken,
        "links": [
            {"name": link.name, "state": link.state, "text": link.text, "set": link.set_id}
            for link in report.links
        ],
        "sources": report.sources,
        "warnings": report.warnings,
    }


COMMANDS = {"verify": command(Verify, _verify)}
