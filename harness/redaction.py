"""Keeps secrets out of every output: tokens, private keys, kubeconfig credentials."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[redacted]"

_NAME = r"(?:client-key-data|client[-_]?secret|token|password|passwd)"
_PEM = r"-----{} [A-Z ]*PRIVATE KEY-----"
_BREAK = r"\\+[nrt]"
"""A line break or tab as it looks inside a JSON string, however often that was quoted again."""

_WHOLE = (
    # A key that was cut off goes as far as it may still be one.
    re.compile(rf"{_PEM.format('BEGIN')}(?:[\w+/=\s:,]|-(?!----)|{_BREAK})*(?:{_PEM.format('END')})?"),
    # Base64 of any PEM but a certificate or a public key, as kubeconfigs and Secrets embed it.
    re.compile(r"LS0tLS1CRUdJTi(?!BDRVJUSUZJQ0FU|BQVUJMSUMg)[A-Za-z0-9+/]{8,}=*"),
    re.compile(r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
)
_AFTER = (
    re.compile(r"(?i)(?P<head>\b(?:bearer|basic) +)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(
        rf"(?i)(?P<head>{_NAME}[ \t]*[:=][ \t]*|--{_NAME}[ \t]+)"
        r"(?!\[redacted\]|(?:true|false|null)\b)[^\s\"'\\,;&{}\[\]()<>]+"
    ),
)
_OPENING = re.compile(
    rf"(?i){_NAME}(?P<key_quote>\\*[\"'])?[ \t]*[:=][ \t]*(?P<opening>(?P<slashes>\\*)(?P<quote>[\"']))"
)
_RUN = re.compile(r"[^\s\"'\\]*")
_SECRET_KEY = re.compile(rf"(?i){_NAME}$")
_SECRET_FLAG = re.compile(rf"(?i)--{_NAME}")


def redact(text: str) -> str:
    """Replace anything that looks like a credential, in a log, YAML or JSON.

    That is: PEM private keys, JWTs, bearer tokens, and what stands after `token`, `password`,
    `client-key-data` and the like. Quotes and escapes around a value stay, so JSON stays JSON.
    """
    for pattern in _WHOLE:
        text = pattern.sub(REDACTED, text)
    text = _redact_quoted(text)
    for pattern in _AFTER:
        text = pattern.sub(rf"\g<head>{REDACTED}", text)
    return text


def redact_value(value: Any) -> Any:
    """Redact a JSON value: every text in it, and whole what a key such as `token` or a flag names."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_named(key, each) for key, each in value.items()}
    if isinstance(value, list):
        after_flag = [False, *(isinstance(each, str) and _is_flag(each) for each in value)]
        pairs = zip(value, after_flag, strict=False)
        return [REDACTED if hide and isinstance(each, str) else redact_value(each) for each, hide in pairs]
    return value


def _redact_named(key: str, value: Any) -> Any:
    if isinstance(value, str | int | float) and not isinstance(value, bool) and _SECRET_KEY.search(key):
        return REDACTED if value != "" else value
    return redact_value(value)


def _is_flag(text: str) -> bool:
    return _SECRET_FLAG.fullmatch(text) is not None


def _redact_quoted(text: str) -> str:
    parts: list[str] = []
    position = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < position:
            continue
        end = _end_of_value(text, opening)
        if end > opening.end():
            parts += [text[position : opening.end()], REDACTED]
            position = end
    return "".join([*parts, text[position:]])


def _end_of_value(text: str, opening: re.Match[str]) -> int:
    """Where the quoted value ends; where it starts, if the quote doesn't open one."""
    start = opening.end()
    key_quote = opening["key_quote"]
    # After `"... password: "` in a JSON document this is the quote that ends the text.
    if key_quote != opening["opening"] and (key_quote or text[start : start + 1] in ",:]}"):
        return start
    if opening["quote"] == "'":
        closing = re.compile(r"['\"\\\n]").search(text, start)
        ended = closing is not None and closing[0] == "'"
        return closing.start() if closing and ended else _end_of_run(text, start)
    depth = len(opening["slashes"])
    for closing in re.compile(r'(\\*)"|\n').finditer(text, start):
        # Text quoted n times over has its quotes escaped by 2^n - 1 backslashes: by more is a quote in the
        # value, by fewer the end of the text that the value is in.
        if closing[0] == "\n" or len(closing[1]) < depth:
            break
        if len(closing[1]) % (2 * (depth + 1)) == depth:
            return closing.end() - len(opening["opening"])
    return _end_of_run(text, start)


def _end_of_run(text: str, start: int) -> int:
    run = _RUN.match(text, start)
    return run.end() if run else start
