"""What can go wrong, by who has to act: the writer of a file, the cluster, or the owner of one claim."""

from __future__ import annotations


class ConfigError(Exception):
    """A file can't be used as it is; the message names the file, the key and what was expected."""

    exit_code = 2


class StartError(Exception):
    """The driver can't start or go on: the API server refuses it, or its own state can't be read."""

    exit_code = 1


class ClaimError(Exception):
    """One claim can't be prepared or unprepared; the message goes to the kubelet in that claim's answer."""
