"""The landing page: what it says to somebody with a GPU, to the letter, and what no value can do to it."""

import re
from collections.abc import Callable

import msgspec
import pytest

from cairn.release.index.generation import LogEntry
from cairn.release.pages import landing, status
from cairn.release.pages.view import IndexView, Night
from helpers.html import Element, parse
from helpers.pages import NO_GPU, PLATFORM, PYTHON, channel, family, one_set

VIEWS = (channel(), family())
NAMES = "torch torchvision torchaudio"
EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&lt;\u202eevil\n"


def page(folder: str = "release", views: tuple[IndexView, ...] = VIEWS) -> Element:
    return parse(landing.page(views, folder=folder))


def card_of(root: Element, target: str) -> Element:
    """The box of a target."""
    (found,) = (card for card in root.all("article") if any(card.all("li", id=target)))
    return found


def lines_of(card: Element) -> list[str]:
    return [line.text for line in card.all("pre")]


def both(index: str, words: str) -> list[str]:
    url = f"URL/{index}/simple/"
    return [f"pip install --index-url {url} {words}", f"uv pip install --index-url {url} {words}"]


def texts(card: Element, target: str) -> list[str]:
    """What is said of a target, cell by cell."""
    return [child.text for child in card.one("li", id=target).children if isinstance(child, Element)]


def test_a_box_says_what_it_is_for_and_how_to_install() -> None:
    root = page()
    card = card_of(root, "cpu")
    assert card.one("h3").text == "No GPU release"
    assert texts(card, "cpu") == ["cpu", "any machine", "✓ tested"]
    assert lines_of(card) == both("release", "torch==2.9.0+cpu torchvision==0.24.0+cpu torchaudio==2.9.0+cpu")
    card = card_of(root, "gfx1100")
    assert card.one("h3").text == "gfx110X-all release/gfx110X-all"
    products = "RX 7900 XTX, RX 7900 XT, RX 7900 GRE, PRO W7800, PRO W7900"
    assert texts(card, "gfx1100") == ["gfx1100", products, "✓ tested"]
    assert lines_of(card) == both("release/gfx110X-all", NAMES)


def test_two_different_gpus() -> None:
    root = page()
    # The newest set for gfx942 is not for gfx1201, so that each has a box; the older one is for both.
    assert lines_of(card_of(root, "gfx942"))[:2] == both("release", NAMES)
    pinned = "torch==2.9.0+rocm7.10.0 torchvision==0.24.0+rocm7.10.0 torchaudio==2.9.0+rocm7.10.0"
    assert lines_of(card_of(root, "gfx1201")) == both("release", pinned)
    older = card_of(root, "gfx942").all("details")
    assert next(older).one("summary").text == "Other lines: release/2.9"
    assert lines_of(card_of(root, "gfx942"))[2:] == both("release", pinned)
    assert (
        "Two different GPUs: take a box that lists both; where none does, make an environment for each, and "
        "hide the other GPU with ROCR_VISIBLE_DEVICES."
    ) in [p.text for p in root.all("p")]


def test_an_unsupported_gpu() -> None:
    root = page()
    others = next(section for section in root.all("section") if section.one("h2").text == "Not served")
    old = "R9 Nano, R9 Fury, R9 Fury X, RX 460, RX 470, RX 480"
    assert texts(others, "gfx803") == ["gfx803", old, "✗ not built"]
    assert texts(others, "gfx1036") == ["gfx1036", "Raphael iGPU", "✗ nothing yet"]
    assert not any(any(card.all("li", id="gfx803")) for card in root.all("article"))


def test_a_product_whose_target_was_not_tested() -> None:
    root = page()
    found = [li for li in root.all("li") if "7800 xt" in (li.attributes.get("data-words") or "").lower()]
    assert [li.attributes["id"] for li in found] == ["gfx1101"]
    card = card_of(root, "gfx1101")
    assert texts(card, "gfx1101") == ["gfx1101", "RX 7800 XT, RX 7700, RX 7700 XT, PRO W7700", "! untested"]
    assert [note.text for note in card.all("p", class_="note")] == [f"! {NO_GPU}"]


def test_what_people_search_for_is_among_the_words() -> None:
    words = [element.attributes.get("data-words") or "" for element in page().all()]
    for asked in ("RX 7900 XTX", "gfx1100", "MI300", "gfx110X-all", "cpu"):
        assert any(asked in one for one in words), asked


def test_an_older_line_has_the_note_of_its_own_sets() -> None:
    older = one_set(
        6, "2.8.0+rocm7.9.0", ("gfx1100",), line="release/2.8", family="gfx110X-all", untested="no GPU"
    )
    view = msgspec.structs.replace(family(), sets=(*family().sets, older))
    card = card_of(page(views=(channel(), view)), "gfx1101")
    assert [note.text for note in card.all("p", class_="note")] == [f"! {NO_GPU}"]
    card = card_of(page(views=(channel(), view)), "gfx1100")
    (folded,) = (d for d in card.all("details") if d.one("summary").text == "Other lines: release/2.8")
    assert [note.text for note in folded.all("p", class_="note")] == ["! no GPU"]
    assert texts(card, "gfx1100")[-1] == "✓ tested"  # of the newest line


def test_facts_of_a_set() -> None:
    root = page()
    facts = next(card_of(root, "gfx1100").all("p", class_="facts")).text
    words = "Linux x86-64" if PLATFORM == "linux_x86_64" else ""
    assert facts.startswith(f"torch 2.9.0+rocm7.10.0 of release/2.9 · Python {PYTHON} · {words}")
    assert facts.endswith("2026-11-20 01:02 UTC")
    sets = [[cell.text for cell in row.all("td")] for row in card_of(root, "gfx1100").one("tbody").all("tr")]
    assert sets[0][0] == "050505050505"
    assert sets[0][1].startswith("torch 2.9.0+rocm7.10.0, torchaudio")
    assert sets[0][4] == "pip and uv"
    links = [link.attributes["href"] for link in card_of(root, "gfx1100").one("tbody").all("a")]
    locks = [f"locks/{name}" for name in ("constraints.txt", "pylock.toml", "requirements.txt")]
    assert links == [f"../sets/{'05' * 32}/{end}" for end in ("simple/index.html", *locks)]


def test_changes_newest_first_and_yanked_sets_with_their_reason() -> None:
    root = page()
    changes = root.one("section", aria_labelledby="changes").one("tbody")
    found = [[cell.text for cell in row.all("td")] for row in changes.all("tr")]
    assert found == [
        ["2026-11-21 04:05 UTC", "release", "12", "promote", "ann", "torch 2.10 is out"],
        ["2026-11-20 12:00 UTC", "release", "11", "yank", "bob", "wrong results of matmul"],
        ["2026-11-20 01:02 UTC", "release/gfx110X-all", "3", "promote", "ann", "first"],
        ["2026-11-20 01:02 UTC", "release", "10", "promote", "ann", ""],
    ]
    (row,) = root.one("section", aria_labelledby="yanked").one("tbody").all("tr")
    assert [cell.text for cell in row.all("td")][1] == "torch 2.8.0+rocm7.9.0"
    assert [cell.text for cell in row.all("td")][-1] == "wrong results of matmul"


@pytest.mark.parametrize(
    ("folder", "up", "url"),
    [
        ("", "", "release/gfx110X-all/simple/"),
        ("release", "../", "gfx110X-all/simple/"),
        ("release/gfx110X-all", "../../", "simple/"),
    ],
)
def test_links_lead_where_they_should_from_every_folder(folder: str, up: str, url: str) -> None:
    views = VIEWS if folder != "release/gfx110X-all" else VIEWS[1:]
    root = page(folder, views)
    assert lines_of(card_of(root, "gfx1100")) == both("release/gfx110X-all", NAMES)
    urls = {
        span.attributes["data-url"]
        for span in card_of(root, "gfx1100").all("span")
        if "data-url" in span.attributes
    }
    assert urls == {url}
    assert f"{up}sets/{'05' * 32}/simple/index.html" in {a.attributes["href"] for a in root.all("a")}
    status_page = "release/status.html" if not folder else "status.html"
    assert status_page in {a.attributes["href"] for a in root.all("a")}


def test_the_root_shows_the_best_channel_and_leads_to_the_others() -> None:
    root = page("", (*VIEWS, channel("staging"), channel("nightly")))
    assert root.one("header").one("b").text == "release"
    links = {a.text: a.attributes["href"] for a in root.one("nav").all("a")}
    assert links["Channel staging"] == "staging/index.html"
    assert links["Channel nightly"] == "nightly/index.html"
    assert "Channel release" not in links
    # The same page where only what is not for everyone is published.
    assert page("", (channel("staging"),)).one("header").one("b").text == "staging"
    assert page("", ()).one("header").one("b").text == "nothing is published here yet"


def test_the_root_leads_to_the_status_page_of_every_channel_and_index() -> None:
    """Also of one that only a failed run is known of, and of a channel of which only families have sets."""
    failed = IndexView(name="nightly/gfx120X-all", generation=0, when="", sets=())
    root = page("", (*VIEWS, channel("staging"), failed))
    links = {a.attributes["href"] for a in root.one("section", aria_labelledby="indexes").all("a")}
    names = ("release", "release/gfx110X-all", "staging", "nightly", "nightly/gfx120X-all")
    assert {f"{name}/{leaf}" for name in names for leaf in ("status.html", "index.html")} <= links
    assert "release/simple/index.html" in links
    assert not [link for link in links if link.startswith("nightly/simple")]
    # What has sets is shown first, though a channel that is better has a run.
    only = page("", (msgspec.structs.replace(failed, name="release/gfx120X-all"), channel("staging")))
    assert only.one("header").one("b").text == "staging"


def evil_view() -> IndexView:
    """Every text of every value is an attack."""
    one = one_set(
        9, "2.9.0", ("gfx942", EVIL), family=EVIL, line=EVIL, platform=EVIL, python=EVIL, added=EVIL,
        untested=EVIL, untested_targets=(EVIL, "gfx942"),
    )  # fmt: skip
    one = msgspec.structs.replace(
        one, set_id=EVIL, projects={EVIL: EVIL, "torch": EVIL}, installed_with=(EVIL,)
    )
    night = Night(
        line=EVIL, family=EVIL, python=EVIL, platform=EVIL, started=EVIL, finished=EVIL, outcome="failed",
        stage=EVIL, reason=EVIL, log="javascript:alert(1)",
    )  # fmt: skip
    return IndexView(
        name=f"release/{EVIL}",
        generation=1,
        when=EVIL,
        sets=(one, msgspec.structs.replace(one, yanked=EVIL, set_id="x")),
        changes=(LogEntry(number=1, action=EVIL, who=EVIL, when=EVIL, why=EVIL),),
        nights=(night,),
    )


@pytest.mark.parametrize("make", [landing.page, status.page])
@pytest.mark.parametrize("folder", ["", "release", "release/gfx110X-all"])
def test_no_value_becomes_markup(make: Callable[..., bytes], folder: str) -> None:
    data = make((evil_view(),), folder=folder)
    root = parse(data)
    assert len([*root.all("script")]) == 1
    assert not any(root.all("img"))
    for element in root.all():
        assert not [name for name in element.attributes if name.startswith("on")]
        assert not (element.attributes.get("href") or "").startswith("javascript:")
    # What turns the text around it is shown, not obeyed.
    assert "\u202e" not in data.decode()
    assert "\\u202eevil\\n" in root.text


@pytest.mark.parametrize("make", [landing.page, status.page])
def test_a_page_loads_nothing_and_is_one_that_everybody_can_read(make: Callable[..., bytes]) -> None:
    root = parse(make(VIEWS, folder="release"))
    assert root.one("html").attributes["lang"] == "en"
    assert {link.attributes["href"] for link in root.all("link")} == {"data:,"}
    assert not any(element.attributes.get("src") for element in root.all())
    assert not re.search(r"url\(|@import", root.one("style").text)
    assert "fetch(" not in root.one("script").text
    policy = root.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert (policy or "").startswith("default-src 'none'")
    # Every input has a label, every table heads, and every section a title.
    labels = {label.attributes["for"] for label in root.all("label")}
    assert {field.attributes["id"] for field in root.all("input")} == labels
    for table in root.all("table"):
        heads = [head.text for head in table.one("thead").all("th")]
        for row in table.one("tbody").all("tr"):
            assert [cell.attributes["data-head"] for cell in row.all("td")] == heads
    ids = [element.attributes["id"] for element in root.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    assert {s.attributes["aria-labelledby"] for s in root.all("section")} <= set(ids)
    # The same state gives the same bytes in whatever order it comes.
    turned = tuple(
        msgspec.structs.replace(view, sets=view.sets[::-1], changes=view.changes[::-1])
        for view in VIEWS[::-1]
    )
    assert make(turned, folder="release") == make(VIEWS, folder="release")
