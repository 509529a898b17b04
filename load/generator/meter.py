"""Locust's table and charts: requests, and the stages of the pods' lives."""

from __future__ import annotations

from collections.abc import Callable

from locust.env import Environment

from load.generator.exchange import Answer
from load.model import Stage


class Refusal(Exception):
    """How Locust is told of a refused request. Its text has no names in it: each is a row of a table."""


class LocustMeter:
    """Fires Locust's `request` event. Its figures are for the eye: the reports have their own histograms."""

    def __init__(self, environment: Environment) -> None:
        self._fire: Callable[..., None] = environment.events.request.fire
        self._refusals: dict[str, Refusal] = {}

    def request(self, verb: str, seconds: float, answer: Answer) -> None:
        """One request to the API server."""
        self._fire(
            request_type=verb,
            name="pods",
            response_time=seconds * 1e3,
            response_length=len(answer.body),
            exception=None if 200 <= answer.status < 400 else self._refusal(answer),
            context={},
        )

    def stage(self, stage: Stage, seconds: float) -> None:
        """A pod came to a stage, so many seconds after it was due."""
        self._fire(
            request_type="DRA",
            name=stage.value,
            response_time=seconds * 1e3,
            response_length=0,
            exception=None,
            context={},
        )

    def _refusal(self, answer: Answer) -> Refusal:
        text = f"{answer.status} {answer.reason}".strip() if answer.status else f"no answer: {answer.reason}"
        return self._refusals.setdefault(text, Refusal(text))
