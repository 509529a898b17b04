"""The two forms of an extended resource's name. That checks hold for the implicit one too is ER-02."""

from __future__ import annotations

import pytest

from suites.catalogue import Form
from suites.marks import requirement

both_forms = pytest.mark.parametrize(
    "form",
    [
        pytest.param(Form.EXPLICIT, id=str(Form.EXPLICIT)),
        pytest.param(Form.IMPLICIT, id=str(Form.IMPLICIT), marks=requirement("ER-02")),
    ],
)
"""Run the check with the explicit name and with the implicit one."""
