"""Consumers of run events: console, JUnit, HTML, run.json."""
