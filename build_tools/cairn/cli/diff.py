"""`cairn diff`: what changed between two wheels, sets, nights, manifests or reports, or whom it breaks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import TestsFailedError, UsageError
from cairn.options import argument, flag, option, repeated, switch
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.pipeline.difference import SetDifference
    from cairn.sources.manifest.changelog import Changelog
    from cairn.stack import Consumer
    from cairn.testing.compat.report import Change
    from cairn.wheels.consumers import Judgement
    from cairn.wheels.interface.difference import Difference
    from cairn.wheels.interface.sections import Section


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(common.OptionalStack, common.OptionalStoreOptions):
    """Who depends on a set of wheels."""

    consumers: bool = flag("say whom NEW breaks, of the consumers that the stack names")
    consumer: tuple[str, ...] = repeated(
        "who depends on them, besides those of the stack: a wheel, a folder of wheels, or a requirement that "
        "pip fetches",
        metavar="WHEEL|DIR|REQUIREMENT",
        convert=converters.nonempty,
    )
    index_url: str | None = common.index_url()


def look_up(request: ConsumerOptions, old_place: Path, new_place: Path) -> Answer:
    """Say which consumers the wheels of one place break that those of the other do not.

    What the old ones lack too is no break.
    """
    from cairn.release.consumers import fetched
    from cairn.release.publish.compatibility import Platform
    from cairn.wheels.consumers import judge, python_of

    old, new = _wheels_of(old_place), _wheels_of(new_place)
    here = Platform.here()
    place = Platform(python=python_of(new) or here.python, tag=here.tag)
    stack = request.load_stack()
    consumers = [
        *(stack.consumers if stack else ()),
        *(_consumer(text, request.index_url) for text in request.consumer),
    ]
    if not consumers:
        raise UsageError(
            "no consumer is named", tip="name one with --consumer, or a stack with [[consumers]] with --stack"
        )
    with console.current().stage("looking up what the wheels of consumers use"):
        store = request.open_existing_store() if request.store else None
        with fetched(consumers, place=place, store=store) as (wheels, unknown):
            judgement = judge(old, new, wheels, markers=place.markers(), unknown=unknown)
    error = None
    if judgement.breaks:
        names = sorted({breakage.consumer for breakage in judgement.breaks})
        error = TestsFailedError(
            f"{new_place} lacks {wording.count(judgement.breaks, 'thing')} that {wording.some(names)} had of "
            f"{old_place}",
            tip="mend the set, or tell those who look after the consumers before it is promoted",
        )
    elif judgement.unknown:
        name, reason = next(iter(judgement.unknown.items()))
        error = TestsFailedError(f"whether {name} breaks is not known: {reason}")
    return Answer(judgement, _judged(judgement), error=error)


def _wheels_of(place: Path) -> Sequence[Path]:
    wheels = sorted(place.glob("*.whl")) if place.is_dir() else [converters.file(str(place))]
    if not wheels:
        raise UsageError(f"{place} has no wheels", tip="name the folder that `cairn build` has written")
    return wheels


def _consumer(text: str, index_url: str | None) -> Consumer:
    """A consumer by what was given for it."""
    from cairn import requirements
    from cairn.stack import Consumer

    path = Path(text)
    if path.is_dir() or path.suffix == ".whl":
        if not path.exists():
            raise UsageError(f"there is no wheel {text} of a consumer", tip="correct --consumer")
        return Consumer(name=path.stem, wheels=(str(path / "*.whl") if path.is_dir() else text,))
    try:
        return Consumer(name=requirements.requirement(text).name, requirement=text, index_url=index_url)
    except ValueError as error:
        raise UsageError(
            str(error), tip="name a wheel, a folder, or a requirement such as vllm==0.11"
        ) from error


def _judged(judgement: Judgement) -> Iterator[Piece]:
    for breakage in judgement.breaks:
        yield "failed", str(breakage)
    broken = {breakage.consumer for breakage in judgement.breaks}
    yield f"{wording.count(judgement.consumers, 'wheel')} of consumers looked at, {len(broken)} broken"
    for text in judgement.unread:
        yield Warn(f"not looked at: {text}")
    for name, why in judgement.unknown.items():
        yield Warn(f"whether {name} breaks is not known: {why}")


Kind = Literal["wheel", "manifest", "set", "compat", "stored"]
_KINDS: tuple[Kind, ...] = ("set", "compat", "manifest")
_MOST = 40  # lines of one kind in the terminal
_HEAD = 4096  # bytes in which a JSON file of ours names its schema


@dataclass(frozen=True, kw_only=True)
class Diff(ConsumerOptions):
    """Options of `cairn diff`.

    Wheels are compared by what they offer and want: requirements, files, symbols and their versions,
    operators, public Python names, kernels and their registers. Nothing of them is run. Where a wheel lies at
    a URL or in an index, all are compared by metadata, RECORD and files alone, unless --binaries fetches it.
    From an index, the wheel for the Python and platform of the first wheel that is named by its file is
    taken. Each further WHEEL is compared with OLD, too. Sets are compared wheel by wheel, and by the
    manifests that they were built from. With --store, a set is the first digits of
    its id, and a night is a date: the last sets of that day or before.

    With --consumers or --consumer, what is told is whom NEW breaks of those who depend on OLD, which are
    folders of wheels then, or wheels. Nothing is installed: the symbols and libraries that consumers need,
    their requirements, and the targets of their device code are looked up in both.

        cairn diff yesterday/torch-….whl today/torch-….whl --html torch.html
    """

    old: str = argument(
        "OLD",
        "a wheel, its URL, INDEX#NAME==VERSION, a manifest.json, a compat.json, a set.json beside its "
        "wheels, a set's id, or a date",
    )
    new: str = argument("NEW", "the same, newer")
    more: tuple[str, ...] = argument("WHEEL", "more wheels to compare with OLD", nargs="*")
    index: str = common.index("staging")
    python: bool = switch("compare the public Python names of wheels too", default=True)
    commits: bool = switch("name the commits between, which are fetched from their origins", default=True)
    binaries: bool = common.binaries()
    html: Path | None = option("write a page for browsers too", convert=converters.new_file)


@dataclass(frozen=True, kw_only=True)
class Group:
    """What the page and the terminal show under one heading.

    Attributes:
        title: the heading.
        sections: the changes.
    """

    title: str
    sections: tuple[Section, ...]


def run(request: Diff) -> Answer:
    """Run the command."""
    texts = (request.old, request.new, *request.more)
    places = [converters.place_of_wheel(text) for text in texts]
    if request.consumers or request.consumer:
        if request.more or not all(isinstance(place, Path) for place in places):
            raise UsageError(
                "whom a set breaks is told of two folders or wheels of this machine",
                tip="fetch what lies elsewhere first",
            )
        return look_up(request, Path(request.old), Path(request.new))
    kinds = {_kind_of(place, request) if isinstance(place, Path) else "wheel" for place in places}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.old} is a {min(kinds)} and {request.new} is a {max(kinds)}"
            if "stored" not in kinds
            else f"there is no such file as {request.old} or {request.new}",
            tip="compare two wheels, two manifests, two sets, or two nights of a --store",
        )
    kind = kinds.pop()
    if request.more and kind != "wheel":
        raise UsageError("more than two can be compared only of wheels", tip="name OLD and NEW alone")
    if kind == "manifest":
        return _manifests(request)
    if kind == "compat":
        return _reports(request)
    return _wheels(request, places) if kind == "wheel" else _sets(request, stored=kind == "stored")


def _kind_of(path: Path, request: Diff) -> Kind:
    inside = [kind for kind in _KINDS if (path / f"{kind}.json").is_file()]
    if inside:  # a folder; a set has its manifest beside it
        return inside[0]
    if path.is_file():
        if path.suffix == ".whl":
            return "wheel"
        with path.open("rb") as file:
            head = file.read(_HEAD)
        for kind in _KINDS:
            if f'"cairn.{kind}/'.encode() in head:
                return kind
        if path.suffix == ".json" and b'"cairn.' not in head:
            return "manifest"  # its reader says what the file is instead, such as a manifest of TheRock's
        raise UsageError(
            f"{path} is neither a wheel nor a manifest.json, a set.json or a compat.json",
            tip="name two of a kind, or give --store and --index for sets and nights",
        )
    if request.store is None:
        raise UsageError(
            f"the folder {path} has no set.json, compat.json or manifest.json"
            if path.is_dir()
            else f"there is no file {path}",
            tip="name one of its wheels; with --consumer two folders of wheels are compared"
            if path.is_dir()
            else "for the sets of a store give --store and --index",
        )
    return "stored"


def _manifests(request: Diff) -> Answer:
    from cairn.sources.manifest import changelog, manifest

    before, after = manifest.read(Path(request.old)), manifest.read(Path(request.new))
    with console.current().stage("compare") as stage:
        changes = changelog.between(before, after, commits=request.commits, say=stage.update)
    if request.html:
        changelog.write_page(request.html, changes)
    return Answer(changes, changelog.lines(changes))


def _reports(request: Diff) -> Answer:
    from cairn.testing.compat import report

    difference = report.diff(report.read(Path(request.old)), report.read(Path(request.new)))
    text = [
        f"{name}: {before or '-'} -> {after or '-'}" for name, (before, after) in difference.tested.items()
    ]
    text += map(_compat_line, difference.changes)
    return Answer(difference, text or ["no difference"])


def _compat_line(change: Change) -> str:
    from cairn.testing.compat import report

    sides = [
        f"{measured.support} ({hardware})" if (hardware := report.seen(measured)) else measured.support
        for measured in (change.before, change.after)
        if measured is not None
    ]
    return f"{change.kind}: {change.table}/{change.name}: {' -> '.join(sides)}"


def _wheels(request: Diff, places: Sequence[Path | str]) -> Answer:
    from cairn.wheels import published
    from cairn.wheels.interface import difference
    from cairn.wheels.interface.read import read_archive, read_listing

    like = next(filter(None, map(published.file_name, places)), None)
    by_listing = not request.binaries and not all(isinstance(place, Path) for place in places)
    with console.current().stage("compare"):
        interfaces = []
        for place in places:
            wheel = signing.signed_wheel(place, like)
            with published.reading(wheel, whole=request.binaries) as archive:
                interfaces.append(
                    read_listing(archive) if by_listing else read_archive(archive, python=request.python)
                )
        changes = [difference.between(interfaces[0], interface) for interface in interfaces[1:]]
    groups = [_group(change) for change in changes]
    _write_page(request, changes[0].before, ", ".join(change.after for change in changes), groups, [])
    if len(groups) == 1:
        return Answer(changes[0], _text(groups[0].sections))
    return Answer(changes, itertools.chain.from_iterable(map(_titled, groups)))


def _sets(request: Diff, *, stored: bool) -> Answer:
    from cairn.pipeline import difference

    with console.current().stage("compare") as stage:
        differences: Sequence[SetDifference]
        if stored:
            store = request.open_existing_store()
            differences = list(
                difference.in_store(
                    store,
                    request.index,
                    request.old,
                    request.new,
                    python=request.python,
                    commits=request.commits,
                    say=stage.update,
                )
            )
        else:
            old, new = (
                path / "set.json" if path.is_dir() else path for path in map(Path, (request.old, request.new))
            )
            differences = [
                difference.of_files(
                    old, new, python=request.python, commits=request.commits, say=stage.update
                )
            ]
    groups = [group for pair in differences for group in _groups_of_set(pair)]
    changes = {pair.changes.after: pair.changes for pair in differences if pair.changes}
    _write_page(request, request.old, request.new, groups, list(changes.values()))
    return Answer({"sets": differences}, _set_text(differences))


def _group(wheel: Difference) -> Group:
    from cairn.wheels.interface.sections import sections

    return Group(title=f"{wheel.before} → {wheel.after}", sections=sections(wheel))


def _groups_of_set(change: SetDifference) -> Iterator[Group]:
    from cairn.wheels.interface.sections import Line, Section, signed

    made = (
        signed("Distributions", "distribution", change.distributions),
        signed("Installed with them", "installs", change.closure),
        Section(
            title="Same bytes", kind="same", lines=tuple(Line(sign="", text=name) for name in change.same)
        ),
    )
    yield Group(
        title=f"{change.title}: {change.before} → {change.after}",
        sections=tuple(section for section in made if section.lines),
    )
    yield from map(_group, change.wheels)


def _set_text(differences: Sequence[SetDifference]) -> Iterator[Piece]:
    from cairn.sources.manifest import changelog

    told: set[str] = set()
    for difference in differences:
        for group in _groups_of_set(difference):
            yield from _titled(group)
        if difference.changes and difference.changes.after not in told:
            told.add(difference.changes.after)
            yield from changelog.lines(difference.changes)
    if not differences:
        yield "no difference: the same sets"


def _titled(group: Group) -> Iterator[str]:
    yield group.title
    yield from (f"  {line}" for line in _text(group.sections))


def _text(sections: Sequence[Section]) -> list[str]:
    """The lines for a terminal, of each kind no more than somebody reads; never none."""
    if not sections:
        return ["no difference"]
    read = any(section.kind != "not read" for section in sections)
    lines = [] if read else ["no difference in what was read"]
    for section in sections:
        kind = f"{section.kind} " if section.kind else ""
        shown: dict[str, int] = {}
        for line in section.lines:
            shown[line.sign] = shown.get(line.sign, 0) + 1
            if shown[line.sign] <= _MOST:
                mark = f"{line.sign} " if line.sign else ""
                lines.append(f"{mark}{kind}{line.text}".strip())
        more = sum(max(count - _MOST, 0) for count in shown.values())
        if more:
            lines.append(f"  and {more} more of {section.title}: --json, or --html")
    return lines


def _write_page(
    request: Diff, old: str, new: str, groups: Sequence[Group], changes: Sequence[Changelog]
) -> None:
    if request.html is None:
        return
    from cairn import files, templates
    from cairn.output import safe_text
    from cairn.sources.manifest import changelog

    page = templates.page(
        "difference", old=old, new=new, groups=groups, changes=changes, lines_of=changelog.lines
    )
    files.write_text(request.html, safe_text.mask(page))


COMMANDS = {"diff": command(Diff, run)}
