"""The text of Cairn's workflows, fitted to a repository that installs Cairn; `init` writes it there.

The files stay as they are but for what differs there: where Cairn comes from, the default of the stack, the
runners of jobs that no matrix places, and how jobs come to their credentials. So what is edited in Cairn's
workflows reaches every repository with the next `cairn ci init`. They are fitted as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from cairn import DISTRIBUTION, shipped
from cairn.errors import CairnError

Credentials = Literal["roles", "keys", "none"]
"""Roles of AWS by OIDC; keys in the secrets of environments; none, for a folder."""

WORKFLOWS = ("nightly.yml", "nightly-watch.yml", "release.yml")
HOSTED = ("ubuntu-24.04",)
"""The labels of the runner of jobs that no matrix places, in Cairn's own workflows."""
ACCESS_KEY, SECRET_KEY = "CAIRN_S3_ACCESS_KEY_ID", "CAIRN_S3_SECRET_ACCESS_KEY"
SIGN_KEY = "CAIRN_SIGN_PRIVATE_KEY"
"""The secret of an environment whose jobs sign (`release.trust.signers`, which takes cryptography)."""
ENDPOINT = "CAIRN_S3_ENDPOINT_URL"
"""The variable of the repository that names the server of its bucket."""
ROCM_INDEX_URL = "CAIRN_ROCM_INDEX_URL"
"""The variable that names the index of the ROCm SDK, for a stack that does not make its own."""

_HEADER = "# From Cairn {version}, by `cairn ci init`, which leaves it alone once it is changed.\n"
_INSTALL = '--constraint constraints.txt ".[$EXTRAS]"'
_CONSTRAINTS = ".github/actions/setup-cairn/constraints.txt"
_PAGES = {
    "docs/how-to/run-the-nightly.md": ".github/cairn/README.md",
    "docs/explanation/": "Cairn's docs/explanation/",
}
_JOB = re.compile(r"^  ([\w-]+):\n((?:    .*\n|\s*\n|  +#.*\n)*)", re.MULTILINE)
_ROLE = re.compile(r"\bvars\.CAIRN_ROLE_(\w+)")
_ENVIRONMENT = re.compile(r"^    environment: (.*)$", re.MULTILINE)
_HOSTED_JOB = re.compile(
    rf"\bruns-on: (\S*|\$\{{\{{ vars\.\w+ \|\| '){re.escape(HOSTED[0])}(' \}}\}})?$", re.MULTILINE
)
_LINE = re.compile(r"(\bvars\.CAIRN_LINE \|\| )'([^']+)'")
_TOKEN = re.compile(r"^ +id-token: write(?!.*\bsign\b).*\n", re.MULTILINE)
_AWS_STEP = re.compile(
    r"(?:^ *#.*\n)*^( *)- .*\n(?:\1  .*\n)*?"
    r"\1  uses: aws-actions/configure-aws-credentials@.*\n(?:\1  .*\n)*",
    re.MULTILINE,
)
_OUTPUTS = {"access-key-id": ACCESS_KEY, "secret-access-key": SECRET_KEY}


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from Cairn's own repository.

    Attributes:
        stack: the folder of the stack, from the root of the repository.
        line: the release line of the scheduled night, where no variable names one.
        requirement: what pip installs: a `git+https://…@commit`, the URL of a wheel with its sha256, or the
            path of one in the repository.
        runs_on: the labels of the runner of jobs that no matrix places.
        credentials: how jobs come to them.
        version: Cairn's.
    """

    stack: str
    line: str
    requirement: str
    runs_on: tuple[str, ...] = HOSTED
    credentials: Credentials = "roles"
    version: str


def fitted(terms: Terms) -> Mapping[str, bytes]:
    """Return the workflows and actions, by their paths in the repository.

    Raises:
        CairnError: they have changed so much that they cannot be fitted.
    """
    files: dict[str, bytes] = {_CONSTRAINTS: shipped.read("constraints.txt")[""]}
    header = _HEADER.format(version=terms.version)
    for name, data in shipped.read("github/").items():
        if name.startswith("actions/") or name in (
            *(f"workflows/{workflow}" for workflow in WORKFLOWS),
            "zizmor.yml",
        ):
            text = _fit(name, data.decode(), terms)
            files[f".github/{name}"] = (header + text).encode()
    return files


def roles_of_jobs(files: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """Return the environments of the jobs that take each role; "" stands for a job in none."""
    roles: dict[str, dict[str, None]] = {}
    for text in _workflow_texts(files):
        for _, job in _jobs(text):
            for role in _ROLE.findall(job):
                roles.setdefault(role, {}).update(dict.fromkeys(_environments_of(job) or ("",)))
    return {role: tuple(environments) for role, environments in roles.items()}


def environments(files: Mapping[str, bytes], *, using: str = "") -> tuple[str, ...]:
    """Return every environment that a job of the workflows, with this in its text, may run in."""
    jobs = (job for text in _workflow_texts(files) for _, job in _jobs(text))
    of_jobs = (_environments_of(job) for job in jobs if using in job)
    return tuple(dict.fromkeys(name for names in of_jobs for name in names))


def scheduled_line(files: Mapping[str, bytes]) -> str | None:
    """Return the line of the scheduled night where the variable CAIRN_LINE is not set."""
    matches = (_LINE.search(text) for text in _workflow_texts(files))
    return next((match[2] for match in matches if match), None)


def _workflow_texts(files: Mapping[str, bytes]) -> Iterator[str]:
    yield from (data.decode() for path, data in files.items() if path.startswith(".github/workflows/"))


def _jobs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each job of a workflow."""
    _, _, jobs = text.partition("\njobs:\n")
    yield from ((match[1], match[2]) for match in _JOB.finditer(jobs))


def _environments_of(job: str) -> tuple[str, ...]:
    match = _ENVIRONMENT.search(job)
    if match is None:
        return ()
    value = match[1].partition(" #")[0].strip()
    # An expression such as `a == 'x' && 'nightly' || 'release'`: what it may come to is quoted.
    names = re.findall(r"'([^']+)'", value) if value.startswith("${{") else [value]
    return tuple(dict.fromkeys(names))


def _fit(name: str, text: str, terms: Terms) -> str:
    text = text.replace("external-builds/pytorch", terms.stack)
    text = _LINE.sub(lambda match: f"{match[1]}'{terms.line}'", text)
    for page, target in _PAGES.items():
        text = text.replace(page, target)
    if terms.runs_on != HOSTED:
        # Also one that a variable may name, such as that of `stage`.
        text = _HOSTED_JOB.sub(f"runs-on: {json.dumps(list(terms.runs_on))}", text)
    if name == "actions/setup-cairn/action.yml":
        text = _with_installation(text, terms.requirement)
    if terms.credentials != "roles":
        text = _without_roles(text, terms.credentials, is_action=name.startswith("actions/"))
    if terms.credentials == "keys" and name.startswith("workflows/"):
        text = re.sub(
            r"^( +)AWS_REGION: .*\n",
            rf"\g<0>\1AWS_ENDPOINT_URL_S3: ${{{{ vars.{ENDPOINT} }}}}\n",
            text,
            flags=re.MULTILINE,
        )
    return text


def _with_installation(text: str, requirement: str) -> str:
    if text.count(_INSTALL) != 1:
        raise CairnError("the action setup-cairn installs Cairn in a way that `cairn ci init` does not know")
    target = f"{DISTRIBUTION}[$EXTRAS] @ {requirement}"
    if requirement.startswith("./"):
        target = f"{requirement}[$EXTRAS]"
    return text.replace(_INSTALL, f'--constraint {_CONSTRAINTS} "{target}"').replace(
        "Cairn from this checkout, in", "Cairn as this repository pins it, in"
    )


def _without_roles(text: str, credentials: Credentials, *, is_action: bool) -> str:
    """Take roles out of a file; steps that have a role's credentials then have keys, or none."""
    keys = credentials == "keys"
    text = _TOKEN.sub("", _AWS_STEP.sub("", text))
    text = re.sub(r"^ +AWS_(SESSION_TOKEN|ROLE_ARN): .*\n", "", text, flags=re.MULTILINE)
    inputs, declared = "", ""
    for name, secret in _OUTPUTS.items():
        place = f"inputs.{name}" if is_action else f"secrets.{secret}"
        env = f"AWS_{name.upper().replace('-', '_')}"
        if keys:
            text = re.sub(rf"steps\.\w+\.outputs\.aws-{name}", place, text)
            inputs += rf"\1{name}: ${{{{ secrets.{secret} }}}}\n"
            about = "A key of the store, for the steps that reach it."
            declared += f"  {name}:\n    description: {about}\n    required: true\n"
        else:
            text = re.sub(rf"^ +{env}: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^( +)role: \$\{\{ vars\.CAIRN_ROLE_\w+ \}\}\n", inputs, text, flags=re.MULTILINE)
    text = re.sub(r"^  role:\n(?:    .*\n)+", declared, text, flags=re.MULTILINE)
    text = re.sub(r"^( +)env:\n(?!\1 )", "", text, flags=re.MULTILINE)  # with nothing left in it
    if left := re.search(r"CAIRN_ROLE_\w+|inputs\.role\b|outputs\.aws-[\w-]+|aws-actions/\S+", text):
        raise CairnError(f"a workflow uses {left[0]} in a way that `cairn ci init` does not know")
    return text
