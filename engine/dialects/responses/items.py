"""Items: what a Responses conversation is made of. Ids, and the checks of a client's own; nothing here translates.

An item is kept as the client sent it, with an id of its own if it had none; what the gateway makes has all the fields
that its schema asks for.
"""

from __future__ import annotations

import uuid
from typing import Any

from engine.errors import bad_field

Json = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
    "item_reference": ("id",),
}
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


def new_id(prefix: str) -> str:
    """122 random bits: a stranger cannot guess an id, though nothing rests on that alone."""
    return f"{prefix}_{uuid.uuid4().hex}"


def input_item(said: Json, at: str) -> Json:
    """One item of `input`, with its type and an id. Raises TurnError naming the field."""
    item = dict(said)
    kind = item.get("type")
    if kind is None:
        kind = item["type"] = "message" if "role" in item else "item_reference"
    if not isinstance(kind, str):
        raise bad_field(f"{at}.type", "is not a text")
    if kind == "message":
        _check_message(item, at)
    for field in _REQUIRED.get(kind, ()):
        if item.get(field) is None:
            raise bad_field(f"{at}.{field}", f"is required in an item of type `{kind}`")
        if field != "output" and not isinstance(item[field], str):
            raise bad_field(f"{at}.{field}", "is not a text")
    if kind in OUTPUTS:
        _check_content(item["output"], f"{at}.output")
    if item.get("id") is None:
        item["id"] = new_id(PREFIXES.get(kind, "item"))
    elif not isinstance(item["id"], str):
        raise bad_field(f"{at}.id", "is not a text")
    return item


def _check_message(item: Json, at: str) -> None:
    if item.get("role") not in ROLES:
        raise bad_field(f"{at}.role", f"is not one of {', '.join(ROLES)}")
    if item.get("content") is None:
        raise bad_field(f"{at}.content", "is required in a message: a text or an array of parts")
    _check_content(item["content"], f"{at}.content")


def _check_content(content: Any, at: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise bad_field(at, "is not a text or an array of parts")
    for place, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise bad_field(f"{at}[{place}]", "is not an object with a `type`")
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        if kind in _TEXT_PARTS and not isinstance(part.get(field), str):
            raise bad_field(f"{at}[{place}].{field}", f"is required in a part of type `{kind}`, and is a text")
