"""A real HTTP server on loopback, which records its requests and answers as told."""

from __future__ import annotations

import http.server
import json
import ssl
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TOKEN = "t0ken-of-a-user"
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str
    peer: str = ""
    """Common name of the client's certificate."""


@dataclass
class Server:
    url: str = ""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    """Status and body, one per request; a list of bytes is sent as chunks."""
    requests: list[Request] = field(default_factory=list)

    def answer(self, status: int, body: Any) -> None:
        self.answers.append((status, body))

    @property
    def last(self) -> Request:
        return self.requests[-1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def log_message(self, *args: object) -> None:
        pass

    def handle_request(self) -> None:
        split = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        peer = ""
        if isinstance(self.connection, ssl.SSLSocket):
            subject: Any = (self.connection.getpeercert() or {}).get("subject", ())
            peer = dict(pair for part in subject for pair in part).get("commonName", "")
        query = dict(urllib.parse.parse_qsl(split.query))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append(Request(self.command, split.path, query, headers, body, peer))
        status, answer = self.state.answers.pop(0)
        self.send_response(status)
        if isinstance(answer, list):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        else:
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request


def write_config(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "anonymous", "context": {"cluster": "c", "user": ""}},
        ],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
