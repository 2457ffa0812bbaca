"""Real servers on loopback, which the tests start and end themselves, and what goes wrong between."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "127.0.0.1"
BUCKET = "bucket"
# What the client of S3 reads, and no file of the user's.
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@dataclass
class Server:
    """A server's process, its port and the URL of the remote in it."""

    process: subprocess.Popen[bytes]
    port: int
    url: str

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens on {port}")


@contextmanager
def _running(command: list[str], port: int, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **more,  # type: ignore[call-overload]
    )
    try:
        _wait_for(port, process)
        yield process
    finally:
        process.kill()
        process.wait()


def lacks() -> str | None:
    """Why there can be no Redis and no S3 here; None if there can."""
    if shutil.which("redis-server") is None:
        return "no redis-server: apt-get install redis-server"
    for name in ("redis", "s3fs", "moto", "flask", "cryptography"):
        if importlib.util.find_spec(name) is None:
            return f"no package {name}: pip install -r requirements-dev.txt"
    return None


@contextmanager
def redis(folder: Path, *arguments: str) -> Iterator[Server]:
    port = free_port()
    command = [
        "redis-server", "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no",
        "--dir", str(folder), *arguments,
    ]  # fmt: skip
    with _running(command, port) as process:
        yield Server(process, port, f"redis://{HOST}:{port}/0")


@contextmanager
def s3(folder: Path) -> Iterator[Server]:
    """An S3 server with one bucket. The client finds it by the environment: ``AWS_ENDPOINT_URL``."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    env = {**os.environ, **S3_ENVIRONMENT}
    with _running(command, port, cwd=folder, env=env) as process:
        request = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        yield Server(process, port, f"s3://{BUCKET}/tileops")


class Proxy:
    """Passes TCP on to a port, or not: ``mode`` is pass, slow, truncate, reset or hole."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self.mode = "pass"
        self.passed = 200  # bytes of each answer before it is cut or reset
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self._target)) as server,
        ):
            threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
            sent = 0
            while data := server.recv(65536):
                match self.mode:
                    case "slow":
                        for byte in data:  # each byte is in time, and the answer never is
                            time.sleep(0.05)
                            client.sendall(bytes([byte]))
                    case "truncate" | "reset":
                        client.sendall(data[: max(0, self.passed - sent)])
                        sent += len(data)
                        if sent >= self.passed:
                            if self.mode == "reset":
                                client.setsockopt(
                                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                                )
                            return
                    case "hole":
                        continue
                    case _:
                        client.sendall(data)

    def _copy(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.mode != "hole":
                    server.sendall(data)
            server.shutdown(socket.SHUT_WR)


class Refuser(ThreadingHTTPServer):
    """An HTTP server that answers everything with ``status`` and an error as S3 writes it."""

    daemon_threads = True
    CODES = {
        403: "AccessDenied",
        409: "ConditionalRequestConflict",
        412: "PreconditionFailed",
        500: "InternalError",
    }

    def __init__(self, status: int) -> None:
        self.status, self.asked = status, 0
        super().__init__((HOST, 0), _Refusing)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Refusing(BaseHTTPRequestHandler):
    server: Refuser
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code = Refuser.CODES[self.server.status]
        text = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer

    def log_message(self, *arguments: object) -> None:
        pass
