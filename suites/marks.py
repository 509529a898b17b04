"""What a check says of itself: its requirements, what it needs, which known deviation it meets."""

from __future__ import annotations

import pytest

from suites.catalogue import Form


def requirement(*ids: str) -> pytest.MarkDecorator:
    """The requirements that the check is for; every check has at least one."""
    return pytest.mark.requirement(*ids)


def needs_nodes(count: int) -> pytest.MarkDecorator:
    """How many real nodes the check takes; on a smaller cluster its requirements are blocked."""
    return pytest.mark.needs_nodes(count)


def needs_gates(**gates: bool) -> pytest.MarkDecorator:
    """Feature gates that the check's cluster has on top of its profile's; a run makes a cluster for them."""
    return pytest.mark.needs_gates(**gates)


without_driver = pytest.mark.without_driver
"""The check starts no driver and needs no node of this machine: it runs on every cluster, whoever made it."""

exclusive = pytest.mark.exclusive
"""The check changes the cluster for everybody, such as by restarting a component: it runs alone."""


def deviation(issue: str) -> pytest.MarkDecorator:
    """A known upstream deviation, by its issue in the catalogue: on affected versions the check must fail."""
    return pytest.mark.deviation(issue)


both_forms = pytest.mark.parametrize("form", [Form.EXPLICIT, Form.IMPLICIT], ids=str)
"""Run the check with an explicit extended resource name, and with the implicit one."""

explicit_only = pytest.mark.parametrize("form", [Form.EXPLICIT], ids=str)
"""Run the check with an explicit name: what it checks has no implicit form."""
