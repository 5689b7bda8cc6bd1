"""The report of a run: its page, and the chart of its stages."""

import base64
import dataclasses
import hashlib
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cairn.build.engine.events import CacheStatistics
from cairn.build.model import BuiltWheel
from cairn.pipeline import trail
from cairn.pipeline.trail import StageSpan, TrailRequest, TrailResult, lay_out
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.promote import Promotion
from cairn.release.weighing import Bypass
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Stack
from cairn.testing.record import Counts, Skip, TestRecord
from helpers.build import project
from helpers.html import Element, parse
from helpers.testing import named_set, named_wheel

SET_ID = "a1" * 32
REQUEST = TrailRequest(
    stack=Stack(
        name="sample",
        line="release/2.9",
        targets=("gfx942",),
        projects=(project("torch"), project("triton")),
    ),
    targets=("gfx942", "gfx1100"),
    work_dir=Path("/srv/work"),
)
GATE = GateReport(
    set_id=SET_ID,
    target="release",
    judged="2026-01-02T03:03:00.000000Z",
    untested=("gfx942", "gfx1100"),
    demands=(
        Demand(number=1, name="every wheel passes verify", outcome="met", reason="no finding"),
        Demand(
            number=2,
            name="tested on hardware",
            outcome="bypassed",
            reason="no record",
            bypass=Bypass(who="ann", reason="no GPU"),
        ),
        Demand(number=6, name="complete", outcome="not met", reason="a file is missing"),
    ),
)


TORCH = named_wheel(
    "torch-2.9.0+rocm7.10.0-cp311-cp311-linux_x86_64.whl",
    size=1_234_567,
    sha256="f3" * 32,
    targets=("gfx1100", "gfx942"),
)
RESULT = TrailResult(
    checkouts=(
        Checkout(
            project=REQUEST.stack.project("torch"),
            path=Path("/srv/work/src/pytorch"),
            origin="/srv/torch",
            hashtag="v2.9",
            commit="c0" * 20,
            hipify_commit=None,
            tree="d1" * 20,
        ),
        Checkout(
            project=REQUEST.stack.project("triton"),
            path=Path("/srv/work/src/triton"),
            origin="/srv/triton",
            hashtag="main",
            commit="e2" * 20,
            hipify_commit=None,
            tree="0" * 40,
        ),
    ),
    wheels=(
        BuiltWheel(
            project="torch",
            wheel=Path("/srv/work/wheels", TORCH.file_name),
            sha256=TORCH.sha256,
            version="2.9.0+rocm7.10.0",
            targets=TORCH.targets,
            seconds=12.5,
            started=9.0,
            ended=25.0,
            cached=False,
        ),
    ),
    wheel_set=named_set(
        TORCH,
        named_wheel("triton-3.5.0-py3-none-any.whl", size=10, sha256="04" * 32),
        set_id=SET_ID,
        stack="sample",
        family="gfx94X-dcgpu",
        targets=("gfx942", "gfx1100"),
    ),
    rocm_version="7.10.0",
    record=TestRecord(
        set_id=SET_ID,
        wheels=(),
        kind="smoke",
        family="gfx94X-dcgpu",
        targets=("gfx942", "gfx1100"),
        hardware=(),
        counts=Counts(passed=31, skipped=1),
        junit_sha256="0" * 64,
        started="2026-01-02T03:00:00Z",
        duration_seconds=61.0,
        verdict="passed",
        reason="31 tests passed",
        skips=(Skip(test="test_add", reason="no GPU"),),
    ),
    promotion=Promotion(set_id=SET_ID, added=(), already=(), report=GATE, caveat=None, dry_run=False),
    untested_note="untested on hardware: gfx1100, gfx942",
    installers=("pip", "uv"),
    pip_line="pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
    uv_line="uv pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
    report=Path("/srv/work/report.html"),
    spans=(
        StageSpan(name="checkout torch", start=1005.0, end=1009.0, detail="v2.9"),
        StageSpan(name="build torch", start=1009.0, end=1025.0, mark="failed", detail="2 targets"),
    ),
)
LINKS = (("manifest", "wheels/manifest.json"), ("logs", "logs/"))
GENERATED = "2026-01-02T03:04:05Z"


def render(
    result: TrailResult = RESULT,
    *,
    request: TrailRequest = REQUEST,
    links: tuple[tuple[str, str], ...] = LINKS,
    generated: str = GENERATED,
) -> str:
    return trail.render(request, result, generated=generated, links=links)


def read(page: str) -> Element:
    return parse(page.encode())


def shown(page: str) -> str:
    """The words of a page."""
    return " ".join(read(page).text.split())


def links_of(page: Element) -> list[str | None]:
    return [link.attributes["href"] for link in page.all("a")]


def test_every_fact_is_on_the_page() -> None:
    facts = (
        "release/2.9",
        "a1" * 32,
        "pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
        "uv pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
        "Installed from the release index by pip and uv.",
        "Python 3.11",
        "platform linux_x86_64",
        "ROCm 7.10.0",
        "targets gfx942, gfx1100",
        "! untested on hardware: gfx1100, gfx942",
        "! released, untested",
        "/srv/torch",
        "c0" * 6,
        "d1" * 6,
        "torch-2.9.0+rocm7.10.0-cp311-cp311-linux_x86_64.whl",
        "1.2 MB",
        "gfx1100, gfx942",
        "12.5 s",
        "not in this run",
        "f3" * 6,
        "31 passed, 0 failed, 0 errors, 1 skipped",
        "no GPU; 0 tests passed on a GPU; family gfx94X-dcgpu",
        "1 min 01 s",
        "Time: 20.0 s",
        "1 every wheel passes verify ✓ met no finding",
        "2 tested on hardware ! bypassed no record bypassed by ann: no GPU",
        "6 complete ✗ not met a file is missing",
        "asked 2026-01-02 03:03 UTC",
    )
    text = shown(render())
    assert [fact for fact in facts if fact not in text] == []


def test_what_a_compiler_cache_counted_stands_beside_the_wheel() -> None:
    counted = CacheStatistics(program="ccache", hits=3, misses=1, problem="it saved nothing")
    wheel = structs.replace(RESULT.wheels[0], compiler_cache=counted)
    text = shown(render(structs.replace(RESULT, wheels=(wheel,))))
    assert "ccache 3 of 4 compilations from the cache (75%); ! it saved nothing" in text
    assert "compilations" not in shown(render())


def test_the_page_loads_nothing() -> None:
    elements = [*read(render()).all()]
    assert not {name for one in elements for name in one.attributes} & {
        "src",
        "xlink:href",
        "srcset",
        "action",
    }
    assert not {one.name for one in elements} & {"link", "img", "iframe", "object", "base", "form"}
    assert not re.search(r"url\(|@import", render())


def policy(page: str) -> str:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_one_script_may_run_and_it_is_the_one_that_copies() -> None:
    page = render()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy(page) == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "clipboard" in script


def test_what_people_copy_is_whole_where_what_they_see_is_short() -> None:
    page = read(render())
    copied = [one.attributes["data-copy"] for one in page.all() if "data-copy" in one.attributes]
    assert copied == [
        "a1" * 32,
        RESULT.pip_line,
        RESULT.uv_line,
        "f3" * 32,
        "04" * 32,
        "c0" * 20,
        "d1" * 20,
        "e2" * 20,
        "0" * 40,
    ]
    titles = {one.attributes.get("title") for one in page.all("code")}
    assert {"c0" * 20, "d1" * 20, "e2" * 20, "f3" * 32} <= titles


def test_links_lead_to_what_lies_beside_the_page_and_run_nothing() -> None:
    assert links_of(read(render())) == ["wheels/manifest.json", "logs/"]
    for target in ("javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "//["):
        assert links_of(read(render(links=(("x", target),)))) == ["#"], target


def tones(page: str) -> dict[str, str]:
    return {
        word: tone for tone, word in re.findall(r'<span class="badge (\w+)">[✓✗!=]? ?([^<]+)</span>', page)
    }


def test_a_bypass_never_looks_like_a_demand_that_is_met() -> None:
    tone = tones(render())
    assert (tone["met"], tone["bypassed"], tone["not met"]) == ("good", "plain", "bad")
    assert tone["released, untested"] == "plain"
    kept = structs.replace(RESULT.promotion, report=None)
    tested = structs.replace(RESULT, untested_note=None, promotion=kept)
    assert tones(render(tested))["released"] == "good"
    assert "untested" not in render(tested)


def hostile(value: object) -> object:
    """The same value with markup in every text."""
    if isinstance(value, str):
        return f"</style></svg>'\"><script>alert(1)</script><b onload=x>&amp;{value}"
    if isinstance(value, tuple):
        return tuple(hostile(item) for item in value)
    if isinstance(value, msgspec.Struct):
        changes = {name: hostile(getattr(value, name)) for name in value.__struct_fields__}
        return structs.replace(value, **changes)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: hostile(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value


def test_whatever_the_values_hold_is_text() -> None:
    result, request, links = hostile(RESULT), hostile(REQUEST), hostile(LINKS)
    assert isinstance(result, TrailResult)
    assert isinstance(request, TrailRequest)
    assert isinstance(links, tuple)
    text = render(result, request=request, links=links, generated=str(hostile(GENERATED)))
    page, plain = ([(one.name, *one.attributes) for one in read(each).all()] for each in (text, render()))
    assert page == plain
    assert text.count("<script") == 1
    assert policy(text) == policy(render())
    assert "<script>alert(1)</script>" in read(text).text


def test_nothing_on_the_page_turns_or_hides_what_stands_beside_it() -> None:
    for unseen in ("\u202e", "\u2066", "\x1b[8m", "\0", "\u200b"):
        command = f"pip install torch{unseen}"
        stack = structs.replace(REQUEST.stack, name=f"sample{unseen}")
        page = render(
            structs.replace(RESULT, untested_note=f"untested {unseen}detset", pip_line=command),
            request=dataclasses.replace(REQUEST, stack=stack),
        )
        assert unseen not in page
        escaped = unseen.replace(unseen[0], unseen[0].encode("unicode_escape").decode())
        assert f"untested {escaped}detset" in page
        assert f'data-copy="pip install torch{escaped}"' in page
        assert f"<pre>pip install torch{escaped}</pre>" in page
    record = structs.replace(RESULT.record, reason="one\ntwo")
    assert "one\ntwo" in render(structs.replace(RESULT, record=record)), "lines of a reason stay lines"


def test_the_timeline_is_drawn_to_scale_with_names_at_the_edge_where_there_is_no_room() -> None:
    page = render()
    rects = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', page)
    assert rects == [("done", "0.0", "20.0"), ("broken", "20.0", "80.0")]
    flush = re.findall(r'<text class="flush" x="0" y="\d+">([^<]+)<', page)
    assert flush == ["checkout torch ", "✗ build torch "]
    narrow = page[page.index("@media (max-width") :]
    assert "svg .placed { display: none; }" in narrow
    assert "svg .flush { display: inline; }" in narrow


def test_an_almost_empty_report_is_a_page_too() -> None:
    bare = structs.replace(
        RESULT,
        checkouts=(),
        wheels=(),
        wheel_set=structs.replace(RESULT.wheel_set, wheels=()),
        promotion=structs.replace(RESULT.promotion, report=None),
        untested_note=None,
        rocm_version=None,
        spans=(),
    )
    page = render(bare, links=(), generated="now")
    assert "<h2" in page
    assert "Wheels" not in page
    assert "Sources" not in page
    assert "Time:" not in page


def test_a_report_is_written_whole_with_links_to_what_is_there(tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, work_dir=tmp_path)
    result = structs.replace(RESULT, report=tmp_path / "report.html")
    request.wheels_dir.mkdir()
    (request.wheels_dir / "set.json").touch()
    trail.write_page(request, result)
    page = read(result.report.read_text(encoding="utf-8"))
    assert links_of(page) == ["wheels/set.json", "wheels/"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "wheels"]


def stage(name: str, start: float, end: float) -> StageSpan:
    return StageSpan(name=name, start=start, end=end)


def test_bars_are_drawn_to_scale_from_the_first_start() -> None:
    chart = lay_out([stage("b", 120, 150), stage("a", 100, 120), stage("c", 130, 200)])
    assert [bar["stage"].name for bar in chart["bars"]] == ["a", "b", "c"]
    assert [(bar["left"], bar["width"]) for bar in chart["bars"]] == [(0, 20), (20, 30), (30, 70)]
    assert chart["seconds"] == 100
    assert lay_out([])["bars"] == []
    one, two = lay_out([stage("one", 0, 10), stage("two", 0, 10)])["bars"]
    assert (one["left"], one["width"]) == (two["left"], two["width"]) == (0, 100)


@pytest.mark.parametrize(
    ("whole", "marks"),
    [
        (10, [0, 2, 4, 6, 8, 10]),
        (299, [0, 60, 120, 180, 240]),
        (0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (90000, [0, 28800, 57600, 86400]),
    ],
)
def test_the_scale_has_round_marks(whole: float, marks: list[float]) -> None:
    ticks = lay_out([stage("a", 0, whole)])["ticks"]
    assert [seconds for _, seconds in ticks] == pytest.approx(marks)
    assert [left for left, _ in ticks] == pytest.approx([m / whole * 100 for m in marks], abs=0.001)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_no_bar_leaves_the_page(spans: list[tuple[float, float]]) -> None:
    chart = lay_out(stage(str(i), start, start + length) for i, (start, length) in enumerate(spans))
    for bar in chart["bars"]:
        assert 0 <= bar["left"] <= bar["left"] + bar["width"] <= 100.01
        assert bar["width"] > 0
    assert len(chart["bars"]) == len(spans)
    assert all(0 <= left <= 100.01 for left, _ in chart["ticks"])
    assert len(chart["ticks"]) <= 12
