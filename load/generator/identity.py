"""Who the API server takes us for: priority and fairness names its FlowSchema in every answer."""

from __future__ import annotations

from load.generator.exchange import Answer
from load.model import Flow, Orders


class Refused(Exception):
    """The run must not measure: it would not measure what it says."""


def check_sender(answer: Answer, orders: Orders) -> Flow:
    """Judge the answer to a dry run of a create; return where its sender was put.

    Raises:
        Refused: no answer, no such pod could ever be created, or the sender is exempt or in another
            FlowSchema than the one made for it.
    """
    if not answer.status:
        raise Refused(f"the API server can't be reached: {answer.reason}: {answer.message}")
    flow = answer.flow
    if flow is None:
        raise Refused("answers carry no priority and fairness UIDs: is the feature off?")
    if {flow.flow_schema_uid, flow.priority_level_uid} & set(orders.exempt_uids):
        raise Refused(
            "the sender is exempt from priority and fairness (like system:masters): "
            "what it measures holds for nobody else"
        )
    if flow.flow_schema_uid != orders.expected_flow_schema_uid:
        raise Refused(
            f"the sender is in FlowSchema {flow.flow_schema_uid}, not in its own "
            f"({orders.expected_flow_schema_uid})"
        )
    if not _could_succeed(answer):
        raise Refused(f"create of a pod: {answer.status} {answer.reason}: {answer.message}")
    return flow


def check_observer(flow_schema_uid: str, orders: Orders) -> list[str]:
    """Faults, if the observer is not where its orders say."""
    if orders.observer_flow_schema_uid in ("", flow_schema_uid):
        return []
    return [
        f"the observer is in FlowSchema {flow_schema_uid or 'unknown'}, not in its own "
        f"({orders.observer_flow_schema_uid})"
    ]


def _could_succeed(answer: Answer) -> bool:
    """Whether the refusal, if it is one, is of the kind that a load run is there to count."""
    if answer.status == 403:
        return "exceeded quota" in answer.message
    return answer.status < 300 or answer.status in (409, 429)
