"""A client's view of an event stream: the WHATWG algorithm, where an event cut off by the end is dropped.

Written apart from `engine.framing` on purpose: a parser cannot be the judge of itself.
"""

from __future__ import annotations

import json
import re
from typing import Any

Json = dict[str, Any]
DONE = "[DONE]"
_LINE_END = re.compile(r"\r\n|\n|\r")


def parse_sse(raw: bytes) -> Json:
    """Events with their JSON, and what is odd about the stream (comments, bad JSON, events after [DONE])."""
    events, comments = _dispatch(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
    bad = sum(not _add_json(event) for event in events)
    done_at = [i for i, event in enumerate(events) if _is_done(event)]
    return {
        "events": events,
        "types": [_type_of(event) for event in events],
        "names": [event["event"] for event in events],
        "done": len(done_at),
        "after_done": len(events) - done_at[0] - 1 if done_at else 0,
        "comments": comments,
        "bad_json": bad,
    }


def _dispatch(text: str) -> tuple[list[Json], int]:
    """What stands behind the last line end is a line too: one line end at the very end closes an event."""
    events: list[Json] = []
    comments, name, data = 0, "", list[str]()
    for line in _LINE_END.split(text):
        field, _, value = line.partition(":")
        if line == "":
            if data:
                events.append({"event": name or None, "data": "\n".join(data)})
            name, data = "", []
        elif field == "":
            comments += 1
        elif field == "event":
            name = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
    return events, comments


def _is_done(event: Json) -> bool:
    return bool(event["data"].strip() == DONE)


def _add_json(event: Json) -> bool:
    event["json"] = None
    if not _is_done(event):
        try:
            event["json"] = json.loads(event["data"])
        except ValueError:
            return False
    return True


def _type_of(event: Json) -> Any:
    if event["event"] is not None:
        return event["event"]
    return event["json"].get("type") if isinstance(event["json"], dict) else None
