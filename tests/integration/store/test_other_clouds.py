"""The contract on Google's and Azure's protocols, where a server of them is named.

    CAIRN_TEST_GS_STORE=gs://bucket CAIRN_TEST_GS_ENDPOINT=http://127.0.0.1:9023 pytest …
    CAIRN_TEST_AZ_STORE=az://container CAIRN_TEST_AZ_ENDPOINT=http://127.0.0.1:10000/devstoreaccount1 pytest …

Each test takes a prefix of its own. Azure's server can be azurite (npm). obstore speaks the XML protocol of
Google's, which gcp-storage-emulator (PyPI) does not.
"""

from __future__ import annotations

import os
import secrets

import pytest

from cairn.store import opening
from cairn.store.protocol import Store
from helpers.store_contract import StoreContract


def new_store(scheme: str) -> Store:
    """A prefix in the bucket that is named."""
    name = f"CAIRN_TEST_{scheme.upper()}_"
    if f"{name}STORE" not in os.environ:
        pytest.skip(f"no server is named: {name}STORE, {name}ENDPOINT")
    url = f"{os.environ[f'{name}STORE']}/{secrets.token_hex(8)}"
    return opening.open_store(url, endpoint_url=os.environ.get(f"{name}ENDPOINT"))


class TestGoogle(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return new_store("gs")


class TestAzure(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return new_store("az")
