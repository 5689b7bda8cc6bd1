import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.build.engine.events import CacheStatistics
from cairn.build.model import BuiltWheel
from cairn.pipeline import trail
from cairn.pipeline.trail import Link, StageSpan, TrailRequest, TrailResult
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.promote import Promotion
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Stack
from cairn.testing.record import Counts, Skip, TestRecord
from helpers.build import project
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
            hipify_commit="d1" * 20,
            tree="0" * 40,
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
    promotion=Promotion(set_id=SET_ID, added=(), already=(), report=GATE, untested=None, dry_run=False),
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
LINKS = (Link(name="manifest", target="wheels/manifest.json"), Link(name="logs", target="logs/"))
GENERATED = "2026-01-02T03:04:05Z"
VOID = ("meta", "line", "rect", "br")


class Reader(HTMLParser):
    """Collects text and attributes, and sees that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def render(
    result: TrailResult = RESULT,
    *,
    request: TrailRequest = REQUEST,
    links: tuple[Link, ...] = LINKS,
    generated: str = GENERATED,
) -> str:
    return trail.render(request, result, generated=generated, links=links)


def test_what_a_compiler_cache_counted_stands_beside_the_wheel() -> None:
    counted = CacheStatistics(program="ccache", hits=3, misses=1, problem="it saved nothing")
    wheel = dataclasses.replace(RESULT.wheels[0], compiler_cache=counted)
    text = " ".join("".join(read(render(dataclasses.replace(RESULT, wheels=(wheel,)))).text).split())
    assert "ccache 3 of 4 compilations from the cache (75%); ! it saved nothing" in text
    assert "compilations" not in "".join(read(render()).text)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


@pytest.mark.parametrize(
    "fact",
    [
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
        "not hipified",
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
    ],
)
def test_every_fact_is_on_the_page(fact: str) -> None:
    assert fact in " ".join("".join(read(render()).text).split())


def test_the_page_loads_nothing() -> None:
    page = read(render())
    assert not [a for a in page.attributes if a[1] in ("src", "xlink:href", "srcset", "action")]
    assert not {tag for tag, _, _ in page.attributes} & {"link", "img", "iframe", "object", "base", "form"}
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
    copied = [value for _, name, value in read(render()).attributes if name == "data-copy"]
    assert copied == [
        "a1" * 32,
        RESULT.pip_line,
        RESULT.uv_line,
        "f3" * 32,
        "04" * 32,
        "c0" * 20,
        "d1" * 20,
        "e2" * 20,
    ]
    titles = [value for tag, name, value in read(render()).attributes if (tag, name) == ("code", "title")]
    assert {"c0" * 20, "d1" * 20, "e2" * 20, "f3" * 32} <= set(titles)


def test_links_lead_to_what_lies_beside_the_page() -> None:
    links = [value for tag, name, value in read(render()).attributes if (tag, name) == ("a", "href")]
    assert links == ["wheels/manifest.json", "logs/"]


@pytest.mark.parametrize("target", ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "//["])
def test_a_link_runs_nothing(target: str) -> None:
    page = read(render(links=(Link(name="x", target=target),)))
    assert [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")] == ["#"]


def tones(page: str) -> dict[str, str]:
    return {
        word: tone for tone, word in re.findall(r'<span class="badge (\w+)">[✓✗!=]? ?([^<]+)</span>', page)
    }


def test_a_bypass_never_looks_like_a_demand_that_is_met() -> None:
    shown = tones(render())
    assert (shown["met"], shown["bypassed"], shown["not met"]) == ("good", "plain", "bad")
    assert shown["released, untested"] == "plain"
    kept = dataclasses.replace(RESULT.promotion, report=None)
    tested = dataclasses.replace(RESULT, untested_note=None, promotion=kept)
    assert tones(render(tested))["released"] == "good"
    assert "untested" not in render(tested)


def hostile(value: object) -> object:
    """The same value with markup in every text."""
    if isinstance(value, str):
        return f"</style></svg>'\"><script>alert(1)</script><b onload=x>&amp;{value}"
    if isinstance(value, tuple):
        return tuple(hostile(item) for item in value)
    if isinstance(value, datafile.Value):
        changes = {name: hostile(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **changes)
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
    page, plain = read(text), read(render())
    assert [a[:2] for a in page.attributes] == [a[:2] for a in plain.attributes]
    assert text.count("<script") == 1
    assert policy(text) == policy(render())
    assert "<script>alert(1)</script>" in "".join(page.text)


@pytest.mark.parametrize("unseen", ["\u202e", "\u2066", "\x1b[8m", "\0", "\u200b"])
def test_nothing_on_the_page_turns_or_hides_what_stands_beside_it(unseen: str) -> None:
    command = f"pip install torch{unseen}"
    stack = msgspec.structs.replace(REQUEST.stack, name=f"sample{unseen}")
    page = render(
        dataclasses.replace(RESULT, untested_note=f"untested {unseen}detset", pip_line=command),
        request=dataclasses.replace(REQUEST, stack=stack),
    )
    assert unseen not in page
    escaped = unseen.replace(unseen[0], unseen[0].encode("unicode_escape").decode())
    assert f"untested {escaped}detset" in page
    assert f'data-copy="pip install torch{escaped}"' in page
    assert f"<pre>pip install torch{escaped}</pre>" in page


def test_a_reason_of_several_lines_keeps_them() -> None:
    record = msgspec.structs.replace(RESULT.record, reason="one\ntwo")
    assert "one\ntwo" in render(dataclasses.replace(RESULT, record=record))


def test_the_timeline_is_drawn_to_scale() -> None:
    rects = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', render())
    assert rects == [("done", "0.0", "20.0"), ("broken", "20.0", "80.0")]


def test_names_of_stages_begin_at_the_edge_where_there_is_no_room_beside_a_bar() -> None:
    page = render()
    flush = re.findall(r'<text class="flush" x="0" y="\d+">([^<]+)<', page)
    assert flush == ["checkout torch ", "✗ build torch "]
    narrow = page[page.index("@media (max-width") :]
    assert "svg .placed { display: none; }" in narrow
    assert "svg .flush { display: inline; }" in narrow


def test_an_almost_empty_report_is_a_page_too() -> None:
    bare = dataclasses.replace(
        RESULT,
        checkouts=(),
        wheels=(),
        wheel_set=msgspec.structs.replace(RESULT.wheel_set, wheels=()),
        promotion=dataclasses.replace(RESULT.promotion, report=None),
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
    result = dataclasses.replace(RESULT, report=tmp_path / "report.html")
    request.wheels_dir.mkdir()
    (request.wheels_dir / "set.json").touch()
    trail.write_page(request, result)
    page = read(result.report.read_text(encoding="utf-8"))
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert links == ["wheels/set.json", "wheels/"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "wheels"]
