"""In which line of a TOML text a key stands."""

from __future__ import annotations

import pytest

from server.lines import line_of

TEXT = """\
# [upstreams.comment]
title = "x"
server.port = 5

[server]
host = "127.0.0.1"  # [not.a.table]
  indented = true

[ deadlines ]
idle=5

[upstreams.local]
url = "http://x/v1"
deadlines = { idle = 3, first_event = 4 }

[upstreams."with.dot"]
url = "http://y/v1"
'quoted key' = 1

[[models]]
name = "a"
upstreams = [
  "local",
  { upstream = "far" },
]

[[models]]
name = "b"
upstreams = ["local"]
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("title", 2),
        ("server.port", 3),
        ("server", 5),
        ("server.host", 6),
        ("server.indented", 7),
        ("deadlines", 9),
        ("deadlines.idle", 10),
        ("upstreams.local", 12),
        ("upstreams.local.url", 13),
        ("upstreams.local.deadlines.idle", 14),
        ("models.0", 20),
        ("models.0.name", 21),
        ("models.0.upstreams.1.upstream", 22),
        ("models.1", 27),
        ("models.1.name", 28),
        ("models.1.upstreams", 29),
    ],
)
def test_a_key_is_found_in_its_line(place: str, line: int) -> None:
    assert line_of(TEXT, place) == line


@pytest.mark.parametrize(
    ("place", "line"),
    [("upstreams.local.nonsense", 12), ("models.1.nonsense", 27), ("server.nonsense.deeper", 5), ("models.0.x.y", 20)],
)
def test_a_key_that_is_missing_is_told_by_its_table(place: str, line: int) -> None:
    assert line_of(TEXT, place) == line


@pytest.mark.parametrize("place", ["nothing", "upstreams.nowhere", "upstreams.comment", "models.7", "", "not.a.table"])
def test_a_place_that_is_nowhere_has_no_line(place: str) -> None:
    assert line_of(TEXT, place) is None


def test_an_empty_text_has_no_lines() -> None:
    assert line_of("", "server.port") is None
