"""Credentials of an AWS role for a job of GitHub Actions, fetched when they are needed and renewed in time.

A token of 5 minutes is exchanged for credentials of the role, of 60 minutes; a step may take 12 hours.

Sources: "OpenID Connect reference" in GitHub's documentation; AssumeRoleWithWebIdentity in Amazon's API
reference of STS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import requests

from cairn import retry
from cairn.errors import CairnError, NetworkError
from cairn.output import Progress, silent
from cairn.retry import RetryPolicy
from cairn.store.protocol import CredentialsError

if TYPE_CHECKING:
    from obstore.store import S3Credential

_AUDIENCE = "sts.amazonaws.com"
_TIMEOUT = 30.0  # seconds
_ANSWER = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration|Code|Message)>([^<]*)<")
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(kw_only=True)
class GitHubRole:
    """Gives obstore the credentials of a role; called again shortly before they expire.

    Attributes:
        role: its ARN.
        token_url: GitHub's server of tokens, as the job has it.
        token: what the job shows there.
        sts_url: Amazon's server of credentials.
        say: told of every try that failed.
        failure: of the last try; obstore hands on its text alone.
    """

    role: str
    token_url: str
    token: str = field(repr=False)
    sts_url: str
    say: Progress = silent
    failure: CairnError | None = None
    config: Mapping[str, str] = field(default_factory=dict)  # obstore looks for settings there

    @classmethod
    def of_job(cls, say: Progress = silent) -> GitHubRole | None:
        """The role that `AWS_ROLE_ARN` names, in a job that may have a token; None elsewhere."""
        role, url, token = (
            os.environ.get(name, "")
            for name in ("AWS_ROLE_ARN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
        )
        if not (role and url and token):
            return None
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        sts = os.environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        return cls(role=role, token_url=url, token=token, sts_url=sts, say=say)

    def __call__(self) -> S3Credential:
        """Fetch credentials.

        Raises:
            CredentialsError: GitHub gives no token, or the role's trust policy does not take it.
            NetworkError: a server does not answer.
        """
        try:
            credentials = retry.retrying(self._fetch, retry=RetryPolicy(), say=self.say)
        except CairnError as error:
            self.failure = error
            raise
        self.failure = None
        return credentials

    def _fetch(self) -> S3Credential:
        try:
            answer = requests.get(
                self.token_url,
                params={"audience": _AUDIENCE},
                headers={"Authorization": f"bearer {self.token}"},
                timeout=_TIMEOUT,
            )
            token = str(_good(answer, "GitHub gives the job no token").json()["value"])
            form = {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": self.role,
                "RoleSessionName": f"cairn-{os.environ.get('GITHUB_RUN_ID', 'job')}",
                "WebIdentityToken": token,
            }
            answer = requests.post(self.sts_url, data=form, timeout=_TIMEOUT)
            fields = dict(_ANSWER.findall(_good(answer, f"{self.role} cannot be taken by this job").text))
            return {
                "access_key_id": fields["AccessKeyId"],
                "secret_access_key": fields["SecretAccessKey"],
                "token": fields["SessionToken"],
                "expires_at": datetime.fromisoformat(fields["Expiration"]),
            }
        except requests.ConnectionError as error:
            raise NetworkError(f"no answer from {error.request.url if error.request else 'STS'}") from None
        except requests.Timeout:
            raise NetworkError("GitHub or STS took too long to give credentials") from None
        except (KeyError, ValueError):
            raise CredentialsError(f"there are no credentials of {self.role} in the answer of STS") from None


def _good(answer: requests.Response, problem: str) -> requests.Response:
    if answer.status_code in _TRANSIENT:
        raise NetworkError(f"{answer.url.partition('?')[0]} answers {answer.status_code}")
    if not answer.ok:
        fields = dict(_ANSWER.findall(answer.text))
        why = f"{answer.status_code} {fields.get('Code', '')} {fields.get('Message', '')}".strip()
        raise CredentialsError(
            f"{problem}: {why}",
            tip="the role's trust policy must name this repository and the job's environment; "
            "the job needs `id-token: write`",
        )
    return answer
