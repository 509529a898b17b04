"""The first words with a stranger's API server: who are we, what is it; every failure as one clear error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import urllib3

from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient, Resource

OLDEST, NEWEST = 34, 37
"""Minor releases of Kubernetes 1 that the catalogue is about."""

_SELF_REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
_ANONYMOUS = "system:anonymous"


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
        raise EnvironmentBlocked(message) from error
    except urllib3.exceptions.SSLError as error:
        raise EnvironmentBlocked(f"{server}: TLS fails: {_plain(error)}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise EnvironmentBlocked(f"{server}: can't be reached: {_plain(error)}") from error


def user(kube: KubeClient) -> str:
    """Who the API server takes us for.

    Raises:
        ApiError: it doesn't take the credentials.
        EnvironmentBlocked: there are none.
    """
    review = {"apiVersion": _SELF_REVIEWS.api_version, "kind": "SelfSubjectReview"}
    name: str = kube.create(_SELF_REVIEWS, review)["status"]["userInfo"]["username"]
    if name == _ANONYMOUS:
        raise EnvironmentBlocked("the kubeconfig has no credentials: the API server knows nobody by them")
    return name


def version(kube: KubeClient) -> str:
    """The server's version, such as v1.37.2.

    Raises:
        EnvironmentBlocked: it is none of those that are supported.
    """
    found = kube.version()
    major, _, rest = found.lstrip("v").partition(".")
    minor = rest.partition(".")[0]
    if major != "1" or not minor.isdigit() or not OLDEST <= int(minor) <= NEWEST:
        raise EnvironmentBlocked(f"the server is {found}; supported are v1.{OLDEST} to v1.{NEWEST}")
    return found


def _plain(error: Exception) -> str:
    """An error's own words, without the connection that urllib3 puts before them."""
    return re.sub(r"^(<[^>]*>|\w+\([^)]*\)): ", "", str(error))
