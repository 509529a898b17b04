"""What a kubeconfig says: where the API server is and the credentials to show it, ready for TLS."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError


@dataclass(frozen=True)
class Access:
    """One identity at one API server."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    """None for plain HTTP, which only a stand-in on loopback speaks."""
    server_name: str
    """The name that the server's certificate has to carry."""
    check_name: bool
    authorization: str = ""
    """Value of the header of that name, for credentials that are a token."""
    base_path: str = ""
    """Path prefix of the server's URL, without a slash at the end."""


def read_kubeconfig(path: Path) -> Access:
    """Read the current context of a kubeconfig: client certificates and tokens, as files or inline.

    Raises:
        UsageError: the file can't be read, names what it doesn't have, or its user needs a program to log in.
    """
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"], "context")
        cluster = _named(config, "clusters", context["cluster"], "cluster")
        user = _named(config, "users", context["user"], "user")
        url = urllib.parse.urlsplit(cluster["server"])
        port = url.port
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: not a usable kubeconfig: {type(error).__name__}: {error}") from error
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UsageError(f"{path}: server: expected an http or https URL, got {cluster['server']!r}")
    for key in ("exec", "auth-provider", "username"):
        if key in user:
            raise UsageError(f"{path}: user.{key}: expected a client certificate or a token")
    try:
        return Access(
            host=url.hostname,
            port=port or (443 if url.scheme == "https" else 80),
            tls=_tls(cluster, user, path.parent) if url.scheme == "https" else None,
            server_name=cluster.get("tls-server-name") or url.hostname,
            check_name=not cluster.get("insecure-skip-tls-verify", False),
            authorization=_authorization(user, path.parent),
            base_path=url.path.rstrip("/"),
        )
    except (OSError, ssl.SSLError, binascii.Error, TypeError) as error:
        raise UsageError(f"{path}: its certificates or token can't be used: {error}") from error


def _named(config: dict[str, Any], collection: str, name: str, key: str) -> dict[str, Any]:
    for entry in config[collection]:
        if entry["name"] == name:
            found: dict[str, Any] = entry[key]
            return found
    raise KeyError(f"{collection}[{name}]")


def _authorization(user: dict[str, Any], folder: Path) -> str:
    token = user.get("token") or ""
    if not token and user.get("tokenFile"):
        token = (folder / user["tokenFile"]).read_text().strip()
    return f"Bearer {token}" if token else ""


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if cluster.get("insecure-skip-tls-verify", False):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif (authority := _material(cluster, "certificate-authority", folder)) is not None:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    certificate = _material(user, "client-certificate", folder)
    key = _material(user, "client-key", folder)
    if certificate is not None and key is not None:
        with _private_file(certificate + b"\n" + key) as both:
            context.load_cert_chain(both)
    return context


def _material(section: dict[str, Any], key: str, folder: Path) -> bytes | None:
    """PEM from `KEY-data`, or from the file that `KEY` names (relative to the kubeconfig)."""
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"], validate=True)
    if section.get(key):
        file: Path = folder / section[key]
        return file.read_bytes()
    return None


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A file that only this user can read, for as long as OpenSSL needs one."""
    handle, name = tempfile.mkstemp(prefix="dra-harness-")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()
