"""Conformance checks: the requirement catalogue and one folder per area."""
