"""What Cairn's own workflows must keep to, beyond what actionlint, zizmor and the schema know.

Each rule is a function that lists what breaks it: nothing does in `.github`, and a planted fault does.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cairn.cli import main as program

ROOT = Path(__file__).parents[3]
GITHUB = ROOT / ".github"
ROLE = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
_HELD = re.compile(rf"{'|'.join(ROLE)}|outputs\.aws-|\bsecrets\.")
OUTCOMES = ("success", "failure", "cancelled", "skipped")

VALUES = {
    "STACK": "external-builds/pytorch",
    "STORE": "s3://bucket/wheels",
    "CACHE_STORE": "s3://bucket/cache",
    "COMPILER_CACHE": "--use-sccache",
    "LINE": "nightly",
    "line": "nightly",
    "NIGHTLY_LINES": "nightly,release/2.9",
    "FAMILIES": "all",
    "PYTHONS": "all",
    "NIGHT": "12345",
    "LEG": "leg",
    "LIKE": "12344",
    "TO": "nightly",
    "IMAGE": "no_rocm_image_ubuntu24_04",
    "WORK_DIR": ".cairn",
    "RELEASE": "12345",
    "MANIFEST": "12344",
    "ROCM_INDEX_URL": "https://rocm.example/simple/",
    "ROCM_SDK_VERSION": "7.10.0",
    "TEST_CONFIG": "default",
    "SHARD": "1",
    "RESULTS": "success",
    "NOTIFY": "https://chat.example/",
    "GITHUB_SHA": "0123",
    "GITHUB_REPOSITORY_OWNER": "owner",
    "GITHUB_STEP_SUMMARY": "summary",
}
"""What stands for the variables of a `run:`; the paths among them are there."""


@functools.cache
def _parsed(text: str) -> dict[Any, Any]:
    return dict(yaml.safe_load(text))


class Workflows:
    """The parsed files below a `.github`, with the text of each."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.files = {name: _parsed(text) for name, text in texts.items()}

    def jobs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every job, under the name of its file and its own."""
        for name, file in self.files.items():
            yield from ((f"{name}: {job}", node) for job, node in file.get("jobs", {}).items())

    def steps(self, of: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The steps of a job or an action, and those of the actions of ours that they use."""
        for step in of.get("steps", of.get("runs", {}).get("steps", ())):
            yield step
            if str(step.get("uses", "")).startswith("./.github/"):
                yield from self.steps(self.files[step["uses"].removeprefix("./.github/") + "/action.yml"])

    def promotes(self, job: Mapping[str, Any]) -> bool:
        """Whether a job promotes anything."""
        return any(re.search(r"\bpromote\b", str(step.get("run", ""))) for step in self.steps(job))


OWN = {
    path.relative_to(GITHUB).as_posix(): path.read_text(encoding="utf-8")
    for path in (*GITHUB.glob("workflows/*.yml"), *GITHUB.glob("actions/*/action.yml"))
}


def time_limits(workflows: Workflows) -> Iterator[str]:
    """GitHub's own limit is six hours, and a GPU that hangs uses them all; steps of an action take none."""
    for name, job in workflows.jobs():
        for node in (job, *job["steps"]):
            if not node.get("timeout-minutes"):
                yield f"{name}: {node.get('name') or node.get('uses')} has no timeout-minutes"


def pins(workflows: Workflows) -> Iterator[str]:
    """Actions of others by a whole commit, with the version in a comment; our own are there."""
    for name, text in workflows.texts.items():
        for line in re.findall(r"uses: (.*)", text):
            if line.startswith("./.github/"):
                if line.removeprefix("./.github/") + "/action.yml" not in workflows.files:
                    yield f"{name}: {line} is not there"
            elif not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", line):
                yield f"{name}: {line} is not pinned"


_ALSO_WRITES = {"lines": {"actions"}, "notify": {"issues"}}
"""Jobs that run nothing but `gh`, and what they may change with it."""


def permissions(workflows: Workflows) -> Iterator[str]:
    """None for all jobs, and for a job none that writes but the ones named here."""
    for name, file in workflows.files.items():
        if "jobs" in file and file.get("permissions") not in ({}, {"contents": "read"}):
            yield f"{name}: permissions of all jobs"
        if set(file.get(True, ())) & {"pull_request", "pull_request_target"}:  # YAML 1.1 reads `on` as true
            for job, node in file["jobs"].items():
                guarded = "github.event_name != 'pull_request'" in str(node.get("if", ""))
                if "pull_request_target" in file[True] or (
                    "write" in str(node.get("permissions")) and not guarded
                ):
                    yield f"{name}: {job} writes for a fork's pull request"
    for name, job in workflows.jobs():
        writing = {scope for scope, level in (job.get("permissions") or {}).items() if level != "read"}
        also = _ALSO_WRITES.get(name.rpartition(": ")[2], set())
        if "permissions" not in job or writing - {"id-token", "packages"} - also:
            yield f"{name}: permissions"


WHERE_CACHED = "${{ (inputs.cache-store || inputs.compiler-cache-bucket) && "
"""What stands before each credential of a step that builds, and may use a cache."""


def credentials(workflows: Workflows) -> Iterator[str]:
    """They are the outputs of a step; only commands that name the store get them, no job and no action."""
    for name, file in workflows.files.items():
        own = file.get("jobs") or {"": file["runs"]}
        beyond = {**file, "jobs": {job: {**node, "steps": []} for job, node in own.items()}, "runs": {}}
        if _HELD.search(str(beyond)):
            yield f"{name}: credentials for a whole job"
        for step in itertools.chain.from_iterable(node["steps"] for node in own.values()):
            if str(step.get("uses")).startswith("aws-actions/"):
                outputs = (step["with"].get("output-credentials"), step["with"].get("output-env-credentials"))
                if step.get("id") not in ("role", "again") or outputs != (True, False):
                    yield f"{name}: a role is given to the steps that follow"
            env = step.get("env", {})
            given, run = ROLE & env.keys(), step.get("run", "")
            cache = '--cache-store "$CACHE_STORE"' in run
            if given != (ROLE if cache or '--store "$STORE"' in run else set()) or (
                cache and not all(env[key].startswith(WHERE_CACHED) for key in given)
            ):
                yield f"{name}: {step.get('run')} has {sorted(given)}"
            webhook = step.get("uses") == "./.github/actions/notify" and "webhook" in step["with"]
            beside = {key: env[key] for key in env.keys() - ROLE}
            given = {**step["with"], "webhook": ""} if webhook else step.get("with")
            if _HELD.search(str({**step, "env": beside, "with": given})):
                yield f"{name}: {step.get('name') or step.get('uses')} gets credentials by another way"


def evaluate(text: str, context: Mapping[str, object]) -> object:
    """The value of an expression of GitHub's: its `&&`, `||` and `!` are Python's, and so is their order."""
    text = re.sub(r"^\$\{\{(.*)\}\}$", r"\1", text.strip(), flags=re.DOTALL)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    names = r"'[^']*'|\b(?:github|inputs|needs|vars)(?:\.[\w*-]+)+"
    text = re.sub(names, lambda m: m[0] if m[0].startswith("'") else f"get({m[0]!r})", text)
    known = {
        "get": lambda name: context.get(name, ""),
        "cancelled": lambda: False,
        "always": lambda: True,
        "contains": lambda values, one: one in values,
    }
    return eval(" ".join(text.split()), {"__builtins__": {}}, known)  # noqa: S307 - our own files


def runs(job: Mapping[str, Any], results: Mapping[str, str]) -> bool:
    """Whether a job runs where its needs ended so."""
    condition = str(job.get("if", "")) or "success()"
    if not re.search(r"\b(always|cancelled|failure|success)\(\)", condition):
        condition = f"success() && ({condition.removeprefix('${{').removesuffix('}}')})"
    success = str(all(result == "success" for result in results.values()))
    context: dict[str, object] = {f"needs.{name}.result": result for name, result in results.items()}
    context["needs.*.result"] = list(results.values())
    return bool(evaluate(condition.replace("success()", success), context))


def promotions(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - a rule in one place
    """No promotion without freeze and stage, or of a cancelled run; no job or step hides a failure.

    It goes by the records of the store: tests may have failed, but nothing that a job says is taken over.
    """
    for name, job in workflows.jobs():
        if not workflows.promotes(job):
            continue
        needs = [need for need in job.get("needs", ()) if need in ("freeze", "stage")]
        for results in itertools.product(OUTCOMES, repeat=len(job.get("needs", ()))):
            ended = dict(zip(job.get("needs", ()), results, strict=True))
            if any(ended[need] != "success" for need in needs) and runs(job, ended):
                yield f"{name} promotes after {ended}"
                break
        if job.get("needs") and "!cancelled()" not in str(job.get("if")):
            yield f"{name} promotes although the run was cancelled"
        if any("download-artifact" in str(step.get("uses")) for step in workflows.steps(job)):
            yield f"{name} promotes what artifacts say"
    for name, text in workflows.texts.items():
        if "continue-on-error" in text or re.search(r"\|\|\s*(true|:|echo)\b", text):
            yield f"{name} counts what failed as passed"


def matrices(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - as above
    """A leg that fails cancels no other; an empty matrix is guarded; a re-run meets no artifact of before."""
    for name, job in workflows.jobs():
        strategy = job.get("strategy")
        if strategy and strategy.get("fail-fast") is not False:
            yield f"{name}: fail-fast"
        if strategy and (
            output := re.search(r"fromJSON\((needs\.\w+\.outputs\.\w+)\)", str(strategy["matrix"]))
        ):
            for count in ("''", "'0'"):
                if f"{output[1]}_count != {count}" not in str(job.get("if")):
                    yield f"{name}: its matrix may be empty"
    for name, text in workflows.texts.items():
        for step in re.findall(r"uses: actions/upload-artifact@.*?(?=\n *- |\Z)", text, flags=re.DOTALL):
            if "github.run_attempt" not in step:
                yield f"{name}: an artifact without its attempt"


def command_lines(workflows: Workflows) -> Iterator[str]:
    """Every line of `cairn` in a `run:` is one that its own parser takes."""
    for name, file in workflows.files.items():
        of = [*file.get("jobs", {}).values(), file]
        for step in (
            step for node in of for step in node.get("steps", node.get("runs", {}).get("steps", ()))
        ):
            for words in _commands(str(step.get("run", ""))):
                refused = io.StringIO()
                with contextlib.redirect_stderr(refused), contextlib.suppress(SystemExit):
                    program.make_parser().parse_args(words[1:])
                    continue
                yield f"{name}: {' '.join(words)}: {refused.getvalue()}"


def _commands(script: str) -> Iterator[list[str]]:
    for line in script.replace("\\\n", " ").splitlines():
        if not line.strip().startswith("cairn "):
            continue
        line = re.sub(r"\$\{?(\w+)[^\s}/\"]*\}?", lambda m: VALUES[m[1]], line)  # noqa: PLW2901
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(itertools.takewhile(lambda word: not set(word) <= set("|&;<>"), lexer))
        yield words


RULES = (time_limits, pins, permissions, credentials, promotions, matrices, command_lines)

FAULTS: tuple[tuple[Callable[[Workflows], Iterator[str]], str, str], ...] = (
    (time_limits, "        timeout-minutes: 690\n", ""),
    (time_limits, "    timeout-minutes: 720\n", ""),
    (pins, "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "actions/checkout@v7"),
    (pins, "./.github/actions/night-stage", "./.github/actions/night-stages"),
    (permissions, "\npermissions: {}\n", "\npermissions: write-all\n"),
    (permissions, "      contents: read\n", "      contents: write\n"),
    (permissions, "  workflow_dispatch:\n", "  pull_request:\n"),
    (permissions, "  pull_request:\n", "  pull_request_target:\n"),
    (credentials, "output-env-credentials: false", "output-env-credentials: true"),
    (credentials, "output-env-credentials: false", "mask-aws-account-id: true"),
    (credentials, "\nenv:\n", "\nenv:\n  A: ${{ steps.role.outputs.aws-session-token }}\n"),
    (credentials, "    permissions:\n", "    env: {AWS_SESSION_TOKEN: x}\n    permissions:\n"),
    (credentials, "AWS_SESSION_TOKEN: ${{ steps.role.outputs.aws-session-token }}", "A: b"),
    (credentials, "          role:", "          token: ${{ secrets.TOKEN }}\n          role:"),
    (credentials, '--store "$STORE" --results', "--results"),
    (credentials, f"{WHERE_CACHED}steps.role.outputs.aws-session-token || '' }}}}", "x"),
    (promotions, "needs.freeze.result == 'success' && needs.stage.result == 'success'", "always()"),
    (promotions, "needs.freeze.result == 'success' && needs.stage.result == 'success' }}", "always() }}"),
    (promotions, "!cancelled() && needs.freeze.result == 'success' && needs.stage", "needs.stage"),
    (promotions, "    timeout-minutes: 720\n", "    timeout-minutes: 720\n    continue-on-error: true\n"),
    (promotions, '--store "$STORE"\n', '--store "$STORE" || true\n'),
    (matrices, "      fail-fast: false\n", ""),
    (matrices, "needs.freeze.outputs.build_count != '' && ", ""),
    (matrices, "-${{ github.run_attempt }}", ""),
    (command_lines, "--trigger nightly", "--trigger nightli"),
    (command_lines, "cairn ci night promote", "cairn ci night promot"),
    (command_lines, '--leg "$LEG"', '--leg "$LEG" --legs'),
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder that has what the command lines name."""
    (tmp_path / "external-builds").symlink_to(ROOT / "external-builds")
    (tmp_path / "matrix.json").write_text("{}", encoding="utf-8")
    (tmp_path / "artifacts").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("rule", RULES)
def test_our_own_workflows_keep_to(rule: Callable[[Workflows], Iterator[str]]) -> None:
    assert list(rule(Workflows(OWN))) == []


@pytest.mark.parametrize(("rule", "good", "bad"), FAULTS)
def test_a_planted_fault_is_found(rule: Callable[[Workflows], Iterator[str]], good: str, bad: str) -> None:
    name = min((name for name, text in OWN.items() if good in text), key=lambda name: "night" not in name)
    assert list(rule(Workflows({**OWN, name: OWN[name].replace(good, bad)}))), name


def test_each_role_has_environments_of_its_own() -> None:
    """A trust policy names the environment of a role's jobs, so that no other job can take that role."""
    own = Workflows(OWN)
    promoting = 0
    for name, job in own.jobs():
        roles = set(re.findall(r"vars\.CAIRN_ROLE_(\w+)", str(job)))
        of_nights = name.startswith(("workflows/nightly", "workflows/release"))
        assert len(roles) == (of_nights and name.rpartition(": ")[2] not in _ALSO_WRITES), name
        assert ("PROMOTE" in roles) == own.promotes(job), name
        assert bool(roles) == ("environment" in job), name
        for role in roles - {"PROMOTE"}:
            assert job["environment"] == f"night-{role.lower()}", name
        promoting += own.promotes(job)
        if own.promotes(job):
            assert not re.search(r"\bnight-", job["environment"]), name
    assert promoting >= 3  # a night, between nights, a release


def test_a_release_takes_nothing_from_the_caches_of_nights() -> None:
    nightly, release = (OWN[f"workflows/{name}.yml"] for name in ("nightly", "release"))
    caches = set(re.findall(r"vars\.(CAIRN_\w*CACHE\w*)", nightly))
    assert len(caches) == 3
    assert not [name for name in caches if f"vars.{name} " in release]


def test_what_builds_does_so_in_the_container_of_the_manifest() -> None:
    own = Workflows(OWN)
    for name, job in own.jobs():
        builds = any(re.search(r"cairn (ci night )?build\b", str(step.get("run"))) for step in own.steps(job))
        assert ("needs.freeze.outputs.image" in str(job.get("container"))) == builds, name


@pytest.mark.parametrize(
    ("to", "own", "environment"),
    [
        ("nightly", "", "nightly"),
        ("dev", "dev", "nightly"),
        ("release", "", "release"),
        ("prerelease", "nightly", "release"),
        ("", "", "release"),
    ],
)
def test_a_night_to_the_channel_of_a_release_asks_its_reviewers(to: str, own: str, environment: str) -> None:
    text = Workflows(OWN).files["workflows/nightly.yml"]["jobs"]["promote"]["environment"]
    assert evaluate(text, {"needs.freeze.outputs.to": to, "vars.CAIRN_CHANNEL": own}) == environment


def _group(file: str, **context: object) -> str:
    text = Workflows(OWN).files[f"workflows/{file}.yml"]["concurrency"]["group"]
    known = {"github.run_id": "123", "github.ref": "main", "github.event_name": "workflow_dispatch"} | context
    return re.sub(r"\$\{\{.*?\}\}", lambda m: str(evaluate(m[0], known)), text, flags=re.DOTALL)


INPUTS = {"line": "", "families": "all", "pythons": "all", "night": "", "like": "", "to": "", "image": ""}
DISPATCH = {f"inputs.{name}": value for name, value in INPUTS.items()}
SCHEDULE = {"github.event_name": "schedule"}


@pytest.mark.parametrize(
    "other",
    [
        DISPATCH,
        {"github.event_name": "workflow_dispatch", **DISPATCH, "github.ref": "feature"},
        *({**DISPATCH, f"inputs.{name}": "other"} for name in INPUTS),
        {**DISPATCH, "inputs.dry-run": True},
    ],
)
def test_a_night_by_hand_neither_replaces_nor_holds_up_that_of_the_schedule(other: dict[str, object]) -> None:
    assert _group("nightly", **other) != _group("nightly", **SCHEDULE)
    assert (other == DISPATCH) == (_group("nightly", **other) == _group("nightly", **DISPATCH))


def test_a_run_replaces_one_that_is_for_the_same() -> None:
    """So a night that hangs, or waits for reviewers, ends when the next one begins."""
    files = Workflows(OWN).files
    nightly = files["workflows/nightly.yml"]
    assert set(nightly[True]["workflow_dispatch"]["inputs"]) == {*INPUTS, "dry-run"}
    assert _group("nightly", **SCHEDULE) == _group("nightly", **SCHEDULE, **{"github.run_id": "124"})
    assert "github.run_id" not in str(files["workflows/nightly-watch.yml"]["concurrency"])
    for name in ("nightly", "nightly-watch", "release"):
        assert files[f"workflows/{name}.yml"]["concurrency"]["cancel-in-progress"] is True


def test_a_release_that_waits_for_reviewers_holds_up_no_other() -> None:
    runs = [{"inputs.release": ""}, {"inputs.release": "", "github.run_id": "124"}, {"inputs.dry-run": True}]
    groups = [_group("release", **run) for run in runs]
    assert groups == ["release-123", "release-124", "release-123"]  # a run is of one id, dry or not
    assert _group("release", **{"inputs.release": "123", "github.run_id": "125"}) == groups[0]
    wait = Workflows(OWN).files["workflows/release.yml"]["jobs"]["promote"]["concurrency"]
    assert wait["cancel-in-progress"] is True
    assert set(re.findall(r"inputs\.(\w+)", wait["group"])) == {"line", "to", "families", "pythons"}


def test_somebody_is_told_of_every_end_that_is_not_good() -> None:
    """Whichever job it was, freezing included; and a report is made."""
    for name in ("nightly", "release", "nightly-watch"):
        jobs = Workflows(OWN).files[f"workflows/{name}.yml"]["jobs"]
        told = jobs["notify"]
        assert set(told["needs"]) == set(jobs) - {"notify", "dry-run"}, name
        for bad, others in itertools.product(("failure", "cancelled"), ("success", "skipped")):
            for ended in told["needs"]:
                results = dict.fromkeys(told["needs"], others) | {ended: bad}
                assert runs(told, results), (name, results)
                if "report" in jobs and results["freeze"] != "skipped":
                    assert runs(jobs["report"], {need: results[need] for need in jobs["report"]["needs"]})
        assert not runs(told, dict.fromkeys(told["needs"], "success"))
