"""The status page: for each line, the last good set, its age, and the last failure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cairn import targets as gpu
from cairn import templates
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet, comparable
from cairn.release.pages.targets_file import relative
from cairn.release.pages.trends import Drawing, drawings, leg_of
from cairn.release.pages.view import IndexView, Night
from cairn.wheels.metadata.tag_words import platform_words


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one line, family, Python and platform of an index.

    Attributes:
        index: whose.
        line, family, python, platform: which.
        good: the last set of it that was not yanked, or None.
        night: how its last run ended; None where none was recorded.
        drawings: what its nights measured.
    """

    index: str
    line: str
    family: str
    python: str
    platform: str
    good: IndexSet | None
    night: Night | None
    drawings: tuple[Drawing, ...] = ()

    @property
    def leg(self) -> str:
        """Its name in `trends.json`."""
        return leg_of(self.line, self.family, self.python, self.platform)

    @property
    def failed(self) -> bool:
        """Whether its last run failed, and was not expected to."""
        return self.night is not None and self.night.is_bad

    @property
    def is_elsewhere(self) -> bool:
        """Whether its good sets, of which this index has none, are in `untested`, or stay in staging."""
        return self.good is None and self.night is not None and self.night.last_good is not None

    @property
    def words(self) -> str:
        """The words that a search finds the row by."""
        night = self.night
        outcome = "no recorded run" if night is None else f"{night.outcome} {night.stage or ''}"
        of = (self.line, self.family, self.python, f"python{self.python}", self.platform, outcome, self.index)
        return " ".join(of)


def page(views: Sequence[IndexView], *, folder: str) -> bytes:
    """Render the status page of a channel and its families, or of one index; `folder` is where it lies."""
    shown = rows(views)
    lines = dict.fromkeys(row.line for row in shown)
    return templates.page(
        "status",
        folder=folder,
        rows=shown,
        # Each with the name of its section, which a link can lead to.
        lines={line: "line-" + "".join(c if c.isalnum() else "-" for c in line) for line in lines},
        failed=sum(row.failed for row in shown),
        never=sum(row.good is None and not row.is_elsewhere for row in shown),
        damaged=[view.name for view in views if view.damaged],
        unknown=sum(row.night is None for row in shown),
        install=relative(f"{folder}/index.html", folder),
        nights=relative(keys.nights_key(folder.partition("/")[0], "html"), folder),
        platform_words=platform_words,
    ).encode()


def rows(views: Sequence[IndexView]) -> tuple[Row, ...]:
    """A row for each thing that these indexes have or had a run of: newest line first, then by family."""
    by_key: dict[tuple[str, str, str, str, str], Row] = {}
    for view in views:
        nights = {
            (n.line, n.family, n.python, n.platform): n
            for n in sorted(view.nights, key=lambda n: (n.finished, n.started))
        }
        goods: dict[tuple[str, str, str, str], IndexSet] = {}
        for wheel_set in sorted(view.live, key=lambda s: s.added):
            goods[wheel_set.line, wheel_set.family, wheel_set.python, wheel_set.platform] = wheel_set
        for key in goods.keys() | nights.keys():
            line, family, python, platform = key
            by_key[view.name, *key] = Row(
                index=view.name,
                line=line,
                family=family,
                python=python,
                platform=platform,
                good=goods.get(key),
                night=nights.get(key),
                drawings=tuple(drawings(view.trends.legs.get(leg_of(*key), ()))) if view.trends else (),
            )
    ordered = sorted(
        by_key.values(),
        key=lambda row: (_family_order(row.family), comparable(row.python), row.platform, row.index),
    )
    return tuple(sorted(ordered, key=lambda row: _line_order(row.line), reverse=True))


def _family_order(family: str) -> tuple[object, ...]:
    members = gpu.families().get(family, (family,))
    return (*gpu.sort_key(members[0]), family)


def _line_order(line: str) -> tuple[bool, object, str]:
    """A sort key: `nightly` and the like above all releases, then the newest release first."""
    version = line.rpartition("/")[2]
    is_word = not version[:1].isdigit()
    return is_word, comparable("0" if is_word else version), line
