"""The page that says how the builds are: line by line, the last good set, its age, and the last failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn import targets as gpu
from cairn.output.markup import Markup, link, tag
from cairn.release.pages import parts
from cairn.release.pages.targets_file import relative
from cairn.release.pages.view import IndexView, Night, SetView, parsed
from cairn.wheels.metadata.tag_words import platform_words


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line, family, Python and platform of an index.

    Attributes:
        index: whose.
        line, family, python, platform: which.
        good: the last set of it that was not yanked, or None.
        night: how its last run ended; None where none was recorded.
    """

    index: str
    line: str
    family: str
    python: str
    platform: str
    good: SetView | None
    night: Night | None

    @property
    def failed(self) -> bool:
        """Whether its last run gave nothing."""
        return self.night is not None and self.night.outcome != "good"


def page(views: Sequence[IndexView], *, folder: str) -> bytes:
    """The status page of a channel and its families, or of one index; `folder` is where it lies."""
    found = rows(views)
    failed = sum(row.failed for row in found)
    never = sum(row.good is None for row in found)
    unknown = sum(row.night is None for row in found)
    said: list[str] = [f"{len(found)} kinds of wheels. "]
    if failed:
        said.append(parts.badge(f"{failed} failed in the last run", "bad"))
    elif found and not unknown:
        said.append(parts.badge("every last run was good", "good"))
    if unknown:
        said += [" ", parts.badge(f"{unknown} without a recorded run", "plain")]
    if never:
        said += [" ", parts.badge(f"{never} without a good set", "bad")]
    lines = dict.fromkeys(row.line for row in found)
    return parts.page(
        f"Status of {folder}",
        tag("header", parts.MARK, tag("div", tag("h1", f"Status of {folder}"), tag("p", *said))),
        tag(
            "nav",
            tag("ul", tag("li", tag("a", "Install", href=relative(f"{folder}/index.html", folder)))),
            aria_label="Pages",
        ),
        parts.search("Line, family, Python or outcome", "release/2.9, gfx110X-all, failed …"),
        *(_section(line, [row for row in found if row.line == line]) for line in lines),
        *([] if found else [tag("p", "No set is published here yet, and no run was recorded.")]),
        tag(
            "footer",
            "A good set is one that this index offers. Runs are shown where whoever ran them recorded them. "
            "This page loads nothing from anywhere else.",
        ),
    )


def rows(views: Sequence[IndexView]) -> tuple[Row, ...]:
    """Everything that these indexes have or had a run of: newest line first, then by family and Python."""
    found: dict[tuple[str, str, str, str, str], Row] = {}
    for view in views:
        nights = {(n.line, n.family, n.python, n.platform): n for n in sorted(view.nights, key=_finished)}
        goods: dict[tuple[str, str, str, str], SetView] = {}
        for one in sorted(view.live, key=lambda s: s.added):
            goods[one.line, one.family, one.python, one.platform] = one
        for key in goods.keys() | nights.keys():
            line, family, python, platform = key
            found[view.name, *key] = Row(
                index=view.name,
                line=line,
                family=family,
                python=python,
                platform=platform,
                good=goods.get(key),
                night=nights.get(key),
            )
    ordered = sorted(
        found.values(),
        key=lambda row: (_family_order(row.family), parsed(row.python), row.platform, row.index),
    )
    return tuple(sorted(ordered, key=lambda row: _line_order(row.line), reverse=True))


def _section(line: str, found: Sequence[Row]) -> Markup:
    cells = [_cells(row) for row in found]
    heads = ("family", "Python", "platform", "last good set", "last run", "index")
    body = tag("div", parts.table(heads, cells, words=[_words(row) for row in found]), class_="card")
    name = "line-" + "".join(c if c.isalnum() else "-" for c in line)
    return parts.section(name, line, body, searched=True)


def _cells(row: Row) -> tuple[str, ...]:
    good: str = parts.badge("none yet", "bad")
    if row.good is not None:
        version = f"{row.good.lead} {row.good.projects.get(row.good.lead, '')}"
        mark = parts.badge("untested", "plain") if row.good.untested else ""
        late = parts.badge("a test has failed since", "bad") if row.good.failed else ""
        weak = parts.badge("weak policy", "plain") if row.good.weakened else ""
        why = [part for text in row.good.weakened for part in (tag("br"), text)]
        good = tag("span", version, tag("br"), parts.when(row.good.added), " ", mark, late, weak, *why)
    return (
        tag("code", row.family),
        row.python,
        platform_words(row.platform),
        good,
        tag("span", *_night(row)),
        row.index,
    )


def _night(row: Row) -> Iterator[str]:
    night = row.night
    if night is None:
        yield parts.badge("no recorded run", "plain")
        return
    if night.outcome == "good":
        yield parts.badge("good", "good")
    else:
        word = night.outcome + (f" in {night.stage}" if night.stage else "")
        yield parts.badge(word, "bad" if night.outcome == "failed" else "plain")
    yield " "
    yield parts.when(night.finished)
    if night.reason:
        yield tag("br")
        yield night.reason
    if night.log:
        yield " "
        yield link(night.log, "log")
    if night.outcome != "good" and night.last_good is not None:
        yield tag("br")
        yield "last good night: "
        yield parts.when(night.last_good)


def _words(row: Row) -> str:
    outcome = "no recorded run" if row.night is None else f"{row.night.outcome} {row.night.stage or ''}"
    return f"{row.line} {row.family} {row.python} python{row.python} {row.platform} {outcome} {row.index}"


def _finished(night: Night) -> tuple[str, str]:
    return night.finished, night.started


def _family_order(family: str) -> tuple[object, ...]:
    members = gpu.families().get(family, (family,))
    return (*gpu.sort_key(members[0]), family)


def _line_order(line: str) -> tuple[bool, object, str]:
    """`nightly` and the like above all releases, then the newest release first."""
    version = line.rpartition("/")[2]
    named = not version[:1].isdigit()
    return named, parsed("0" if named else version), line
