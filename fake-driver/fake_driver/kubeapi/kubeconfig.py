"""Where the API server is and how to prove who we are: a kubeconfig file, or the pod's service account."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_driver.errors import ConfigError
from fake_driver.strict import read_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    """One API server and the credentials for it. `token_file` is read anew for every request."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    token: str | None = None
    token_file: Path | None = None


def load_access(path: Path | None) -> Access:
    """Read the current context of a kubeconfig, or the pod's service account without one.

    Raises:
        ConfigError: the file lacks something or uses a kind of login that isn't supported.
    """
    if path is None:
        return _in_cluster()
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a kubeconfig (a mapping)")
    context = _entry(path, data, "contexts", "context", data.get("current-context"))
    cluster = _entry(path, data, "clusters", "cluster", context.get("cluster"))
    user = _entry(path, data, "users", "user", context.get("user"))
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise ConfigError(f"{path}: clusters.cluster.server: expected a http(s) URL, got {server!r}")
    for unsupported in ("exec", "auth-provider", "username"):
        if unsupported in user:
            raise ConfigError(
                f"{path}: users.user.{unsupported}: not supported; "
                "expected a client certificate, token or tokenFile"
            )
    token_file = user.get("tokenFile")
    return Access(
        server=server.rstrip("/"),
        tls=_tls(path, cluster, user) if server.startswith("https://") else None,
        server_name=cluster.get("tls-server-name"),
        token=user.get("token"),
        token_file=path.parent / token_file if token_file else None,
    )


def _in_cluster() -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("kubeconfig: is required outside of a pod")
    tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Access(server=f"https://{authority}", tls=tls, token_file=SERVICE_ACCOUNT / "token")


def _entry(path: Path, data: dict[str, Any], group: str, key: str, name: object) -> dict[str, Any]:
    for entry in data.get(group) or []:
        if entry.get("name") == name and isinstance(entry.get(key), dict):
            return dict(entry[key])
    raise ConfigError(f"{path}: {group}: expected an entry named {name!r}")


def _tls(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        with _file(path, cluster, "certificate-authority") as authority:
            if authority:
                context.load_verify_locations(authority)
            else:
                context.load_default_certs()
        with _file(path, user, "client-certificate") as cert, _file(path, user, "client-key") as key:
            if cert and key:
                context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: can't use its certificates: {error}") from None
    return context


@contextmanager
def _file(path: Path, section: dict[str, Any], key: str) -> Iterator[Path | None]:
    """The file behind `key`; inline data becomes a file for as long as OpenSSL needs one."""
    if inline := section.get(f"{key}-data"):
        with tempfile.NamedTemporaryFile(prefix="fake-driver-") as file:  # created with mode 0600
            file.write(base64.b64decode(inline))
            file.flush()
            yield Path(file.name)
    else:
        yield path.parent / section[key] if section.get(key) else None
