from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from harness.redaction import REDACTED, redact, redact_value

PEM_FORMATS = [serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.PKCS8]
EC_KEY = ec.generate_private_key(ec.SECP256R1())
KEYS: list[ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey] = [
    EC_KEY,
    rsa.generate_private_key(public_exponent=65537, key_size=1024),
]
PEMS = [
    key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()
    for key in KEYS
    for form, encryption in [
        (PEM_FORMATS[0], serialization.NoEncryption()),
        (PEM_FORMATS[1], serialization.NoEncryption()),
        (PEM_FORMATS[1], serialization.BestAvailableEncryption(b"x")),
    ]
]
PUBLIC_PEM = (
    EC_KEY.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlX29mLWl0"


def embedded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("pem", PEMS)
@pytest.mark.parametrize("quotings", [0, 1, 2, 3])
def test_a_private_key_goes_however_often_it_was_quoted(pem: str, quotings: int) -> None:
    text = f"before\n{pem}after"
    for _ in range(quotings):
        text = json.dumps(text)
    redacted = redact(text)
    for line in pem.splitlines()[1:-1]:
        assert line not in redacted
    for _ in range(quotings):
        redacted = json.loads(redacted)
    assert redacted == f"before\n{REDACTED}\nafter"


def test_the_head_of_a_cut_private_key_goes_too() -> None:
    assert redact("log:\n" + PEMS[0][:150]) == f"log:\n{REDACTED}"
    assert json.loads(redact(json.dumps({"a": PEMS[0][:150], "b": 1}))) == {"a": REDACTED, "b": 1}


def test_two_private_keys_leave_what_is_between_them() -> None:
    assert redact(f"{PEMS[0]}between{PEMS[1]}") == f"{REDACTED}\nbetween{REDACTED}\n"


@pytest.mark.parametrize("pem", PEMS)
def test_a_private_key_in_base64_goes_whatever_it_is_called(pem: str) -> None:
    assert redact(f"tls.key: {embedded(pem)}\nnext: 1") == f"tls.key: {REDACTED}\nnext: 1"


def test_what_is_public_stays() -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nTUlJQw==\n-----END CERTIFICATE-----\n"
    text = f"{certificate}{PUBLIC_PEM}ca: {embedded(certificate)}\npub: {embedded(PUBLIC_PEM)}\n"
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"x {JWT} y", "x [redacted] y"),
        (f"line\\n{JWT}\\n", "line\\n[redacted]\\n"),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer [redacted]"),
        ("authorization: bearer  abcdefgh1234=", "authorization: bearer  [redacted]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
        ("kubectl --token=abc get pods", "kubectl --token=[redacted] get pods"),
        ("kubectl --token abc get pods", "kubectl --token [redacted] get pods"),
        ("kubectl --token='a b' get pods", "kubectl --token='[redacted]' get pods"),
        ('kubectl --password="a b" get', 'kubectl --password="[redacted]" get'),
        ("    token: abcdef.0123456789abcdef\n    x: 1", "    token: [redacted]\n    x: 1"),
        ("    password: s3cret!\n", "    password: [redacted]\n"),
        ("client-key-data: QUJD\nname: a", "client-key-data: [redacted]\nname: a"),
        ('"client-key-data":"QUJD","x":1', '"client-key-data":"[redacted]","x":1'),
        ('"client-key-data": "QUJD", "x": 1', '"client-key-data": "[redacted]", "x": 1'),
        (
            r'"m":"{\"client-key-data\": \"QUJD\", \"x\": 1}"',
            r'"m":"{\"client-key-data\": \"[redacted]\", \"x\": 1}"',
        ),
        (r'"m":"client-key-data: QUJD\nname: a"', r'"m":"client-key-data: [redacted]\nname: a"'),
        ("{'access_token': 'abc', 'n': 1}", "{'access_token': '[redacted]', 'n': 1}"),
        ("https://h/p?token=abc&x=1", "https://h/p?token=[redacted]&x=1"),
        ("PASSWORD=abc\n", "PASSWORD=[redacted]\n"),
        ("client-secret: abc", "client-secret: [redacted]"),
        (r'{"password": "a\"b\\", "x": "y"}', '{"password": "[redacted]", "x": "y"}'),
        (
            r'{"m": "{\"password\": \"a\\\"b\\\\\", \"x\": 1}"}',
            r'{"m": "{\"password\": \"[redacted]\", \"x\": 1}"}',
        ),
        ('"token": "cut off', '"token": "[redacted] off'),
        ('password: "a b"\nuser: "c"', 'password: "[redacted]"\nuser: "c"'),
    ],
)
def test_a_credential_goes_and_what_is_around_it_stays(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "automountServiceAccountToken: false\n",
        "- serviceAccountToken:\n    expirationSeconds: 3607\n",
        "- serviceAccountToken: {expirationSeconds: 3607}\n",
        '{"automountServiceAccountToken":false,"x":1}',
        '{"token": null, "x": 1}',
        '{"token": {"a": 1}, "x": ["token"]}',
        '{"message": "enter password: ", "kind": "x"}',
        '{"message": "enter password: "}',
        '{"message": "enter \\"password\\": ", "kind": "x"}',
        '{"message": "password=", "more": ["token=", "token:"], "x": ":"}',
        '{"token": "", "x": "y"}',
        "the bearer of this",
        "tokenize this: yes",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redact(text) == text


def secret(rng: random.Random, alphabet: str) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(12, 60)))


def jwt(rng: random.Random) -> str:
    return "eyJ" + ".".join(secret(rng, string.ascii_letters + string.digits + "_-") for _ in range(3))


PLAIN = string.ascii_letters + string.digits + "+/="
ANYTHING = PLAIN + " \\\"'{}[],:;\t\n<>&é"
CREDENTIALS: list[Callable[[random.Random], tuple[str, str]]] = [
    lambda rng: ((found := jwt(rng)), f"{found}"),
    lambda rng: ((found := secret(rng, PLAIN)), f"Authorization: Bearer {found}"),
    lambda rng: ((found := secret(rng, PLAIN)), f"kubectl --token={found}"),
    lambda rng: ((found := secret(rng, PLAIN)), f"kubectl --password {found}"),
    lambda rng: ((found := secret(rng, PLAIN)), yaml.safe_dump({"users": [{"token": found}]})),
    lambda rng: ((found := secret(rng, PLAIN)), yaml.safe_dump({"client-key-data": found, "z": 1})),
    lambda rng: ((found := secret(rng, PLAIN)), repr({"password": found, "user": "a"})),
    lambda rng: ((found := secret(rng, ANYTHING)), json.dumps({"password": found, "user": "a"})),
    lambda rng: ((found := secret(rng, ANYTHING)), json.dumps({"a": [{"token": found}, 1]}, indent=1)),
    lambda rng: (
        (found := secret(rng, ANYTHING)),
        json.dumps({"client-key-data": found}, separators=(",", ":")),
    ),
]
AROUND = ["", " ", "\n", "E0301 kubelet.go:12] ", '{"a": 1}\n', 'it\'s "so" ', "x=1, ", "\\", "é\t", "token "]


def quoted(text: str, times: int) -> str:
    for _ in range(times):
        text = json.dumps(text)
    return text


@pytest.mark.parametrize("seed", range(300))
def test_random_credentials_in_random_places(seed: int) -> None:
    rng = random.Random(seed)
    found, holder = rng.choice(CREDENTIALS)(rng)
    text = f"{rng.choice(AROUND)}{holder}\n{rng.choice(AROUND)}"
    depth = rng.randint(0, 3)
    redacted = redact(quoted(text, depth))
    assert REDACTED in redacted
    for _ in range(depth):
        redacted = json.loads(redacted)
    # `found` with its own escapes undone or not: neither may be left, nor a telling part of it.
    for form in (found, json.dumps(found)[1:-1]):
        assert form not in redacted
    for word in "".join(each if each in PLAIN else " " for each in found).split():
        assert len(word) < 6 or word not in redacted


@pytest.mark.parametrize("seed", range(300))
def test_json_stays_json_and_the_rest_of_it_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        *AROUND,
        "token: ",
        "password=",
        '"token": "',
        "--token ",
        "client-key-data: ",
        "Bearer ",
        "'",
        '"',
    ]
    document: dict[str, Any] = {
        f"k{n}": "".join(rng.choice(pieces) for _ in range(rng.randint(0, 6))) for n in range(6)
    }
    document["nested"] = json.dumps(document)
    document["none"], document["n"], document["yes"] = None, 7, True
    for layout in ({}, {"separators": (",", ":")}, {"indent": 1}):
        parsed = json.loads(redact(json.dumps(document, **layout)))
        assert list(parsed) == list(document)
        assert {type(value) for value in parsed.values()} == {str, type(None), int, bool}
        assert (parsed["none"], parsed["n"], parsed["yes"]) == (None, 7, True)


def test_long_text_without_credentials_takes_no_time() -> None:
    # Every pattern must stay linear: a log of a megabyte of anything is nothing special.
    for piece in (
        "a",
        "token",
        "\\",
        '"',
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "LS0tLS1CRUdJTi",
        "--token",
        "\\n",
    ):
        redact(piece * (200_000 // len(piece)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"token": "abc", "n": 1}, {"token": REDACTED, "n": 1}),
        ({"bearerToken": "abc"}, {"bearerToken": REDACTED}),
        ({"password": 1234}, {"password": REDACTED}),
        ({"token": None, "password": True}, {"token": None, "password": True}),
        ({"token": ""}, {"token": ""}),
        ({"token": {"password": "abc", "x": "y"}}, {"token": {"password": REDACTED, "x": "y"}}),
        ({"tokens": ["abc"]}, {"tokens": ["abc"]}),
        (["--token", "abc", "--x", "abc"], ["--token", REDACTED, "--x", "abc"]),
        (["--token"], ["--token"]),
        ([{"a": [f"x {JWT}"]}], [{"a": ["x [redacted]"]}]),
        (None, None),
        (1.5, 1.5),
    ],
)
def test_values_are_redacted_by_key(value: Any, expected: Any) -> None:
    assert redact_value(value) == expected
