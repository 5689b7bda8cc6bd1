"""Whom a set of wheels breaks that another set does not: `cairn diff --consumer`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Warn
from cairn.errors import TestsFailedError, UsageError
from cairn.options import flag, repeated
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.stack import Consumer
    from cairn.wheels.consumers.breaks import Judgement


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(common.OptionalStack):
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
    from cairn.release.publish.compatibility import Platform
    from cairn.wheels.consumers import breaks, fetch

    old, new = _wheels(old_place), _wheels(new_place)
    here = Platform.here()
    place = Platform(python=breaks.python_of(new) or here.python, tag=here.tag)
    stack = request.load_stack()
    consumers = [
        *(stack.consumers if stack else ()),
        *(_consumer(text, request.index_url) for text in request.consumer),
    ]
    if not consumers:
        raise UsageError(
            "no consumer is named", tip="name one with --consumer, or a stack with [[consumers]] with --stack"
        )
    with tempfile.TemporaryDirectory(prefix="cairn-consumers-") as folder:
        paths: dict[str, Path] = {}
        with console.current().stage("looking for the wheels of consumers"):
            for consumer in consumers:
                found = fetch.wheels_of(consumer, Path(folder), python=place.python, platform=place.tag)
                paths |= {path.name: path for path in found}
        with console.current().stage(f"looking up what {len(paths)} wheels use"):
            judgement = breaks.judge(old, new, paths.values(), markers=place.markers())
    error = None
    if judgement.breaks:
        names = sorted({one.consumer for one in judgement.breaks})
        error = TestsFailedError(
            f"{len(judgement.breaks)} things that {wording.some(names)} had of {old_place} are not in "
            f"{new_place}",
            tip="mend the set, or tell those who look after the consumers before it is promoted",
        )
    return Answer(judgement, _text(judgement), error=error)


def _wheels(place: Path) -> Sequence[Path]:
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
        return Consumer(name=path.stem, wheels=(str(path / "*.whl") if path.is_dir() else text,))
    try:
        return Consumer(name=requirements.requirement(text).name, requirement=text, index_url=index_url)
    except ValueError as error:
        raise UsageError(
            str(error), tip="name a wheel, a folder, or a requirement such as vllm==0.11"
        ) from error


def _text(judgement: Judgement) -> Iterator[Piece]:
    for one in judgement.breaks:
        yield "failed", str(one)
    broken = {one.consumer for one in judgement.breaks}
    yield f"{len(judgement.consumers)} wheels of consumers looked at, {len(broken)} consumers break"
    for text in judgement.unread:
        yield Warn(f"not looked at: {text}")
