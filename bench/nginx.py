"""nginx as a plain proxy with one worker: what a relay in C costs on this machine at this minute.

Installed by `install-nginx.sh` where it is missing. It runs in the foreground out of a folder of its own and
touches nothing of the system's configuration.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.child import LOOK_AGAIN, START_SECONDS, Child, running
from bench.peer import Peer
from bench.process import children

INSTALL = Path(__file__).with_name("install-nginx.sh")

# Unbuffered, as a stream needs it, and kind to nginx otherwise: connections kept on both sides, no log, and
# a buffer that takes a burst of 64 chunks in one read (with its own 4 KiB it reads and writes four times).
CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    tcp_nodelay on;
    keepalive_requests 1000000;
    upstream models {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://models;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_buffer_size 64k;
            proxy_buffers 8 64k;
            proxy_read_timeout 300;
            send_timeout {send_timeout}ms;
        }}
    }}
}}
"""


@contextmanager
def open_nginx(upstream_port: int, *, send_timeout: float = 60.0) -> Iterator[Peer]:
    """A running nginx; RuntimeError where it cannot be had. `send_timeout` (seconds) is its drain deadline."""
    program = find_nginx()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-nginx-") as folder:
        config = Path(folder, "nginx.conf")
        config.write_text(
            CONFIG.format(folder=folder, upstream=upstream_port, port=port, send_timeout=round(1000 * send_timeout))
        )
        with running([program, "-p", folder, "-c", str(config), "-e", "stderr"]) as child:
            wait_until_listening(child, port)
            workers = children(child.process.pid)
            yield Peer("nginx", version_of(program), port, child.process, workers)


def find_nginx() -> str:
    if found := look_for_nginx():
        return found
    subprocess.run([str(INSTALL)], check=False)
    if found := look_for_nginx():
        return found
    raise RuntimeError("no nginx to compare with: see above; --alone measures the gateway without it")


def look_for_nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def version_of(program: str) -> str:
    said = subprocess.run([program, "-v"], check=True, capture_output=True, text=True).stderr
    return said.strip().rpartition("/")[2]


def free_port() -> int:
    """A port that was free a moment ago: nginx cannot be asked to choose one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until_listening(child: Child, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while child.process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(LOOK_AGAIN)
        else:
            return
    raise RuntimeError(f"nginx does not listen: {child.said()[-2000:]}")
