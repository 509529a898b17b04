"""Keeps secrets out of every output: tokens, private keys, kubeconfig credentials."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)(?<=client-key-data: )[A-Za-z0-9+/=]+"),
    re.compile(r'(?i)(?<="client-key-data":")[A-Za-z0-9+/=]+'),
)


def redact(text: str) -> str:
    """Replace anything that looks like a credential (PEM keys, JWTs, bearer tokens, client keys)."""
    for pattern in _PATTERNS:
        text = pattern.sub(REDACTED, text)
    return text
