"""Seven nights through the real commands, and what each morning's report says.

Nothing is compiled and no GPU is used: builds leave small wheels, and tests leave records of what they came
to. The clock is set, so that nights are a day apart and take hours. `release/test_week_of_nights.py` has what
the report and its pages make of such nights without the commands before it, in a third of the time.
"""

from __future__ import annotations

import datetime as dt
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

import cairn.pipeline.night
from cairn import datafile
from cairn import stack as stacks
from cairn.formats import cyclonedx
from cairn.pipeline.night import plan
from cairn.pipeline.night.build import set_folder
from cairn.pipeline.night.plan import StepNote
from cairn.release.index.generation import now
from cairn.release.index.snapshot import Index, read_set
from cairn.store.folder import LocalStore
from cairn.testing import record
from cairn.testing.record import Counts
from cairn.wheels import wheelset
from helpers import packing
from helpers.gate import record_of
from helpers.html import parse
from helpers.program import Cairn, Shown
from helpers.release import keys_of, make_set, statement_of

for _module in pkgutil.iter_modules(cairn.pipeline.night.__path__, "cairn.pipeline.night."):
    importlib.import_module(_module.name)  # what a command would import while the clock is set

MI300, RX7000, RX9000 = "gfx94X-dcgpu", "gfx110X-all", "gfx120X-all"
# Not a shipped stack: seven nights whose builds leave small wheels at once.
_STACK = """schema = "cairn.stack/1"
name = "torch"
line = "nightly"
targets = ["gfx942"]

[lines]
nightly = {}
"release/2.10" = {}

[[projects]]
name = "torch"
distribution = "torch"
checkout_dir = "torch"
hashtag = "{line}"
origin = { url = "ORIGIN" }
version_edit = true
"""
# No test installs on this machine what is for another one, which would take most of the time.
_MATRIX = """schema = "cairn.matrix-toml/1"

[platforms.linux_aarch64]
build = ["big-machine"]

[triggers.nightly]
families = ["gfx94X-dcgpu", "gfx110X-all", "gfx120X-all"]
pythons = ["3.12"]

[families.gfx94X-dcgpu.linux_aarch64]
test = ["linux-mi300"]

[families.gfx110X-all.linux_aarch64]
test = ["linux-rx7900"]

[families.gfx120X-all.linux_aarch64]
"""


class Clock(dt.datetime):
    """A clock that is set."""

    moment = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return cls.moment.astimezone(tz)


@dataclass(frozen=True)
class Morning:
    """What a release engineer finds at eight: how the report ended, the run's summary, and the pages."""

    report: Shown
    summary: str
    pages: Path


@dataclass
class Week:
    """A repository with a store, and jobs that leave what they are told."""

    folder: Path
    cairn: Cairn
    patch: pytest.MonkeyPatch
    mornings: dict[str, Morning] = field(default_factory=dict)
    watched: Shown = Shown("", "")
    unchanged: Shown = Shown("", "")
    under_way: Shown = Shown("", "")

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "store")

    def at(self, day: int, hour: int, minute: int = 0) -> None:
        """Set the clock of all that was imported to a time of a day of November."""
        Clock.moment = dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC)
        for name, module in list(sys.modules.items()):
            if name.startswith(("cairn.", "helpers.")) and vars(module).get("datetime") is dt.datetime:
                self.patch.setattr(module, "datetime", Clock)

    def job(self, *words: object, night: str, code: int = 0, store: object = None) -> Shown:
        named = ("--stack", self.folder / "stack", "--store", store or self.folder / "store")
        self.patch.setenv("GITHUB_RUN_ID", night)
        return self.cairn("ci", "night", *words, "--night", night, *named, code=code)

    def commit(self, version: str, line: str = "nightly") -> None:
        for words in (
            ("checkout", "--quiet", "-B", line),
            ("add", "."),
            ("commit", "--quiet", "--allow-empty", "-m", version),
        ):
            (self.folder / "origin" / "version.txt").write_text(f"{version}\n")
            who = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
            subprocess.run(["git", *who, *words], cwd=self.folder / "origin", check=True)

    def freeze(
        self,
        night: str,
        line: str = "nightly",
        *more: object,
        code: int = 0,
        families: str = "all",
        pythons: str = "all",
    ) -> Shown:
        stack, matrix = self.folder / "stack", self.folder / "matrix.json"
        chosen = ("--lines", line, "--families", families, "--pythons", pythons)
        found = self.cairn("matrix", "--stack", stack, "--trigger", "nightly", *chosen, "--json")
        matrix.write_text(found.out)
        words = ("--line", line, "--matrix", matrix, "--work-dir", self.folder / "freezing", *more)
        return self.job("freeze", *words, night=night, code=code)

    def build(self, night: str, *families: str, failing: str = "", python: str = "") -> None:
        """Leave what the builds of families leave, three hours after they began."""
        of = plan.read(self.store, night)
        frozen = plan.manifest_of(self.store, of)
        began = now()
        Clock.moment += dt.timedelta(hours=3)
        for leg in of.legs:
            if leg.family not in families or python not in ("", leg.python):
                continue
            folder = self.folder / "artifacts" / night / f"wheels-{leg.build_id}-1"
            note = StepNote(
                night=night, leg=leg.build_id, stage="build", attempt=1, good=not failing, started=began,
                reason=failing or "done", finished=now(), log=self._log(night),
            )  # fmt: skip
            folder.mkdir(parents=True)
            datafile.write(folder / "step.json", note)
            if failing:
                continue
            source = frozen.projects[0]
            suffix = plan.version_suffix(stacks.load(self.folder / "stack"), frozen, (leg.targets,))
            version = f"{source.version}{suffix}"
            bill = cyclonedx.document(
                "torch", version, rocm_version=None,
                sources=[cyclonedx.Source(name="torch", commit=source.commit)],
            )  # fmt: skip
            members = {
                "torch/__init__.py": f"FAMILY = {leg.family!r}\n",
                f"torch-{version}.dist-info/{cyclonedx.NAME}": bill,
            }
            wheel = packing.write_wheel(folder, "torch", version, members)
            made = make_set(
                [wheel], family=leg.family, targets=leg.targets.split(","), python=leg.python,
                platform=leg.platform,
            )  # fmt: skip
            made = msgspec.structs.replace(
                made, stack=of.stack, line=of.line, manifest_sha256=of.manifest_sha256
            )
            set_folder(folder, leg).mkdir(exist_ok=True)
            (set_folder(folder, leg) / "builder.json").write_bytes(
                statement_of(made, [wheel], frozen.canonical())
            )
            wheelset.write(set_folder(folder, leg) / "set.json", made)

    def stage(self, night: str, *words: object, code: int = 0, store: object = None) -> None:
        artifacts = ("--artifacts", self.folder / "artifacts" / night)
        self.job("stage", *words, *artifacts, night=night, code=code, store=store)

    def test(self, night: str, family: str, *, hours: float = 1, failing: str = "") -> None:
        """Leave what a test job leaves, and keep it; the clock is where it was."""
        of = plan.read(self.store, night)
        leg = next(one for one in of.legs if one.family == family)
        began, start = now(), Clock.moment
        Clock.moment += dt.timedelta(hours=hours)
        staged = plan.set_of(Index(self.store, plan.index_of(leg, of.staging)), of, leg)
        assert staged is not None
        work = self.folder / "tests" / night / family
        (work / "smoke").mkdir(parents=True)
        hardware = tuple(leg.targets.split(",")) if leg.test_runs_on else ()
        good = "passed" if hardware else "untested"
        tested = record_of(
            read_set(self.store, staged.set_id),
            started=began, hardware=hardware, duration_seconds=hours * 3600,
            verdict="failed" if failing else good, reason=failing or "every test passed",
            counts=Counts(passed=5, failed=1 if failing else 0, device_passed=4 if hardware else 0),
        )  # fmt: skip
        record.write(work / "smoke" / record.FILE, tested)
        note = StepNote(
            night=night, leg=leg.id, stage="test", attempt=1, good=not failing, started=began,
            reason=failing or "passed", finished=now(), log=self._log(night),
        )  # fmt: skip
        datafile.write(work / "smoke" / "step.json", note)
        self.job("step", "test", "--phase", "keep", "--leg", leg.id, "--output-dir", work, night=night)
        Clock.moment = start

    def promote(self, night: str, code: int = 0) -> None:
        self.job("promote", night=night, code=code)

    def report(
        self,
        night: str,
        name: str,
        *,
        code: int = 0,
        results: str = "",
        line: str = "nightly",
        to: str = "nightly",
    ) -> None:
        summary = self.folder / f"{name}.md"
        self.patch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        words = ("--line", line, "--to", to, "--results", results)
        shown = self.job("report", *words, night=night, code=code)
        self.patch.delenv("GITHUB_STEP_SUMMARY")
        shutil.copytree(self.folder / "store" / to, self.folder / name)
        self.mornings[name] = Morning(shown, summary.read_text(), self.folder / name)

    def _log(self, night: str) -> str:
        return f"https://github.com/me/wheels/actions/runs/{night}"


def monday_to_wednesday(week: Week) -> None:
    # Monday: all is well; one family has no runner.
    week.at(16, 1, 17)
    week.commit("2.11.0.dev20261116")
    week.freeze("1001")
    week.build("1001", MI300, RX7000, RX9000)
    week.stage("1001")
    week.test("1001", MI300)
    week.test("1001", RX7000)
    week.test("1001", RX9000, hours=0)
    week.at(16, 6)
    week.promote("1001")
    week.report("1001", "monday")
    # Tuesday: tests of a family fail.
    week.at(17, 1, 17)
    week.commit("2.11.0.dev20261117")
    week.freeze("1002")
    week.build("1002", MI300, RX7000, RX9000)
    week.stage("1002")
    week.test("1002", MI300)
    week.test("1002", RX7000, failing="1 of 6 tests failed: test_matmul[bf16]")
    week.test("1002", RX9000, hours=0)
    week.at(17, 6)
    week.promote("1002")
    week.report("1002", "tuesday", code=10)
    # Wednesday: they fail again, and a build of another family does.
    week.at(18, 1, 17)
    week.commit("2.11.0.dev20261118")
    week.freeze("1003")
    week.build("1003", RX7000, RX9000)
    week.at(18, 1, 18)
    week.build("1003", MI300, failing="ninja: error: no space left on device")
    week.stage("1003")
    week.test("1003", RX7000, failing="1 of 6 tests failed: test_matmul[bf16]")
    week.test("1003", RX9000, hours=0)
    week.at(18, 6)
    week.promote("1003")
    week.report("1003", "wednesday", code=10)


def thursday_and_friday(week: Week) -> None:
    # Thursday: the bucket is away when the sets are staged, and for longer than the job waits.
    week.at(19, 1, 17)
    week.commit("2.11.0.dev20261119")
    week.freeze("1004")
    week.build("1004", MI300, RX7000, RX9000)
    away = ("--endpoint-url", "http://127.0.0.1:9", "--patience", "1")
    week.stage("1004", *away, code=5, store="s3://away/store")
    week.at(19, 6)
    week.report("1004", "thursday", code=10, results="freeze=success build=success stage=failure")
    # Later that day the failed jobs are run again.
    week.at(19, 10)
    week.stage("1004")
    week.test("1004", MI300)
    week.test("1004", RX7000)
    week.test("1004", RX9000, hours=0)
    week.at(19, 12)
    week.promote("1004")
    week.report("1004", "thursday-again")
    # Friday: the sources cannot be reached, so that no night begins.
    week.at(20, 1, 17)
    (week.folder / "origin").rename(week.folder / "away")
    week.freeze("1005", code=4)
    (week.folder / "away").rename(week.folder / "origin")
    week.report("1005", "friday", code=10, results="freeze=failure build=skipped")
    week.at(20, 8)
    week.watched = week.cairn("ci", "night", "list", "--overdue", "--store", week.folder / "store", code=9)


def weekend(week: Week) -> None:
    # Saturday: nothing has changed, and a new line has its first night.
    week.at(21, 1, 17)
    week.unchanged = week.freeze("1006")
    week.promote("1006")
    week.report("1006", "saturday")
    week.at(21, 1, 20)
    week.commit("2.10.0rc1", "release/2.10")
    week.freeze("1007", "release/2.10")
    week.build("1007", MI300, RX7000, RX9000)
    week.stage("1007")
    week.test("1007", MI300)
    week.test("1007", RX7000)
    week.test("1007", RX9000, hours=0)
    week.at(21, 6)
    week.promote("1007")
    week.report("1007", "saturday-line")
    # Sunday: the family without a runner has one, a failure is expected, and a runner is slow.
    week.at(22, 1, 17)
    matrix = week.folder / "stack" / "matrix.toml"
    text = matrix.read_text() + 'test = ["linux-rx9070"]\n'
    known = 'expect_failure = { issue = "https://github.com/me/wheels/issues/7", until = "2026-11-30" }'
    matrix.write_text(text.replace('test = ["linux-rx7900"]', f'test = ["linux-rx7900"]\n{known}'))
    week.commit("2.11.0.dev20261122")
    week.freeze("1008")
    week.build("1008", MI300, RX7000, RX9000)
    week.stage("1008")
    week.test("1008", RX9000)
    week.test("1008", RX7000, failing="1 of 6 tests failed: test_conv3d")
    week.at(22, 11)
    week.promote("1008")
    week.under_way = week.cairn("ci", "night", "list", "--store", week.folder / "store")
    week.at(22, 4, 17)
    week.test("1008", MI300, hours=9)
    week.at(22, 14)
    week.promote("1008")
    week.report("1008", "sunday")
    # A developer has a branch built for one family, whose version is above the line's, and its tests fail.
    week.commit("2.12.0a0", "my-branch")
    week.at(22, 15)
    week.freeze("1009", "nightly", "--refs", "torch=my-branch", "--to", "dev", families=RX7000)
    week.build("1009", RX7000)
    week.stage("1009")
    week.test("1009", RX7000, failing="1 of 6 tests failed: test_branch")
    week.at(22, 21)
    week.promote("1009")
    week.report("1009", "branch", to="dev")


@pytest.fixture
def week(tmp_path: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> Week:
    for name, value in {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "me/wheels",
        "GITHUB_RUN_ATTEMPT": "1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack" / "stack.toml").write_text(_STACK.replace("ORIGIN", str(tmp_path / "origin")))
    (tmp_path / "stack" / "matrix.toml").write_text(_MATRIX)
    subprocess.run(["git", "init", "--quiet", tmp_path / "origin"], check=True)
    return Week(tmp_path, cairn, monkeypatch)


def shown(morning: Morning) -> list[str]:
    """What a page of the last nights has above its grids: notes, then what is not good; hidden ones not."""
    root = parse((morning.pages / "nights.html").read_bytes())
    lists = [item for troubles in root.all("ul", class_="troubles") for item in troubles.all("li")]
    found = [*root.all("p", class_="note"), *lists]
    return [" ".join(one.text.split()) for one in found if "hidden" not in one.attributes]


def what_a_developer_had_built_is_apart(week: Week) -> None:
    assert week.mornings["branch"].summary.startswith("## Night 1009: torch, nightly, torch=my-branch\n")
    branch = (week.mornings["branch"].pages / "nights.html").read_text()
    assert "<code>torch=my-branch</code>" in branch
    assert "1009" not in (week.folder / "store/nightly/nights.html").read_text()
    assert not any("2.12.0a0" in key for key in keys_of(week.store, "nightly/"))
    assert "torch=my-branch" in (week.mornings["branch"].pages / "nights.atom").read_text()


@pytest.mark.by_hand
def test_what_each_morning_says(week: Week) -> None:
    monday_to_wednesday(week)
    thursday_and_friday(week)
    weekend(week)
    told = {name: morning.summary for name, morning in week.mornings.items()}
    # What is yellow, and why; what a night cost.
    assert "2 good, 1 untested; 4 h 43 min, 11 h 00 min of machines" in told["monday"]
    assert (
        "gfx120X-all 3.12 | untested | bypassed by matrix.toml: no runner has its hardware" in told["monday"]
    )
    # What broke since yesterday is first, and why; where its log is; since when it was good.
    assert "1 good, 1 untested, 1 failed (new)" in told["tuesday"]
    row = next(line for line in told["tuesday"].splitlines() if "**failed**" in line)
    assert row.startswith("| gfx110X-all 3.12 | **failed** in test, new | 1 of 6 tests failed: test\\_matmul")
    assert "(<https://github.com/me/wheels/actions/runs/1002>) | 2026-11-16 06:00 |" in row
    rows = [line for line in told["wednesday"].splitlines() if "**failed**" in line]
    assert "gfx94X-dcgpu 3.12 | **failed** in build, new | ninja: error: no space left on device" in rows[0]
    assert "gfx110X-all 3.12 | **failed** in test, not good since 2026-11-17" in rows[1]
    # Builds were good, and their wheels lie there: an outage is no failure of a build.
    assert "the job stage failed before it came to this: run the failed jobs again" in told["thursday"]
    assert "in build" not in told["thursday"]
    assert "2 good, 1 untested" in told["thursday-again"]
    assert "was **not frozen**" in told["friday"]
    assert "began 30 hours ago" in week.watched.err
    assert week.unchanged.out.count("promoted") == 3  # nothing is built, and nothing tested
    assert "2 good, 1 untested; manifest" in told["saturday"]
    (late,) = (line for line in week.under_way.err.splitlines() if "late in 1008" in line)
    assert late.endswith(
        ": 9 h 43 min, usually 4 h 43 min; its tests have not ended on a runner (linux-mi300)"
    )
    assert "2 good, 1 expected; 12 h 43 min, 20 h 00 min of machines" in told["sunday"]
    assert "| late | 12 h 43 min, usually 4 h 43 min |" in told["sunday"]
    assert "(expected until 2026-11-30, https://github.com/me/wheels/issues/7)" in told["sunday"]
    pages = {name: shown(morning) for name, morning in week.mornings.items()}
    untested = "! untested gfx120X-all 3.12bypassed by matrix.toml: no runner has its hardware"
    assert pages["monday"] == [untested]
    assert [text.partition("UTC")[0][:48] for text in pages["wednesday"]] == [
        "✗ failed in build new gfx94X-dcgpu 3.12ninja: er",
        "✗ failed in test not good since 2026-11-17 01:17",
        untested[:48],
    ]
    assert len(pages["thursday"]) == 2
    since = "not good since 2026-11-17 01:17 UTC, some more recently"
    assert f"{since} gfx110X-all 3.12; gfx94X-dcgpu 3.12the job stage" in pages["thursday"][1]
    assert pages["friday"][0] == "! No night on 2026-11-20: it could not be frozen (log)."
    assert [text[:25] for text in pages["sunday"] if text.startswith("! late")] == [
        "! late gfx94X-dcgpu 3.121",
        "! late gfx120X-all 3.129 ",
    ]
    what_a_developer_had_built_is_apart(week)
    # Whoever reads a page that nobody has written anew is told so by its script.
    friday = parse((week.mornings["friday"].pages / "nights.html").read_bytes())
    assert friday.one("p", data_due="2026-11-20T13:17:00+00:00").attributes["hidden"] is None
    assert any(friday.all("a", href="https://github.com/me/wheels/actions/runs/1005"))
    # The set that an older night promoted stays within reach.
    wednesday = (week.mornings["wednesday"].pages / "nights.html").read_text()
    assert re.search(r'href="\.\./sets/\w+/simple/index.html">torch 2.11.0.dev20261116</a>', wednesday)
    # The status page is red for what failed, not for what the matrix says.
    summaries = {
        name: parse((morning.pages / "status.html").read_bytes()).one("header").text
        for name, morning in week.mornings.items()
    }
    assert "nothing failed in the last run" in summaries["monday"]
    assert not any("without a good set" in text for text in summaries.values())
    feed = ET.fromstring((week.mornings["sunday"].pages / "nights.atom").read_bytes())  # noqa: S314 - our own
    entries = {one.findtext("{*}title"): one.findtext("{*}content") for one in feed.iterfind("{*}entry")}
    assert list(entries)[:4] == [
        "nightly, 2026-11-22: 1 expected, 2 good",
        "release/2.10, 2026-11-21: 1 untested, 2 good",
        "nightly, 2026-11-21: 1 untested, 2 good",
        "nightly, 2026-11-20: not frozen",
    ]
    assert entries["nightly, 2026-11-18: 2 failed, 1 untested"] == (
        "failed in build, new: gfx94X-dcgpu 3.12: ninja: error: no space left on device\n"
        "failed in test, not good since 2026-11-17: gfx110X-all 3.12: 1 of 6 tests failed: test_matmul[bf16]"
    )


@pytest.mark.parametrize("python", ["all", "3.12"])
def test_a_run_by_hand_for_one_family_is_a_part_of_the_next_night(week: Week, python: str) -> None:
    """Its versions would be taken otherwise, by a manifest that is not the night's."""
    matrix = week.folder / "stack" / "matrix.toml"
    matrix.write_text(matrix.read_text().replace('["3.12"]', '["3.12", "3.13"]'))
    week.at(16, 15)
    week.commit("2.11.0.dev20261116")
    week.freeze("2001", families=RX7000, pythons=python)
    week.build("2001", RX7000, python="3.12")
    week.stage("2001")
    week.test("2001", RX7000)
    week.at(16, 20)
    week.promote("2001")
    week.at(17, 1, 17)
    shown = week.freeze("1002")
    states = dict(re.findall(r"^ *nightly-(\S+)-linux_aarch64 +(\w+)", shown.out, flags=re.MULTILINE))
    legs = [f"{family}-py{version}" for family in (MI300, RX7000, RX9000) for version in ("3.12", "3.13")]
    assert states == {**dict.fromkeys(legs, "missing"), f"{RX7000}-py3.12": "promoted"}
    assert "will not get through" not in shown.err
    week.build("1002", RX7000, python="3.13")
    week.build("1002", MI300)
    week.stage("1002")
    kept = {path.rpartition("/")[0] for path in keys_of(week.store, "sets/") if path.endswith("set.json")}
    assert len(kept) == 4
