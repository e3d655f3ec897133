"""A proxy in front of a real MLflow server, which answers badly in nine ways."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

MODES = ("500", "429", "403", "404", "drop", "half", "slow", "late", "login")
"""An error's code, no answer, half an answer, a slow answer, a lost answer, or the page of a login with code 200."""


class Proxy:
    """Forwards to `target`. `mode` is one of MODES, or empty while the proxy works."""

    def __init__(self, target: str, port: int = 0) -> None:
        self.mode = ""
        self.server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self, target))
        self.uri = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def proxy_of(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()


def _handler(proxy: Proxy, target: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def forward(self) -> tuple[int, dict[str, str], bytes]:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() == "content-type"}
            return answer.status, headers, content

        def answer(self) -> None:
            mode = proxy.mode
            if mode == "drop":
                return
            if mode.isdecimal() or mode == "login":
                code = int(mode) if mode.isdecimal() else 200
                self.send(code, {"Content-Type": "text/html"}, b"<html>Please log in</html>")
                return
            if mode == "slow":
                time.sleep(1.5)
            code, headers, content = self.forward()
            if mode != "late":
                self.send(code, headers, content, half=mode == "half")

        def send(self, code: int, headers: dict[str, str], content: bytes, half: bool = False) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if half else content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the names of http.server

    return Handler
