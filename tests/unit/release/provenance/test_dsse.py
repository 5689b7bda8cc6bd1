"""Envelopes: the specification's own example, and everything that somebody could do to one."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cairn import datafile
from cairn.release.provenance import dsse
from cairn.release.provenance.dsse import SignatureError
from cairn.release.trust.signers import Signer

PAYLOAD = b'{"schema": "cairn.record/1"}'
OURS = Signer(Ed25519PrivateKey.from_private_bytes(b"\1" * 32))
ALSO_OURS = Signer(Ed25519PrivateKey.from_private_bytes(b"\2" * 32))
THEIRS = Signer(Ed25519PrivateKey.from_private_bytes(b"\3" * 32))
TRUSTED = {signer.key_id: signer.public for signer in (OURS, ALSO_OURS)}


def signed(by: Signer = OURS, payload: bytes = PAYLOAD, kind: str = dsse.RECORD) -> dict[str, Any]:
    return json.loads(datafile.dumps(dsse.sign(payload, kind, by)))


def check(envelope: dict[str, Any] | bytes, kind: str = dsse.RECORD) -> dsse.Signed:
    data = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    return dsse.verify(dsse.loads(data, dsse.Envelope, name="it"), kind, TRUSTED, name="it")


def flipped(text: str, at: int = 0) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[at] ^= 1
    return base64.b64encode(raw).decode()


def test_the_encoding_is_that_of_the_specification() -> None:
    # protocol.md, "Test Vectors".
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == expected
    assert dsse.pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "  # bytes are counted, not characters


def test_what_was_signed_comes_back() -> None:
    assert check(signed()) == dsse.Signed(payload=PAYLOAD, key_ids=(OURS.key_id,))
    assert signed() == signed()


def test_url_safe_base64_is_read_too() -> None:
    payload = b"\xfb\xff\xfe" * 3  # all `+` and `/` in the standard alphabet
    envelope = signed(payload=payload)
    for value in (envelope, envelope["signatures"][0]):
        for name in {"payload", "sig"} & value.keys():
            value[name] = value[name].replace("+", "-").replace("/", "_")
    assert check(envelope).payload == payload


def test_an_envelope_without_a_key_id_is_tried_with_every_trusted_key() -> None:
    envelope = signed(ALSO_OURS)
    del envelope["signatures"][0]["keyid"]
    assert check(envelope).key_ids == (ALSO_OURS.key_id,)


def test_an_unknown_cosigner_is_passed_over() -> None:
    envelope = signed()
    envelope["signatures"].insert(0, signed(THEIRS)["signatures"][0])
    assert check(envelope).key_ids == (OURS.key_id,)


def _signatures(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda envelope: change(envelope["signatures"][0])


ATTACKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "payload flipped": (lambda e: e.update(payload=flipped(e["payload"])), "is not what key .* signed"),
    "payload replaced": (lambda e: e.update(payload=base64.b64encode(b"{}").decode()), "is not what key"),
    "payload not base64": (lambda e: e.update(payload="%%%"), "the payload of it is not base64"),
    "payload with spaces": (lambda e: e.update(payload=e["payload"] + " "), "payload of it is not base64"),
    "payload with other unused bits": (
        lambda e: e.update(payload=e["payload"].replace("In0=", "In1=").replace("fQ==", "fR==")),
        "as anybody writes it",
    ),
    "signature flipped": (_signatures(lambda s: s.update(sig=flipped(s["sig"]))), "is not what key"),
    "last byte of a signature": (_signatures(lambda s: s.update(sig=flipped(s["sig"], -1))), "not what key"),
    "signature empty": (_signatures(lambda s: s.update(sig="")), "is not what key"),
    "signature not base64": (_signatures(lambda s: s.update(sig="!")), "a signature of it is not base64"),
    "signature too long": (
        _signatures(lambda s: s.update(sig=s["sig"][:-2] + "AAAA==")),
        "signature|base64|what key",
    ),
    "id of another trusted key": (_signatures(lambda s: s.update(keyid=ALSO_OURS.key_id)), "is not what key"),
    "id of nobody": (
        _signatures(lambda s: s.update(keyid="0" * 64)),
        "signed by 0000000000000000, which is not",
    ),
    "id in capitals": (_signatures(lambda s: s.update(keyid=OURS.key_id.upper())), "which is not trusted"),
    "no key id and a foreign signature": (
        lambda e: e.update(signatures=[{"sig": signed(THEIRS)["signatures"][0]["sig"]}]),
        "an unnamed key, which is not trusted",
    ),
    "no signatures": (lambda e: e.update(signatures=[]), "it has no signature"),
    "another type": (
        lambda e: e.update(payloadType=dsse.IN_TOTO),
        "is signed as 'application/vnd.in-toto",
    ),
    "type with a space": (lambda e: e.update(payloadType=dsse.RECORD + " "), "is signed as"),
    "unknown field": (lambda e: e.update(more=1), "unknown field"),
    "unknown field of a signature": (_signatures(lambda s: s.update(cert="x")), "unknown field"),
    "payload missing": (lambda e: e.pop("payload"), "missing required field `payload`"),
    "signatures an object": (lambda e: e.update(signatures={}), "not an envelope"),
}


@pytest.mark.parametrize(("change", "said"), ATTACKS.values(), ids=ATTACKS)
def test_an_envelope_that_was_touched_is_refused(change: Callable[[Any], object], said: str) -> None:
    envelope = signed()
    before = json.dumps(envelope)
    change(envelope)
    assert json.dumps(envelope) != before
    with pytest.raises(SignatureError, match=said):
        check(envelope)


def test_neither_a_signature_of_another_type_nor_a_broken_one_beside_a_good_one_holds() -> None:
    other = signed(kind=dsse.IN_TOTO) | {"payloadType": dsse.RECORD}
    both = signed()
    broken = {"keyid": ALSO_OURS.key_id, "sig": flipped(signed(ALSO_OURS)["signatures"][0]["sig"])}
    both["signatures"].append(broken)
    for envelope in (other, both):
        with pytest.raises(SignatureError, match="is not what key"):
            check(envelope)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        json.dumps(signed()).encode() + b"{}",
        json.dumps(signed()).encode().replace(b'{"payloadType"', b'{"payload": "AA==", "payloadType"'),
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["empty", "a list", "two documents", "a name twice", "not UTF-8", "deep"],
)
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(SignatureError, match="not an envelope"):
        check(data)
