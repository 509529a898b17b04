"""Kubernetes quantities, as far as the driver compares them: `1Gi` equals `1024Mi`."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def parse_quantity(text: str) -> Decimal:
    """The number behind a quantity such as `141Gi`, `500m` or `1e3`.

    Raises:
        ValueError: `text` isn't a quantity.
    """
    match = _FORM.match(text)
    if match is None:
        raise ValueError(f"expected a quantity such as 141Gi or 500m, got {text!r}")
    number, exponent, suffix = match.groups()
    value = Decimal(number + (exponent or ""))
    if suffix in _BINARY:
        return value * Decimal(1024 ** _BINARY[suffix])
    return value.scaleb(_DECIMAL[suffix]) if suffix else value
