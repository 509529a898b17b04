"""HTTP/1.1 to one API server over kept connections: one request, one answer, never a retry.

geventhttpclient gives the connections and the parser. Its own `request()` is not used: it sends GET and
DELETE again when a connection breaks, and a harness that counts requests must send what it counts.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from typing import Any

import orjson
from gevent import monkey
from geventhttpclient.connectionpool import ConnectionPool, SSLConnectionPool
from geventhttpclient.response import HTTPConnectionClosed, HTTPResponse

from load.generator.access import Access
from load.generator.exchange import Answer
from load.model import Flow

FLOW_SCHEMA = "X-Kubernetes-PF-FlowSchema-UID"
PRIORITY_LEVEL = "X-Kubernetes-PF-PriorityLevel-UID"

DEADLINE = 40.0
"""Seconds to wait for an answer: longer than APF queues (15) and than writes may take in the server (34),
so that the server's own word about a delay arrives."""

_CHUNK = 65536
_LENGTH = b"\r\nContent-Length: "
_CLOSE = b"\r\nConnection: close"
_MESSAGE_LIMIT = 500
_poll: Any = monkey.get_original("select", "poll")
_GONE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class _Pool(ConnectionPool):
    def _is_socket_alive(self, sock: Any) -> bool:
        """Whether an idle connection is still there. The base class asks select(), which ends at fd 1023."""
        return idle_is_alive(sock)

    def after_connect(self, sock: Any) -> None:
        keep_alive(sock)


class _TlsPool(SSLConnectionPool):
    def _is_socket_alive(self, sock: Any) -> bool:
        return idle_is_alive(sock) or only_tls_speaks(sock)

    def after_connect(self, sock: Any) -> None:
        keep_alive(sock)


def idle_is_alive(sock: Any) -> bool:
    """Whether nothing waits to be read on an idle connection: an end, or bytes that nobody asked for."""
    descriptor = sock.fileno()
    if descriptor < 0:
        return False
    poller = _poll()
    poller.register(descriptor, select.POLLIN)
    return not any(event & _GONE for _, event in poller.poll(0))


def only_tls_speaks(sock: Any) -> bool:
    """Whether what waits on an idle connection is TLS's own, and takes it: tickets come after a handshake."""
    patience = sock.gettimeout()
    sock.settimeout(0.0)
    try:
        sock.recv(1)  # bytes that nobody asked for, or the end
    except ssl.SSLWantReadError:
        sock.settimeout(patience)
        return True
    except OSError:
        pass
    return False


def keep_alive(sock: Any) -> None:
    """Let the kernel notice a dead peer within about half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def connections(access: Access, *, size: int, deadline: float) -> ConnectionPool:
    """A pool of at most `size` connections, each waiting at most `deadline` seconds for bytes."""
    common: dict[str, Any] = {"size": size, "connection_timeout": 10.0, "network_timeout": deadline}
    place = (access.host, access.port, access.host, access.port)
    if access.tls is None:
        return _Pool(*place, **common)
    context = access.tls

    def prepared(cafile: str | None = None) -> ssl.SSLContext:
        return context  # it has the kubeconfig's authority already

    return _TlsPool(
        *place,
        insecure=not access.check_name,
        ssl_context_factory=prepared,
        ssl_options={"server_hostname": access.server_name},
        **common,
    )


class Received(HTTPResponse):
    """An answer as it comes in: `feed` it, and take what there is of its body."""

    def __init__(self, method: str) -> None:
        super().__init__(method)
        self.body = bytearray()

    def _on_body(self, buf: bytearray) -> None:
        self.body += buf


class Wire:
    """Sends prebuilt requests. Each greenlet that sends holds one of at most `size` connections."""

    def __init__(self, access: Access, *, size: int, deadline: float = DEADLINE) -> None:
        self.access = access
        self._pool = connections(access, size=size, deadline=deadline)

    def warm(self, count: int) -> None:
        """Open connections ahead of time, so that handshakes don't make the first requests late.

        Raises:
            OSError: the server can't be reached, or its certificate is not the one expected.
        """
        held: list[Any] = []
        try:
            held.extend(self._pool.get_socket() for _ in range(count))  # keeps those before a failure
        finally:
            for sock in held:
                self._pool.return_socket(sock)

    def send(self, request: bytes, method: str, *, want_flow: bool = False) -> Answer:
        """Send one request and read its whole answer; whatever goes wrong is an answer of status 0."""
        try:
            sock = self._pool.get_socket()
        except (OSError, RuntimeError) as error:
            return _unanswered(error)
        try:
            sent = sock.send(request)
            if sent < len(request):
                sock.sendall(request[sent:])  # sets up a timeout of its own, seldom needed
            return self._read(sock, method, want_flow)
        except (OSError, http.client.HTTPException) as error:
            self._pool.release_socket(sock)
            return _unanswered(error)
        except BaseException:
            self._pool.release_socket(sock)
            raise

    def _read(self, sock: Any, method: str, want_flow: bool) -> Answer:
        """Read one answer and give the connection back; what raises leaves it to the caller."""
        data = sock.recv(_CHUNK)
        if not data:
            raise HTTPConnectionClosed("connection closed")
        if not want_flow and (length := _length_of_success(data)) is not None:
            while len(data) < length:
                if not (more := sock.recv(_CHUNK)):
                    raise HTTPConnectionClosed("connection closed in the middle of an answer")
                data += more
            self._pool.return_socket(sock)
            return Answer(int(data[9:12]), body=data[data.index(b"\r\n\r\n") + 4 : length])
        response = Received(method)
        response.feed(data)
        while not response.message_complete:
            response.feed(sock.recv(_CHUNK))  # raises at the end of a connection
        if response.should_close():
            self._pool.release_socket(sock)
        else:
            self._pool.return_socket(sock)
        body = bytes(response.body)
        if response.status_code < 400 and not want_flow:
            return Answer(response.status_code, body=body)
        return _explained(response, body, want_flow)

    def close(self) -> None:
        """Close the idle connections; those in use close when their answer is read."""
        self._pool.close()


def _length_of_success(data: bytes) -> int | None:
    """How long the answer that begins like this is, if it is an ordinary success: most are.

    To see that takes a tenth of the time that it takes to parse all headers.
    """
    end = data.find(b"\r\n\r\n")
    at = data.find(_LENGTH, 0, end)
    if end < 0 or at < 0 or not data.startswith(b"HTTP/1.1 20") or data.find(_CLOSE, 0, end) >= 0:
        return None
    at += len(_LENGTH)
    return end + 4 + int(data[at : data.index(b"\r\n", at)])


def _unanswered(error: Exception) -> Answer:
    return Answer(0, reason=type(error).__name__, message=str(error)[:_MESSAGE_LIMIT])


def _explained(response: HTTPResponse, body: bytes, want_flow: bool) -> Answer:
    reason, message = "", ""
    is_status = False
    if response.status_code >= 400:
        try:
            status = orjson.loads(body)
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
            is_status = status.get("kind") == "Status"
        except (ValueError, AttributeError):
            message = body[:_MESSAGE_LIMIT].decode(errors="replace").strip()
    schema, level = _text(response, FLOW_SCHEMA), _text(response, PRIORITY_LEVEL)
    return Answer(
        response.status_code,
        reason=reason,
        message=message[:_MESSAGE_LIMIT],
        # APF answers in plain text. A 429 of what comes after it, such as an eviction, is a Status object,
        # and passes the same UIDs.
        apf=response.status_code == 429 and bool(schema) and not is_status,
        retry_after=_text(response, "Retry-After"),
        body=body,
        flow=Flow(flow_schema_uid=schema, priority_level_uid=level) if want_flow and schema else None,
    )


def _text(response: HTTPResponse, header: str) -> str:
    value = response.get(header)
    return value if isinstance(value, str) else ""
