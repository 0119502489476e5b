"""A relay with a fault of choice, to show that the runner can fail: `--gateway-command "… faulty_relay {upstream}"`.

It copies bytes between a client and the upstream and knows next to nothing of HTTP.
"""

from __future__ import annotations

import argparse
import sys

import trio

FAULTS = ("none", "never-cancels", "polite")
_TERMINATOR = b"0\r\n\r\n"
_LIE = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Relay:
    """`never-cancels` reads the upstream to its end for a client that left; `polite` finishes cut streams."""

    def __init__(self, upstream: str, fault: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream, self._fault = (host, int(port)), fault

    async def serve(self, client: trio.SocketStream) -> None:
        upstream = await trio.open_tcp_stream(*self._upstream)
        async with client, upstream, trio.open_nursery() as nursery:
            nursery.start_soon(self._upwards, client, upstream, nursery.cancel_scope)
            await self._downwards(upstream, client)
            nursery.cancel_scope.cancel()

    async def _upwards(self, client: trio.SocketStream, upstream: trio.SocketStream, both: trio.CancelScope) -> None:
        try:
            async for data in client:
                await upstream.send_all(data)
        except trio.BrokenResourceError:
            pass
        if self._fault != "never-cancels":
            both.cancel()

    async def _downwards(self, upstream: trio.SocketStream, client: trio.SocketStream) -> None:
        end = b""
        try:
            async for data in upstream:
                end = (end + data)[-len(_TERMINATOR) :]
                await self._pass_on(bytes(data), client)
            if self._fault == "polite" and end != _TERMINATOR:
                await client.send_all(b"%x\r\n%b\r\n" % (len(_LIE), _LIE) + _TERMINATOR)
        except trio.BrokenResourceError:
            pass

    async def _pass_on(self, data: bytes, client: trio.SocketStream) -> None:
        try:
            await client.send_all(data)
        except trio.BrokenResourceError:
            if self._fault != "never-cancels":
                raise


async def _run(options: argparse.Namespace) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    sys.stderr.write(f"listening on http://127.0.0.1:{listener.socket.getsockname()[1]}\n")
    await trio.serve_listeners(Relay(options.upstream, options.fault).serve, [listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("upstream", help="host:port")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    trio.run(_run, parser.parse_args())


if __name__ == "__main__":
    main()
