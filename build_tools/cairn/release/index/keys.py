"""The layout of a store; the only module that spells keys.

    files/<sha256[:2]>/<sha256>/<file name>              written once; all indexes share them
    files/…/<file name>.metadata                         METADATA or PKG-INFO of the file (PEP 658)
    files/…/<file name>.<digest>.provenance              who built it of what (PEP 740)
    sets/<set id>/set.json, manifest.json                a sealed set, and what it was built from
    sets/<set id>/builder.json                           who built it of which commits and inputs;
                                                         `builder.dsse.json` is the signature, and
                                                         `set.dsse.json` that of the set's id
    sets/<set id>/simple/…                               an index of exactly that set
    sets/<set id>/records/<digest>.json                  test records; `<digest>.dsse.json` is the signature
    sets/<set id>/results/<digest>.xml                   the JUnit XML of a record
    sets/<set id>/results/<digest>.json                  the compatibility report of a record
    sets/<set id>/answers/<digest>.json                  what was said to failed records
    sets/<set id>/rebuilds/<digest>.dsse.json            who built it again, and whether it came out the same
    sets/<set id>/judgements/<digest>.json               what a gate found
    sets/<set id>/locks/…                                constraints.txt and pylock.toml
    recipes/<digest>.json                                the files of a stack, by which nights were frozen
    nights/<id>/…                                        what a night is to make, how its jobs ended, what
                                                         the shards of its suites found, and the lists of
                                                         tests that they read
    nights/_versions/<project>/<version>                 the sha256 of the only manifest with that version
    ledger/…                                             what is never forgotten: `release.ledger`
    metadata/…                                           who vouches for which state: `release.trust.metadata`
    <index>/state.json                                   the pointer to the current generation
    <index>/generations/<number>-<digest>.json           a whole state of the index, by digests of bins
    <index>/parts/<digest>.json                          a bin of names, a project, or what changed of one
    <index>/simple/…/index.html and index.json           pages, which can be made again from the generation
    <index>/index.html, status.html, targets.json, locks/, status/    for people, and for installers
    <index>/trends.json                                  what the last nights measured of its sets
    <channel>/nights.html, nights.json, nights.atom      how its last nights ended: page, data and feed
    index.html, choose.html                              for people: every index of the store

`<index>` is a channel (`release`), or a channel and a family (`release/gfx110X-all`). What has a digest in
its key, and all below `sets/`, is written once and never changes.
"""

from __future__ import annotations

import functools
import re
import urllib.parse

from cairn import targets
from cairn.errors import UsageError
from cairn.output import wording

UNTESTED = "untested"
"""The channel of sets that nobody tested on hardware, and that may not replace those that somebody did."""

STAGING = "staging"
"""The channel in which sets wait for their tests and the gate."""

DEV = "dev"
"""The channel of what developers try: no gate is before it, and commits that are not a line's stay there."""

CHANNELS = (STAGING, "release", DEV, "nightly", "prerelease", UNTESTED)
"""Every channel that there can be, so that a mistyped name never begins a new one."""

GATED = frozenset({"release", "prerelease", "nightly", UNTESTED})
"""Those that users install from: sets come into them through the gate alone."""

LEDGER_HEAD = "ledger/head.json"
"""Up to which entry the ledger can be looked up by project and by set."""

LANDING = "index.html"
"""Where people begin: every index of the store."""

CHOOSER = "choose.html"
"""Where people choose what to install."""

SET_LOCKS = ("constraints.txt", "pylock.toml", "requirements.txt")
"""What lies in `sets/<set id>/locks/`."""

NIGHTS = "nights/"
"""Where nights are kept, by id."""

CLAIMS = "_versions"
"""Beside the nights, in a folder that no id names: which manifest has which version."""

FOLDERS = frozenset(
    {"files", "sets", "recipes", "nights", "ledger", "metadata", LANDING, CHOOSER, ".locks", *CHANNELS}
)
"""What is in the folder of a store, also of one whose first change did not get to its end."""

# What a store consists of, and so all that may be served of the folder it is in. A name has no `/`, so that
# no key leaves its place.
_DIGEST = "[0-9a-f]{64}"
_PAGES = r"simple(/[a-z0-9-]+)?(/index\.(html|json))?"
_LOCKS = r"locks/[A-Za-z0-9_.+-]+\.(txt|toml)"
_STATUS = r"status/[A-Za-z0-9_.+-]+\.json"
_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
_FINDINGS = rf"judgements/{_DIGEST}(\.dsse)?\.json|results/{_DIGEST}\.(xml|json)"
_KINDS = {
    "file": rf"files/[0-9a-f]{{2}}/{_DIGEST}/[^/]+",
    "set": rf"sets/{_DIGEST}/((manifest|(set|builder)(\.dsse)?)\.json|{_LOCKS}|{_FINDINGS})",
    # Of a set that is gone they stay, so that it does not come back without them.
    "evidence": rf"sets/{_DIGEST}/(records|answers|rebuilds)/{_DIGEST}(\.dsse)?\.json",
    "night": r"nights/_versions/[a-z0-9-]+/[a-z0-9_.+!-]+"
    rf"|nights/{_NAME}/((night|manifest|steps/{_NAME}|lists/{_DIGEST})\.json"
    rf"|shards/{_NAME}/{_NAME}/((shard|signed)\.json|(outcomes|journal)\.jsonl|pytest\.xml)"
    rf"|built/{_NAME}/[0-9]+\.[0-9]+/.+)",
    "recipe": rf"recipes/{_DIGEST}\.json",
    "set page": rf"sets/{_DIGEST}/{_PAGES}",
    "ledger": rf"ledger/(head\.json|entries/[0-9]{{8}}\.json|sets/{_DIGEST}\.json"
    r"|names/([A-Za-z0-9-]+/)?[a-z0-9-]+\.json)",
    "metadata": r"metadata/([0-9]+\.)?[A-Za-z0-9.-]+\.json",
    "pointer": r"INDEX/state\.json",
    "generation": rf"INDEX/generations/[0-9]{{8}}-{_DIGEST}\.json",
    "part": rf"INDEX/parts/{_DIGEST}\.json",
    "page": rf"INDEX/{_PAGES}",
    "for people": rf"(?:index|choose)\.html|(?:{'|'.join(CHANNELS)})/nights\.(html|json|atom)"
    rf"|INDEX/((index|status)\.html|(targets|trends)\.json|{_LOCKS}|{_STATUS})",
}
_INDEX = rf"(?:{'|'.join(CHANNELS)})(?:/[A-Za-z0-9-]+)?"
_PLAIN = re.compile("[A-Za-z0-9_.+!/-]+")
_GENERATION = re.compile(rf"{_INDEX}/generations/([0-9]{{8}})-({_DIGEST})\.json")


def checked_index(name: str) -> str:
    """Return `name` if it is that of an index: a channel, or a channel and a family (`release/gfx110X-all`).

    Raises:
        UsageError: there is no such channel, or no such family.
    """
    channel, slash, family = name.partition("/")
    if channel not in CHANNELS:
        tip = wording.did_you_mean(channel, CHANNELS, what="the channels are")
        raise UsageError(f"{channel!r} is not a channel", tip=tip)
    families = (*targets.families(), *targets.known_targets()) if slash else ()
    if slash and family not in families:
        near = wording.nearest(family, families)
        tip = wording.did_you_mean(family, near or targets.index_families(), what="the families are")
        raise UsageError(f"{name!r} is not an index: there is no family {family!r}", tip=tip)
    return name


def is_gated(index: str) -> bool:
    """Whether only the gate lets sets into an index."""
    return index.partition("/")[0] in GATED


@functools.cache
def possible_indexes() -> tuple[str, ...]:
    """The name of every index that a store may have."""
    families = dict.fromkeys((*targets.families(), *targets.known_targets()))
    return (*CHANNELS, *(f"{channel}/{family}" for channel in CHANNELS for family in families))


def scope_of(index: str) -> str:
    """The scope in which a file name is unique: the family of an index, or empty for an index for all.

    The wheels of two families are called alike and hold code for different GPUs. So a name is the same file
    in `staging/gfx110X-all` and `release/gfx110X-all`, and perhaps another in `release/gfx94X-dcgpu`.
    """
    return index.partition("/")[2]


@functools.lru_cache(maxsize=1 << 16)  # an audit asks of each key again and again
def kind_of(key: str) -> str | None:
    """The kind of object under a key: `file`, `page` …; None for a key that is not one of ours."""
    return next((kind for kind, pattern in _patterns().items() if pattern.fullmatch(key)), None)


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {kind: re.compile(pattern.replace("INDEX", _INDEX)) for kind, pattern in _KINDS.items()}


def index_of(key: str) -> str | None:
    """The index that a key belongs to; None for keys that indexes share, and for a channel's own pages."""
    if kind_of(key) not in ("pointer", "generation", "part", "page"):
        return None
    channel, name, *more = key.split("/")
    return f"{channel}/{name}" if more and name not in ("generations", "parts", "simple") else channel


def is_own(key: str) -> bool:
    """Whether Cairn uses `key`; folders of pages count too."""
    return kind_of(key) is not None


def file_key(sha256: str, filename: str) -> str:
    """The key of a published file; it has the digest, so it never stands for other bytes."""
    return f"files/{sha256[:2]}/{sha256}/{filename}"


def sidecar_key(sha256: str, filename: str) -> str:
    """The key of a published file's metadata (PEP 658: the file's own address and `.metadata`)."""
    return f"{file_key(sha256, filename)}.metadata"


def provenance_key(sha256: str, filename: str, digest: str) -> str:
    """The key of a provenance object, by its digest: a file may have several."""
    return f"{file_key(sha256, filename)}.{digest}.provenance"


def state_key(index: str) -> str:
    """The key of the one mutable object, which decides what an index holds."""
    return f"{index}/state.json"


def generations_prefix(index: str) -> str:
    """The prefix of every generation of an index."""
    return f"{index}/generations/"


def generation_key(index: str, number: int, digest: str) -> str:
    """The key of a generation, by its number and the digest of its bytes."""
    return f"{generations_prefix(index)}{number:08}-{digest}.json"


def generation_of(key: str) -> tuple[int, str] | None:
    """The number and the digest in the key of a generation; None for other keys."""
    match = _GENERATION.fullmatch(key)
    return (int(match[1]), match[2]) if match else None


def part_key(index: str, digest: str) -> str:
    """The key of a bin or a project of a generation, by the digest of its bytes."""
    return f"{index}/parts/{digest}.json"


def locks_prefix(index: str) -> str:
    """The prefix of the locks of an index's last known good sets."""
    return f"{index}/locks/"


def status_prefix(index: str) -> str:
    """The prefix of the results of nights (`cairn.night/1`), which those who run the nights write."""
    return f"{index}/status/"


def recipe_key(digest: str) -> str:
    """The key of the files of a stack, by their digest."""
    return f"recipes/{digest}.json"


def night_key(night: str, name: str) -> str:
    """The key of an object of a night, such as its `night.json`."""
    return f"{NIGHTS}{night}/{name}"


def list_key(night: str, digest: str) -> str:
    """The key of a list of tests that a night froze, by its digest."""
    return night_key(night, f"lists/{digest}.json")


def claim_key(project: str, version: str) -> str:
    """The key under which a manifest claims a version of a project for itself."""
    return night_key(CLAIMS, f"{project}/{version}")


def status_key(index: str, name: str) -> str:
    """The key of the result of the last night of a line, family, Python and platform, named by `name`."""
    return f"{status_prefix(index)}{name}.json"


def trends_key(index: str) -> str:
    """The key of what the last nights measured of the sets of an index."""
    return f"{index}/trends.json"


def nights_key(channel: str, kind: str) -> str:
    """The key of the last nights of a channel: `html` is the page, `json` the data, `atom` the feed."""
    return f"{channel}/nights.{kind}"


def ledger_entry_key(number: int) -> str:
    """The key of an entry of the ledger, by its number."""
    return f"ledger/entries/{number:08}.json"


def ledger_names_key(scope: str, project: str) -> str:
    """The key of the ledger's names of a project in a family, or outside families if `scope` is empty."""
    return f"ledger/names/{scope}/{project}.json" if scope else f"ledger/names/{project}.json"


def ledger_set_key(set_id: str) -> str:
    """The key of the ledger's events of a set."""
    return f"ledger/sets/{set_id}.json"


def set_key(set_id: str, name: str) -> str:
    """The key of an object of a set, such as its `set.json` or `records/<digest>.json`."""
    return f"sets/{set_id}/{name}"


def simple_prefix(index: str) -> str:
    """The prefix of the simple pages of an index."""
    return f"{index}/simple/"


def set_simple_prefix(set_id: str) -> str:
    """The prefix of the simple pages that offer exactly one set."""
    return f"sets/{set_id}/simple/"


def index_url(base: str, index: str) -> str:
    """The `--index-url` for an index of a store that is served (or lies) at `base`."""
    return f"{base.rstrip('/')}/{simple_prefix(index)}"


def set_url(base: str, set_id: str) -> str:
    """The `--index-url` for exactly one set."""
    return f"{base.rstrip('/')}/{set_simple_prefix(set_id)}"


def relative_url(key: str, *, prefix: str) -> str:
    """The link to an object from a project's page below `prefix`.

    Every character that means something in a URL is encoded, first of all the `+` of a local version,
    which some servers read as a space.
    """
    # Relative, so that the same pages serve below any address; the page lies one folder below its prefix.
    up = "../" * (prefix.count("/") + 1)
    if _PLAIN.fullmatch(key):  # what nearly every name is made of; a page has thousands
        return up + key.replace("+", "%2B").replace("!", "%21")
    return up + "/".join(urllib.parse.quote(part, safe="") for part in key.split("/"))
