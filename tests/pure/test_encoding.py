"""Content codings of an upstream's answer, undone piece by piece and never far ahead."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.wire.encoding import MOST_AT_ONCE, BadCoding, Inflater
from tests.pure.streams import bytes_of, cut, cuttings, every_cut


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS: list[tuple[bytes, Callable[[bytes], bytes]]] = [
    (b"gzip", gzip.compress),
    (b"x-gzip", gzip.compress),
    (b" GZip ", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", raw_deflate),
]
NAMES = ["gzip", "x-gzip", "GZip", "deflate", "deflate without its wrapping"]
each_coding = pytest.mark.parametrize(("coding", "pack"), CODINGS, ids=NAMES)


def inflated(coding: bytes, pieces: Iterable[bytes]) -> bytes:
    inflater = Inflater(coding)
    made = b""
    for piece in pieces:
        inflater.feed(piece)
        while more := inflater.take():
            assert len(more) <= MOST_AT_ONCE
            made += more
    return made


@each_coding
@pytest.mark.parametrize("data", [b"", b"data: a\n\n" * 20], ids=["nothing", "something"])
def test_what_was_packed_is_unpacked_however_it_is_cut(
    coding: bytes, pack: Callable[[bytes], bytes], data: bytes
) -> None:
    for pieces in every_cut(pack(data)):
        assert inflated(coding, pieces) == data


@each_coding
@settings(max_examples=20)
@given(st.data())
def test_any_bytes_cut_anywhere_come_back(coding: bytes, pack: Callable[[bytes], bytes], draws: st.DataObject) -> None:
    data = draws.draw(st.binary(max_size=300))
    packed = pack(data)
    assert inflated(coding, cut(packed, draws.draw(cuttings(len(packed))))) == data


@each_coding
@pytest.mark.parametrize("more", [-1, 0, 1, 100, 257, 258, 259, 5000])
def test_no_byte_is_left_behind_where_a_step_is_full(coding: bytes, pack: Callable[[bytes], bytes], more: int) -> None:
    data = b"\0" * (2 * MOST_AT_ONCE + more)
    assert len(inflated(coding, [pack(data)])) == len(data)


@each_coding
def test_a_bomb_is_let_out_step_by_step(coding: bytes, pack: Callable[[bytes], bytes]) -> None:
    inflater = Inflater(coding)
    inflater.feed(pack(b"\0" * (8 * 1024 * 1024)))
    for _ in range(5):
        assert len(inflater.take()) == MOST_AT_ONCE
    assert len(inflater._waiting) < 10_000, "what waits is no more than what came"


@each_coding
def test_what_was_flushed_comes_without_waiting_for_more(coding: bytes, pack: Callable[[bytes], bytes]) -> None:
    wbits = 31 if pack is gzip.compress else 15 if pack is zlib.compress else -15
    packer = zlib.compressobj(wbits=wbits)
    inflater = Inflater(coding)
    for number in range(3):
        event = b"data: %d\n\n" % number
        inflater.feed(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH))
        assert inflater.take() == event
        assert inflater.take() == b""


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("junk", [b"data: a\n\n", b"\xff" * 20, b"<html>"])
def test_what_is_not_in_its_coding_is_an_error(coding: bytes, junk: bytes) -> None:
    with pytest.raises(BadCoding, match="not in its content encoding"):
        inflated(coding, [junk])
    with pytest.raises(BadCoding):
        inflated(coding, bytes_of(junk))


def test_bare_deflate_that_begins_almost_like_zlib_s_format_is_told_from_it() -> None:
    """The low bits of its first byte are as in a zlib header: only the check bits of RFC 1950, 2.2 differ."""
    stored = b"\x08" + b"\x01\x00\xfe\xff" + b"a" + b"\x03\x00"
    for pieces in every_cut(stored):
        assert inflated(b"deflate", pieces) == b"a"


def test_damage_in_the_middle_is_an_error() -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 40, mtime=0))
    packed[-6] ^= 0xFF  # in the checksum
    with pytest.raises(BadCoding):
        inflated(b"gzip", [bytes(packed)])


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, br", b"compress", b"nonsense"])
def test_a_coding_that_nobody_asked_for_is_refused_by_name(coding: bytes) -> None:
    with pytest.raises(BadCoding, match=coding.decode()):
        Inflater(coding)


def test_several_gzip_members_are_one_body() -> None:
    """RFC 1952, 2.2: a gzip file is a series of members; some servers flush by starting a new one."""
    packed = gzip.compress(b"data: a\n\n") + gzip.compress(b"data: b\n\n")
    for pieces in every_cut(packed):
        assert inflated(b"gzip", pieces) == b"data: a\n\ndata: b\n\n"


def test_many_empty_gzip_members_are_nothing_and_no_crash() -> None:
    assert inflated(b"gzip", [gzip.compress(b"") * 3000 + gzip.compress(b"a")]) == b"a"


def test_nothing_is_kept_of_what_comes_after_the_end() -> None:
    inflater = Inflater(b"deflate")
    inflater.feed(zlib.compress(b"a"))
    assert inflater.take() == b"a"
    for _ in range(100):
        inflater.feed(b"\0" * 1000)
        inflater.take()
    unused = inflater._inflate.unused_data if inflater._inflate is not None else b""
    assert len(unused) + len(inflater._waiting) <= 1000
