"""Whom a set of wheels breaks that another set does not: `cairn diff --consumer`."""

from __future__ import annotations

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
    from cairn.release.consumers import judge
    from cairn.release.publish.compatibility import Platform
    from cairn.wheels.consumers import breaks

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
    with console.current().stage("looking up what the wheels of consumers use"):
        store = request.open_existing_store() if request.store else None
        judgement = judge(consumers, old, new, place=place, store=store)
    error = None
    if judgement.breaks:
        names = sorted({one.consumer for one in judgement.breaks})
        error = TestsFailedError(
            f"{new_place} lacks {wording.count(judgement.breaks, 'thing')} that {wording.some(names)} had of "
            f"{old_place}",
            tip="mend the set, or tell those who look after the consumers before it is promoted",
        )
    elif judgement.unknown:
        name, reason = next(iter(judgement.unknown.items()))
        error = TestsFailedError(f"whether {name} breaks is not known: {reason}")
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
        if not path.exists():
            raise UsageError(f"there is no wheel {text} of a consumer", tip="correct --consumer")
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
    yield f"{wording.count(judgement.consumers, 'wheel')} of consumers looked at, {len(broken)} broken"
    for text in judgement.unread:
        yield Warn(f"not looked at: {text}")
    for name, why in judgement.unknown.items():
        yield Warn(f"whether {name} breaks is not known: {why}")
