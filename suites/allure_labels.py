"""What Allure shows of a check besides its outcome: area, requirements, issue links, evidence."""

from __future__ import annotations

import json
from typing import Any

import allure
import pytest

from suites.catalogue import Level, load

_SEVERITY = {
    Level.MUST: allure.severity_level.CRITICAL,
    Level.MUST_NOT: allure.severity_level.CRITICAL,
    Level.SHOULD: allure.severity_level.NORMAL,
    Level.MAY: allure.severity_level.MINOR,
}


def label(item: pytest.Item) -> None:
    """Label the check that is about to run."""
    ids = dict.fromkeys(name for mark in item.iter_markers("requirement") for name in mark.args)
    for requirement in map(load().get, ids):
        allure.dynamic.feature(requirement.area)
        allure.dynamic.story(requirement.id)
        allure.dynamic.severity(_SEVERITY[requirement.level])
        for known in requirement.deviations:
            allure.dynamic.issue(known.url, known.issue)


def attach(title: str, value: Any) -> None:
    """Attach one observation to the check that runs."""
    text = json.dumps(value, indent=1, default=str)
    allure.attach(text, name=title, attachment_type=allure.attachment_type.JSON)
