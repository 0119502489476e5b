"""Content codings of a response body (RFC 9110, 8.4), undone piece by piece and never far ahead of the reader."""

from __future__ import annotations

import zlib
from typing import Protocol

MOST_AT_ONCE = 256 * 1024
"""Bytes that one step may inflate to: a megabyte of zeros travels in a kilobyte."""


_GZIP, _ZLIB, _BARE = 31, 15, -15
_GZIP_MAGIC = b"\x1f\x8b"


class _Inflate(Protocol):
    """zlib's decompression object, which has no public type."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class BadCoding(Exception):
    """The body is not in the content coding that its head names, or we do not know that one."""


class Inflater:
    """Feed it what came, and take what it makes, at most MOST_AT_ONCE bytes a time, until it makes nothing."""

    def __init__(self, coding: bytes) -> None:
        name = coding.strip().lower()
        if name not in (b"gzip", b"x-gzip", b"deflate"):
            raise BadCoding(f"the content encoding {name.decode('latin-1')!r} was not asked for")
        self._is_gzip = name != b"deflate"
        self._inflate = zlib.decompressobj(wbits=_GZIP) if self._is_gzip else None
        self._waiting = b""
        self._is_full = False
        """Whether the last step made all it may, so that there can be more without new input."""

    def feed(self, data: bytes) -> None:
        self._waiting += data

    def take(self) -> bytes:
        """What can be made now; empty when more has to come first. Raises BadCoding."""
        while (inflate := self._ready()) is not None:
            try:
                made = inflate.decompress(self._waiting, MOST_AT_ONCE)
            except zlib.error as error:
                raise BadCoding(f"the body is not in its content encoding: {error}") from None
            self._is_full = len(made) == MOST_AT_ONCE and not inflate.eof
            self._waiting = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if made:
                return made
        return b""

    def _ready(self) -> _Inflate | None:
        """What can make something of what waits, if there is anything."""
        inflate = self._inflate or self._begin_deflate()
        if inflate is None or not (self._waiting or self._is_full):
            return None
        return self._next_member() if inflate.eof else inflate

    def _begin_deflate(self) -> _Inflate | None:
        """zlib's format (RFC 9110, 8.4.1.2), but some servers send it bare: two bytes tell (RFC 1950, 2.2)."""
        if len(self._waiting) < 2:
            return None
        is_wrapped = self._waiting[0] & 0x0F == 8 and int.from_bytes(self._waiting[:2], "big") % 31 == 0
        self._inflate = zlib.decompressobj(wbits=_ZLIB if is_wrapped else _BARE)
        return self._inflate

    def _next_member(self) -> _Inflate | None:
        """A gzip body may be several members, one after the other (RFC 1952, 2.2); what else follows is nothing."""
        if not self._is_gzip or not self._waiting.startswith(_GZIP_MAGIC[: len(self._waiting)]):
            self._waiting = b""
            return None
        if len(self._waiting) < len(_GZIP_MAGIC):
            return None
        self._inflate = zlib.decompressobj(wbits=_GZIP)
        return self._inflate
