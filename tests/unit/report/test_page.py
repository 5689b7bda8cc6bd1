import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cairn.pipeline.report import (
    Commit,
    Demand,
    Gate,
    Link,
    Report,
    Skip,
    Stage,
    TestRun,
    Wheel,
    render,
    write_report,
)

REPORT = Report(
    title="sample, release/2.9",
    stack="sample",
    line="release/2.9",
    set_id="a1" * 32,
    generated="2026-01-02T03:04:05Z",
    verdict="promoted",
    python="3.11",
    platform="linux_x86_64",
    rocm_version="7.10.0",
    targets=("gfx942", "gfx1100"),
    untested="untested on hardware: gfx1100, gfx942",
    install_lines=(
        "pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
        "uv pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
    ),
    installed="Installed by pip and uv.",
    notes=("Not of this machine.",),
    links=(Link(name="manifest", target="wheels/manifest.json"), Link(name="logs", target="logs/")),
    commits=(
        Commit(
            project="torch", origin="/srv/torch", hashtag="v2.9", commit="c0" * 20, hipify_commit="d1" * 20
        ),
        Commit(project="triton", origin="/srv/triton", hashtag="main", commit="e2" * 20),
    ),
    stages=(
        Stage(name="checkout torch", start=5.0, end=9.0, detail="v2.9"),
        Stage(name="build torch", start=9.0, end=25.0, mark="failed", detail="2 targets"),
    ),
    wheels=(
        Wheel(
            file_name="torch-2.9.0+rocm7.10.0-cp311-cp311-linux_x86_64.whl",
            size=1_234_567,
            sha256="f3" * 32,
            targets=("gfx1100", "gfx942"),
            seconds=12.5,
        ),
        Wheel(file_name="triton.whl", size=10, sha256="04" * 32, targets=()),
    ),
    tests=(
        TestRun(
            kind="smoke",
            verdict="passed",
            reason="31 tests passed",
            family="gfx94X-dcgpu",
            hardware=(),
            passed=31,
            failed=0,
            errors=0,
            skipped=1,
            device_passed=0,
            seconds=61.0,
            started="2026-01-02T03:00:00Z",
            skips=(Skip(test="test_add", reason="no GPU"),),
        ),
    ),
    gate=Gate(
        judged="2026-01-02T03:03:00.000000Z",
        kept=False,
        demands=(
            Demand(number=1, name="every wheel passes verify", outcome="met", reason="no finding"),
            Demand(
                number=2,
                name="tested on hardware",
                outcome="bypassed",
                reason="no record",
                bypass="bypassed by ann: no GPU",
            ),
            Demand(number=6, name="complete", outcome="not met", reason="a file is missing"),
        ),
    ),
)
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


def read(report: Report) -> Reader:
    reader = Reader()
    reader.feed(render(report))
    assert not reader.open
    return reader


@pytest.mark.parametrize(
    "fact",
    [
        "release/2.9",
        "a1" * 32,
        "pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
        "uv pip install --index-url http://127.0.0.1:8383/release/simple/ torch",
        "Installed by pip and uv.",
        "Not of this machine.",
        "Python 3.11",
        "platform linux_x86_64",
        "ROCm 7.10.0",
        "targets gfx942, gfx1100",
        "! untested on hardware: gfx1100, gfx942",
        "! promoted, untested",
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
    assert fact in " ".join("".join(read(REPORT).text).split())


def test_the_page_loads_nothing() -> None:
    page = read(REPORT)
    assert not [a for a in page.attributes if a[1] in ("src", "xlink:href", "srcset", "action")]
    assert not {tag for tag, _, _ in page.attributes} & {"link", "img", "iframe", "object", "base", "form"}
    assert not re.search(r"url\(|@import", render(REPORT))


def policy(page: str) -> str:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_one_script_may_run_and_it_is_the_one_that_copies() -> None:
    page = render(REPORT)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy(page) == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "clipboard" in script


def test_what_people_copy_is_whole_where_what_they_see_is_short() -> None:
    copied = [value for _, name, value in read(REPORT).attributes if name == "data-copy"]
    assert copied == [
        "a1" * 32,
        *REPORT.install_lines,
        "f3" * 32,
        "04" * 32,
        "c0" * 20,
        "d1" * 20,
        "e2" * 20,
    ]
    titles = [value for tag, name, value in read(REPORT).attributes if (tag, name) == ("code", "title")]
    assert {"c0" * 20, "d1" * 20, "e2" * 20, "f3" * 32} <= set(titles)


def test_links_lead_to_what_lies_beside_the_page() -> None:
    links = [value for tag, name, value in read(REPORT).attributes if (tag, name) == ("a", "href")]
    assert links == ["wheels/manifest.json", "logs/"]


@pytest.mark.parametrize("target", ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "//["])
def test_a_link_runs_nothing(target: str) -> None:
    page = read(dataclasses.replace(REPORT, links=(Link(name="x", target=target),)))
    assert [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")] == ["#"]


def tones(page: str) -> dict[str, str]:
    return {
        word: tone for tone, word in re.findall(r'<span class="badge (\w+)">[✓✗!=]? ?([^<]+)</span>', page)
    }


def test_a_bypass_never_looks_like_a_demand_that_is_met() -> None:
    shown = tones(render(REPORT))
    assert (shown["met"], shown["bypassed"], shown["not met"]) == ("good", "plain", "bad")
    assert shown["promoted, untested"] == "plain"
    tested = dataclasses.replace(REPORT, untested="", gate=None)
    assert tones(render(tested))["promoted"] == "good"
    assert "untested" not in render(tested)


def hostile(value: object) -> object:
    """The same value with markup in every text."""
    if isinstance(value, str):
        return f"</style></svg>'\"><script>alert(1)</script><b onload=x>&amp;{value}"
    if isinstance(value, tuple):
        return tuple(hostile(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: hostile(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value


def test_whatever_the_values_hold_is_text() -> None:
    report = hostile(REPORT)
    assert isinstance(report, Report)
    page, plain = read(report), read(REPORT)
    assert [a[:2] for a in page.attributes] == [a[:2] for a in plain.attributes]
    assert render(report).count("<script") == 1
    assert policy(render(report)) == policy(render(REPORT))
    assert "<script>alert(1)</script>" in "".join(page.text)


@pytest.mark.parametrize("unseen", ["\u202e", "\u2066", "\x1b[8m", "\0", "\u200b"])
def test_nothing_on_the_page_turns_or_hides_what_stands_beside_it(unseen: str) -> None:
    command = f"pip install torch{unseen}"
    page = render(
        dataclasses.replace(
            REPORT, title=f"sample{unseen}", untested=f"untested {unseen}detset", install_lines=(command,)
        )
    )
    assert unseen not in page
    escaped = unseen.replace(unseen[0], unseen[0].encode("unicode_escape").decode())
    assert f"untested {escaped}detset" in page
    assert f'data-copy="pip install torch{escaped}"' in page
    assert f"<pre>pip install torch{escaped}</pre>" in page


def test_a_reason_of_several_lines_keeps_them() -> None:
    (run,) = REPORT.tests
    page = render(dataclasses.replace(REPORT, tests=(dataclasses.replace(run, reason="one\ntwo"),)))
    assert "one\ntwo" in page


def test_the_timeline_is_drawn_to_scale() -> None:
    rects = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', render(REPORT))
    assert rects == [("done", "0.0", "20.0"), ("broken", "20.0", "80.0")]


def test_names_of_stages_begin_at_the_edge_where_there_is_no_room_beside_a_bar() -> None:
    page = render(REPORT)
    flush = re.findall(r'<text class="flush" x="0" y="\d+">([^<]+)<', page)
    assert flush == ["checkout torch ", "✗ build torch "]
    narrow = page[page.index("@media (max-width") :]
    assert "svg .placed { display: none; }" in narrow
    assert "svg .flush { display: inline; }" in narrow


def test_an_almost_empty_report_is_a_page_too() -> None:
    bare = Report(
        title="t",
        stack="s",
        line="l",
        set_id="0",
        generated="now",
        verdict="failed",
        python="3.11",
        platform="linux_x86_64",
        install_lines=(),
    )
    page = render(bare)
    assert "<h2" in page
    assert "Wheels" not in page
    assert "Time:" not in page


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(path, REPORT)
    assert path.read_text(encoding="utf-8") == render(REPORT)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
