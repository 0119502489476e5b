"""Content codings of a response body (RFC 9110, 8.4), undone piece by piece and never far ahead of the reader."""

from __future__ import annotations

import zlib

MOST_AT_ONCE = 256 * 1024
"""Bytes that one step may inflate to: a megabyte of zeros travels in a kilobyte."""


class BadCoding(Exception):
    """The body is not in the content coding that its head names, or we do not know that one."""


class Inflater:
    """Feed it what came, and take what it makes, at most MOST_AT_ONCE bytes a time, until it makes nothing."""

    def __init__(self, coding: bytes) -> None:
        name = coding.strip().lower()
        if name not in (b"gzip", b"x-gzip", b"deflate"):
            raise BadCoding(f"the content encoding {name.decode('latin-1')!r} was not asked for")
        # `deflate` is zlib's format, but some servers send it without the wrapping: then `_begin` finds out.
        self._may_be_raw = name == b"deflate"
        self._inflate = zlib.decompressobj(wbits=15 if self._may_be_raw else 31)
        self._waiting = b""

    def feed(self, data: bytes) -> None:
        self._waiting += data

    def take(self) -> bytes:
        """What can be made now; empty when more has to come first. Raises BadCoding."""
        if not self._waiting:
            return b""
        try:
            made = self._step(self._waiting)
        except zlib.error as error:
            raise BadCoding(f"the body is not in its content encoding: {error}") from None
        self._may_be_raw = False
        self._waiting = self._inflate.unconsumed_tail
        return made

    def _step(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, MOST_AT_ONCE)
        except zlib.error:
            if not self._may_be_raw:
                raise
        self._inflate = zlib.decompressobj(wbits=-15)
        return self._inflate.decompress(data, MOST_AT_ONCE)
