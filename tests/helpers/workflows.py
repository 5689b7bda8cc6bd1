"""What Cairn's own workflows must keep to, beyond what actionlint, zizmor and the schema know.

Each rule is a function that lists what breaks it in the files of a `.github`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import yaml

from cairn.cli import main as program
from helpers.trail import ROOT

GITHUB = ROOT / ".github"
ROLE = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
SIGN_KEY = "CAIRN_SIGN_PRIVATE_KEY"
SIGNS = re.compile(
    r"cairn ci night (stage|promote|step merge|step \w+ --phase keep)\b"
)  # no foreign code, or confined as ever
_HELD = re.compile(rf"{'|'.join(ROLE)}|outputs\.aws-|\bsecrets\.")
_OUTAGE = 15  # minutes: the ten of `--patience`, and what the step does besides
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
    "ROCM_VERSION": "7.10.0",
    "REFS": "torch=my-branch",
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


ALSO_WRITES = {"lines": {"actions"}, "notify": {"issues"}}
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
        also = ALSO_WRITES.get(name.rpartition(": ")[2], set())
        if "permissions" not in job or writing - {"id-token", "packages"} - also:
            yield f"{name}: permissions"


WHERE_CACHED = "${{ (inputs.cache-store || inputs.compiler-cache-bucket) && "
"""What stands before each credential of a step that builds, and may use a cache."""


def credentials(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - a rule in one place
    """They are the outputs of a step; only commands that name the store get them, no job and no action."""
    for name, file in workflows.files.items():
        own = file.get("jobs") or {"": file["runs"]}
        beyond = {**file, "jobs": {job: {**node, "steps": []} for job, node in own.items()}, "runs": {}}
        if _HELD.search(str(beyond)):
            yield f"{name}: credentials for a whole job"
        for step in itertools.chain.from_iterable(node["steps"] for node in own.values()):
            kept = step.get("with", {}).get("persist-credentials") is not False
            if kept and str(step.get("uses")).startswith("actions/checkout@"):
                yield f"{name}: the token stays in the checkout"
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
            if "--phase run" in run and "--store" in run.replace("--cache-store", ""):
                yield f"{name}: what runs foreign code reaches the store"
            if (SIGN_KEY in env) != bool(SIGNS.search(run)):
                yield f"{name}: {step.get('run')} has the key that signs, or lacks it"
            uses = str(step.get("uses"))
            secret = "webhook" if uses.endswith("/notify") else "sign-key" if "/night-" in uses else ""
            beside = {key: env[key] for key in env.keys() - ROLE - {SIGN_KEY}}
            given = {key: value for key, value in step.get("with", {}).items() if key != secret}
            if _HELD.search(str({**step, "env": beside, "with": given})):
                yield f"{name}: {step.get('name') or step.get('uses')} gets credentials by another way"


@functools.cache  # thousands of times for few texts
def _compiled(text: str) -> CodeType:
    text = re.sub(r"^\$\{\{(.*)\}\}$", r"\1", text.strip(), flags=re.DOTALL)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    names = r"'[^']*'|\b(?:github|inputs|needs|vars)(?:\.[\w*-]+)+"
    text = re.sub(names, lambda m: m[0] if m[0].startswith("'") else f"get({m[0]!r})", text)
    return compile(" ".join(text.split()), "<expression>", "eval")


def evaluate(text: str, context: Mapping[str, object]) -> object:
    """The value of an expression of GitHub's: its `&&`, `||` and `!` are Python's, and so is their order."""
    known = {
        "get": lambda name: context.get(name, ""),
        "cancelled": lambda: False,
        "always": lambda: True,
        "true": True,
        "false": False,
        "contains": lambda values, one: one in values,
    }
    return eval(_compiled(text), {"__builtins__": {}}, known)  # noqa: S307 - our own files


def runs(job: Mapping[str, Any], results: Mapping[str, str]) -> bool:
    """Whether a job runs where its needs ended so."""
    condition = str(job.get("if", "")) or "success()"
    if not re.search(r"\b(always|cancelled|failure|success)\(\)", condition):
        condition = f"success() && ({condition.removeprefix('${{').removesuffix('}}')})"
    success = str(all(result == "success" for result in results.values()))
    failure = str(any(result == "failure" for result in results.values()))
    condition = condition.replace("success()", success).replace("failure()", failure)
    context: dict[str, object] = {f"needs.{name}.result": result for name, result in results.items()}
    context["needs.*.result"] = list(results.values())
    context["needs.freeze.outputs.to"] = "nightly"
    return bool(evaluate(condition, context))


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
        whole = any("--whole" in str(step.get("run")) for step in workflows.steps(job))
        if whole != name.startswith("workflows/release"):
            yield f"{name}: a release goes whole or not at all, and a night leg by leg"
    for name, text in workflows.texts.items():
        if "continue-on-error" in text or re.search(
            r"\|\|\s*(true|:|echo)\b|;\s*(true|exit 0)\b|set \+e\b", text
        ):
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
            # upload-artifact leaves them out, and an artifact without files is no failure.
            if re.search(r"(?m)^ *(path: )?\.\w", step) and "include-hidden-files: true" not in step:
                yield f"{name}: an artifact of hidden files, which are left out"


def command_lines(workflows: Workflows) -> Iterator[str]:
    """Every line of `cairn` in a `run:` is one that its own parser takes."""
    for name, file in workflows.files.items():
        of = [*file.get("jobs", {}).values(), file]
        for step in (
            step for node in of for step in node.get("steps", node.get("runs", {}).get("steps", ()))
        ):
            for words in _commands(str(step.get("run", ""))):
                if refused := _refused(words):
                    yield f"{name}: {' '.join(words)}: {refused}"


@functools.cache
def _refused(words: tuple[str, ...]) -> str:
    """What the program says against a command line; empty for nothing."""
    refused = io.StringIO()
    with contextlib.redirect_stderr(refused), contextlib.suppress(SystemExit):
        program.make_parser().parse_args(words[1:])
        return ""
    return refused.getvalue()


@functools.cache
def _commands(script: str) -> tuple[tuple[str, ...], ...]:
    commands = []
    for line in script.replace("\\\n", " ").splitlines():
        if not line.strip().startswith("cairn "):
            continue
        line = re.sub(r"\$\{?(\w+)[^\s}/\"]*\}?", lambda m: VALUES[m[1]], line)  # noqa: PLW2901
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        commands.append(tuple(itertools.takewhile(lambda word: not set(word) <= set("|&;<>"), lexer)))
    return tuple(commands)


def roles(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - as above
    """A job has one role, in an environment of that role's own, which its trust policy names."""
    for name, job in workflows.jobs():
        taken = set(re.findall(r"vars\.CAIRN_ROLE_(\w+)", str(job)))
        of_nights = name.startswith(("workflows/nightly", "workflows/release"))
        if len(taken) != (of_nights and name.rpartition(": ")[2] not in ALSO_WRITES):
            yield f"{name}: has the roles {sorted(taken)}"
        promotes, environment = workflows.promotes(job), str(job.get("environment", ""))
        if ("PROMOTE" in taken) != promotes or bool(taken) != bool(environment):
            yield f"{name}: a role of another job, or no environment"
        elif promotes and "release" in name and environment != "release":
            yield f"{name}: no reviewer of a release is asked"
        elif promotes and (not re.search(r"\bnightly\b|\brelease\b", environment) or "night-" in environment):
            yield f"{name}: promotes in the environment {environment}"
        elif not promotes and taken and environment != f"night-{min(taken).lower()}":
            yield f"{name}: is in the environment {environment}"

    asked = str(workflows.files["workflows/nightly.yml"]["jobs"]["promote"].get("environment"))
    for to, own, environment in (
        ("nightly", "", "nightly"),
        ("dev", "dev", "nightly"),
        ("release", "", "release"),
    ):
        if evaluate(asked, {"needs.freeze.outputs.to": to, "vars.CAIRN_CHANNEL": own}) != environment:
            yield f"a night to {to} asks the reviewers of {asked}"


def caches(workflows: Workflows) -> Iterator[str]:
    """A release takes nothing from the caches that nights write."""
    nightly, release = (workflows.texts[f"workflows/{name}.yml"] for name in ("nightly", "release"))
    for name in set(re.findall(r"vars\.(CAIRN_\w*CACHE\w*)", nightly)):
        if re.search(rf"vars\.{name}\b", release):
            yield f"a release reads {name}"


def containers(workflows: Workflows) -> Iterator[str]:
    """What builds does so in the container of the manifest, and nothing else does."""
    for name, job in workflows.jobs():
        commands = (str(step.get("run")) for step in workflows.steps(job))
        builds = any(
            re.search(r"cairn (build|ci night step build --phase run)\b", command) for command in commands
        )
        if ("needs.freeze.outputs.image" in str(job.get("container"))) != builds:
            yield f"{name}: container"


def waits(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - as above
    """A run replaces one that is for the same alone; a bucket that is away fits into each time limit."""
    nightly, release, watch = (
        workflows.files[f"workflows/{name}.yml"] for name in ("nightly", "release", "nightly-watch")
    )
    for file in (nightly, release, watch):
        if file["concurrency"]["cancel-in-progress"] is not True:
            yield f"{file['name']}: a run that hangs holds up the next"
    inputs = set(nightly[True]["workflow_dispatch"]["inputs"]) - {"dry-run"}
    of_group = set(re.findall(r"(?:inputs|github)\.([\w-]+)", nightly["concurrency"]["group"]))
    if of_group != {*inputs, "dry-run", "run_id", "ref", "event_name", "actor"}:
        yield f"nights replace others by {sorted(of_group ^ inputs)}"
    if "inputs.release || github.run_id" not in release["concurrency"]["group"]:
        yield "a release holds up another"
    wait = release["jobs"]["promote"].get("concurrency", {})
    if set(re.findall(r"inputs\.(\w+)", str(wait))) != {"line", "to", "families", "pythons"}:
        yield "a release waits for its reviewers for ever"
    for name, job in workflows.jobs():
        for step in job["steps"]:
            commands = [str(one.get("run")) for one in workflows.steps({"steps": [step]})]
            reaches = any('--store "$STORE"' in command for command in commands)
            if reaches and step.get("timeout-minutes", 0) < _OUTAGE:
                yield f"{name}: {step.get('name') or step['uses']} ends before a bucket is waited for"


def notifications(workflows: Workflows) -> Iterator[str]:  # noqa: C901 - as above
    """Somebody is told of every end that is not good, whichever job it was; a report is made then."""
    for name in ("nightly", "release", "nightly-watch"):
        jobs = workflows.files[f"workflows/{name}.yml"]["jobs"]
        told = jobs["notify"]
        if set(told["needs"]) != set(jobs) - {"notify", "dry-run"}:
            yield f"{name}: somebody is not told of every job"
            continue
        if runs(told, dict.fromkeys(told["needs"], "success")):
            yield f"{name}: somebody is told of what went well"
        for bad, others in itertools.product(("failure", "cancelled"), ("success", "skipped")):
            for ended in told["needs"]:
                results = dict.fromkeys(told["needs"], others) | {ended: bad}
                if not runs(told, results):
                    yield f"{name}: nobody is told of {results}"
                if "report" in jobs and results["freeze"] != "skipped":
                    needs = {need: results.get(need, "success") for need in jobs["report"]["needs"]}
                    if not runs(jobs["report"], needs):
                        yield f"{name}: there is no report of {results}"


RULES = (
    *(time_limits, pins, permissions, credentials, promotions, matrices, command_lines),
    *(roles, caches, containers, waits, notifications),
)
