"""The first words with a stranger's API server: who are we, what is it; every failure as one clear error."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator

import urllib3

from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient, Resource

OLDEST, NEWEST = 34, 37
"""Minor releases of Kubernetes 1 that the catalogue is about."""

_SELF_REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
_ANONYMOUS = "system:anonymous"
_LONGEST = 500


@contextlib.contextmanager
def explained(server: str) -> Iterator[None]:
    """Turn whatever keeps a cluster from being used into one error that says so.

    Args:
        server: the cluster's address, for the message.

    Raises:
        EnvironmentBlocked: in place of an answer of the API server, or of the lack of one.
    """
    try:
        yield
    except ApiError as error:
        if error.status == 401:
            message = f"{server}: the credentials are expired or refused (401): {error.message}"
        elif error.status == 403:
            message = f"{server}: the user lacks a right (403): {error.message}; see `dra-harness rbac`"
        else:
            message = f"{server}: {error}"
        raise EnvironmentBlocked(_one_line(message)) from error
    except urllib3.exceptions.SSLError as error:
        raise EnvironmentBlocked(f"{server}: TLS fails: {_plain(error)}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise EnvironmentBlocked(f"{server}: can't be reached: {_plain(error)}") from error


def user(kube: KubeClient) -> str:
    """Who the API server takes us for.

    Raises:
        ApiError: it doesn't take the credentials.
        EnvironmentBlocked: there are none, or what answers is no API server.
    """
    review = {"apiVersion": _SELF_REVIEWS.api_version, "kind": "SelfSubjectReview"}
    try:
        name: str = kube.create(_SELF_REVIEWS, review)["status"]["userInfo"]["username"]
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise _no_api_server(kube) from error
    if name == _ANONYMOUS:
        raise EnvironmentBlocked("the kubeconfig has no credentials: the API server knows nobody by them")
    return name


def version(kube: KubeClient) -> str:
    """The server's version, such as v1.37.2.

    Raises:
        ApiError: it refuses to say.
        EnvironmentBlocked: it is none of those that are supported, or what answers is no API server.
    """
    try:
        found = kube.version()
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise _no_api_server(kube) from error
    major, _, rest = found.lstrip("v").partition(".")
    minor = rest.partition(".")[0]
    if major != "1" or not minor.isdigit() or not OLDEST <= int(minor) <= NEWEST:
        raise EnvironmentBlocked(f"the server is {found}; supported are v1.{OLDEST} to v1.{NEWEST}")
    return found


def _no_api_server(kube: KubeClient) -> EnvironmentBlocked:
    return EnvironmentBlocked(f"{kube.server}: what answers there is no Kubernetes API server")


def _one_line(text: str) -> str:
    """A message that may have somebody's whole web page in it."""
    return " ".join(text.split())[:_LONGEST]


def _plain(error: Exception) -> str:
    """An error's own words, without the connection that urllib3 puts before them."""
    return re.sub(r"^(<[^>]*>|\w+\([^)]*\)): ", "", str(error))
