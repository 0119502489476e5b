"""TLS to upstreams: the system's roots or the operator's, and the server's name always checked."""

from __future__ import annotations

import ssl
from pathlib import Path

import trio

from engine.wire.transport import SocketTransport, StreamTransport, Transport


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """What to trust: the system's roots, or only the certificates in `ca_file` (PEM). Raises OSError, SSLError."""
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


async def wrap(transport: SocketTransport, context: ssl.SSLContext, host: str) -> Transport:
    """Shake hands, with `host` as SNI and as the name to check. Raises ssl.SSLError, trio.BrokenResourceError."""
    stream = trio.SSLStream(transport, context, server_hostname=host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException:
        transport.close()
        raise
    return StreamTransport(stream, transport.close, lambda: transport.is_quiet() and not stream.pending())
