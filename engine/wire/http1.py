"""What both ends of HTTP/1.1 share: headers as they are kept, and those that end at each hop (RFC 9110, 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Headers = dict[bytes, bytes]
"""Lower-case names; fields that came several times are joined by a comma and a blank (RFC 9110, 5.3)."""

END_OF_HEAD = b"\r\n\r\n"

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


def add_header(headers: Headers, name: bytes, value: bytes) -> None:
    """Keep one field as it comes from the parser."""
    name = name.lower()
    headers[name] = headers[name] + b", " + value if name in headers else value


def passed_on(headers: Headers, names: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Those of the named fields that are there and may go further: not the hop's own, nor what `Connection` names."""
    kept_back = HOP_BY_HOP
    connection = headers.get(b"connection", b"")
    if connection and connection.lower() not in (b"keep-alive", b"close"):
        kept_back = kept_back.union(token.strip().lower() for token in connection.split(b","))
    return [(name, headers[name]) for name in names if name in headers and name not in kept_back]


def has_token(headers: Mapping[bytes, bytes], name: bytes, token: bytes) -> bool:
    """Whether a list field (`Connection: close`) has this token, in any case."""
    return any(part.strip().lower() == token for part in headers.get(name, b"").split(b","))


def render_head(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A message head with its blank line. Values must be clean; see `clean_value`."""
    lines = [first_line, *(name + b": " + value for name, value in headers), b"\r\n"]
    return b"\r\n".join(lines)


def clean_value(value: bytes) -> bytes:
    """A field value from elsewhere that can be written into a head: no line ends, no NUL (RFC 9110, 5.5)."""
    return value.translate(None, b"\r\n\0").strip()
