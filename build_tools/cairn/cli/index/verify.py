"""`cairn index verify`: a wheel, link by link, from its bytes to the commits it was built from."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.index import upkeep
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import StoreError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.provenance.chain import Report, State
    from cairn.release.provenance.reader import Reader
    from cairn.release.provenance.trust import Trust

_WEB = ("http://", "https://")
_MARKS: dict[State, console.Mark] = {"good": "done", "broken": "failed", "unsigned": "bypassed"}


def add_to(commands: Subparsers) -> None:
    """Add the command; without files it audits the index."""
    parser = add_command(
        commands,
        "verify",
        _verify,
        about="check wheels against what was signed, tested and built: from their bytes to the commits",
        more="Each link is said to be good, or named as broken. With --bundle nothing is read from the "
        "network. Without a wheel, the whole index of a store is compared with its state, as "
        "`audit --hashes` does.",
        example="cairn index verify torch-2.9.0-cp311-cp311-linux_x86_64.whl --bundle torch.zip "
        "--trust cairn-sign.pub",
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE|URL", help="a wheel, or the address of one on an index of Cairn's"
    )
    place = parser.add_mutually_exclusive_group()
    arguments.add_store(place)
    place.add_argument(
        "--index-url", type=converters.nonempty, metavar="URL", help="the only package index to use"
    )
    place.add_argument(
        "--bundle",
        type=converters.file_or_folder,
        metavar="FILE|DIR",
        help="what --save-bundle wrote, in place of an index",
    )
    arguments.add_endpoint_url(parser)
    arguments.add_index(parser, default="release", told=True)
    signing.add_trust(parser, what="whose signature must be on each wheel")
    arguments.add_repeated(
        parser,
        "--trust-tester",
        "FILE",
        "public key of a machine that tests, for its test records alone",
        kind=converters.file,
    )
    parser.add_argument(
        "--allow-unsigned",
        action="store_true",
        help="check digests alone, and say so: nobody vouches for them",
    )
    parser.add_argument(
        "--save-bundle",
        type=converters.new_file,
        metavar="FILE",
        help="write all that was read into a ZIP, to check again without a network",
    )
    arguments.add_json(parser)


def _verify(options: argparse.Namespace) -> int:
    from cairn.release.provenance import chain, reader

    if not options.files:
        return _audit(options)
    trust = _trust(options)
    source, index = _source(options)
    watched = reader.Recorder(source)
    reports = []
    for file in options.files:
        with _wheel(file) as (path, sha256):
            report = chain.check(watched, index, file_name=path.name, sha256=sha256, trust=trust, path=path)
        reports.append(report)
        if not options.json:
            _show(report)
    if options.json:
        console.current().json([_plain(report) for report in reports])
    if broken := [report.file_name for report in reports if report.broken]:
        raise StoreError(f"{', '.join(broken)}: not what {index} vouches for", tip="do not install it")
    if options.save_bundle:
        reader.save_bundle(options.save_bundle, watched.objects)
    return 0


def _trust(options: argparse.Namespace) -> Trust | None:
    """Whose signatures count; None for nobody's, where the user has said so."""
    trust = signing.trust(options, testers=options.trust_tester)
    if options.allow_unsigned and trust:
        raise UsageError(
            "--allow-unsigned checks no signature, and --trust asks for one", tip="give one of them"
        )
    if not trust and not options.allow_unsigned:
        raise UsageError(
            "nothing says whose signature counts",
            tip="--trust with the releaser's public key, or --allow-unsigned to check digests alone",
        )
    return trust or None


def _audit(options: argparse.Namespace) -> int:
    if options.store is None:
        raise UsageError("nothing to verify", tip="name wheels, or give --store to compare a whole index")
    options.index, options.hashes = options.index or "release", True
    return upkeep.audit(options)


def _source(options: argparse.Namespace) -> tuple[Reader, str]:
    """Where the wheels are checked, and in which index."""
    from cairn.release.index import keys
    from cairn.release.provenance import reader

    if options.bundle is not None:
        bundle = reader.open_bundle(options.bundle)
        return bundle, options.index or reader.index_of_bundle(bundle)
    if options.index_url is not None:
        base, index = reader.parse_index_url(options.index_url)
        if options.index not in (None, index):
            raise UsageError(f"{options.index_url} is {index}, not {options.index}", tip="leave --index out")
        return _open(base), index
    index = keys.checked_index(options.index or "release")
    if options.store is not None:
        return arguments.open_existing_store(options), index
    bases = {found[0] for file in options.files if (found := reader.parse_file_url(file))}
    if len(bases) != 1:
        raise UsageError("nothing says where these wheels are from", tip="--index-url, --store or --bundle")
    return _open(bases.pop()), index


def _open(url: str) -> Reader:
    from cairn.release.provenance import reader
    from cairn.store.opening import open_existing

    return reader.WebReader(url) if url.startswith(_WEB) else open_existing(url)


@contextlib.contextmanager
def _wheel(text: str) -> Iterator[tuple[Path, str]]:
    """Yield the wheel as a file, and the sha256 of its bytes."""
    from cairn import files
    from cairn.release.index import keys
    from cairn.release.provenance import reader
    from cairn.store.opening import open_existing

    if "://" not in text:
        try:
            path = converters.file(text)
        except argparse.ArgumentTypeError as error:
            raise UsageError(str(error)) from error
        yield path, files.sha256_of(path)
        return
    found = reader.parse_file_url(text)
    if found is None or Path(found[2]).name != found[2] or not found[2].endswith(".whl"):
        raise UsageError(f"{text} is not the address of a wheel on an index of Cairn's")
    base, expected, name = found
    with contextlib.ExitStack() as stack:
        if base.startswith(_WEB):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-verify-"))
            path = Path(folder, name)
            reader.fetch(text, to=path)
        else:
            path = stack.enter_context(open_existing(base).as_file(keys.file_key(expected, name)))
        sha256 = files.sha256_of(path)
        if sha256 != expected:
            raise StoreError(f"{text} gave bytes with sha256 {sha256}", tip="do not install it")
        yield path, sha256


def _show(report: Report) -> None:
    screen = console.current()
    screen.out(f"{report.file_name}, as {report.index} has it")
    for link in report.links:
        screen.item(_MARKS[link.state], f"{link.name:10} {link.text}")
    for source in report.sources:
        asked = f" ({source.hashtag})" if source.hashtag != source.commit else ""
        screen.out(f"    {source.name}: {source.commit} of {source.origin}{asked}")
    for warning in report.warnings:
        screen.item("bypassed", warning)


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
        "sources": [vars(source) for source in report.sources],
        "warnings": list(report.warnings),
    }
