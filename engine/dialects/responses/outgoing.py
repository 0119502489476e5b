"""A Responses request, with the conversation that it continues, as the body of a Chat Completions request.

What has no place there is left out and named, so that the client hears of it: hosted tools, reasoning that only its own
vendor can read, fields that no description has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from engine.dialects.responses.items import CALLS, OUTPUTS, Json
from engine.dialects.responses.request import Asked, unsupported
from engine.errors import bad_field

CUSTOM_PARAMETERS: Json = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What a custom tool, whose input is free text, looks like as a function."""
JOINT = "__"
"""Between a namespace and the name of a tool in it."""
_CHILDREN = ("tools", "functions", "children", "items")


class Tool(Struct, frozen=True):
    """One tool as the upstream knows it; `name` and `namespace` are the client's own."""

    function: Json
    name: str
    namespace: str | None = None
    is_custom: bool = False


class Outgoing(Struct, frozen=True):
    """`body` for the upstream; `tools` by the upstream's names; `dropped` as paths in the client's request."""

    body: bytes
    tools: dict[str, Tool]
    dropped: list[str]


def outgoing(asked: Asked, earlier: Sequence[Json]) -> Outgoing:
    """Raises TurnError naming the field that cannot be honoured."""
    request = asked.request
    dropped = [*asked.unknown]
    tools = _tools(request.tools or [], dropped)
    body: Json = {"model": request.model, "messages": _messages(asked, earlier, tools, dropped), "stream": True}
    body["stream_options"] = {"include_usage": True}
    if tools:
        chosen, choice = _choice(request.tool_choice, tools)
        body["tools"] = [{"type": "function", "function": tool.function} for tool in chosen]
        if choice is not None:
            body["tool_choice"] = choice
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    elif isinstance(request.tool_choice, dict) or request.tool_choice == "required":
        raise unsupported("tool_choice", "names a tool that this upstream cannot be given")
    body |= {
        field: value
        for field, value in {
            "frequency_penalty": request.frequency_penalty,
            "logprobs": True if asked.wants_logprobs else None,
            "max_completion_tokens": request.max_output_tokens,
            "presence_penalty": request.presence_penalty,
            "prompt_cache_key": request.prompt_cache_key,
            "prompt_cache_retention": request.prompt_cache_retention,
            "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
            "response_format": _format(asked),
            "safety_identifier": request.safety_identifier,
            "service_tier": request.service_tier,
            "temperature": request.temperature,
            "top_logprobs": request.top_logprobs,
            "top_p": request.top_p,
            "user": request.user,
            "verbosity": request.text.verbosity if request.text is not None else None,
        }.items()
        if value is not None
    }
    return Outgoing(msgspec.json.encode(body), {tool.function["name"]: tool for tool in tools}, dropped)


def _format(asked: Asked) -> Json | None:
    text = asked.request.text
    if text is None or text.format is None or text.format.type == "text":
        return None
    wanted = text.format
    if wanted.type == "json_object":
        return {"type": "json_object"}
    schema: Json = {"name": wanted.name, "schema": wanted.schema}
    schema |= {key: value for key in ("strict", "description") if (value := getattr(wanted, key)) is not None}
    return {"type": "json_schema", "json_schema": schema}


# Tools


def _tools(said: Sequence[Json], dropped: list[str]) -> list[Tool]:
    tools: dict[str, Tool] = {}
    for at, one in enumerate(said):
        for tool in _tool(one, f"tools[{at}]", dropped):
            name = tool.function["name"]
            if tools.get(name, tool) != tool:
                raise bad_field(f"tools[{at}]", f"is a second, different tool of the name `{name}`")
            tools[name] = tool
    return list(tools.values())


def _tool(said: Json, at: str, dropped: list[str], namespace: str | None = None) -> list[Tool]:
    kind = said.get("type")
    if kind == "function":
        inner = said["function"] if isinstance(said.get("function"), dict) else said
        name = _name(inner, at)
        function = {key: inner[key] for key in ("description", "parameters", "strict") if inner.get(key) is not None}
        return [Tool({"name": _joined(namespace, name), **function}, name, namespace)]
    if kind == "custom":
        name = _name(said, at)
        function = {"name": _joined(namespace, name), "parameters": CUSTOM_PARAMETERS}
        if said.get("description") is not None:
            function["description"] = said["description"]
        if isinstance(said.get("format"), dict) and said["format"].get("type") not in (None, "text"):
            dropped.append(f"{at}.format")
        return [Tool(function, name, namespace, is_custom=True)]
    if kind == "namespace" and namespace is None:
        name = _name(said, at)
        key = next((key for key in _CHILDREN if isinstance(said.get(key), list)), "tools")
        inner_tools: list[Any] = said.get(key) or []
        found: list[Tool] = []
        for place, child in enumerate(inner_tools):
            if not isinstance(child, dict):
                raise bad_field(f"{at}.{key}[{place}]", "is not an object")
            found += _tool(child, f"{at}.{key}[{place}]", dropped, name)
        return found
    if not isinstance(kind, str):
        raise bad_field(f"{at}.type", "is required: what kind of tool it is")
    dropped.append(f"{at} ({kind})")
    return []


def _name(said: Json, at: str) -> str:
    name = said.get("name")
    if not isinstance(name, str) or not name:
        raise bad_field(f"{at}.name", "is required, and is a text")
    return name


def _joined(namespace: str | None, name: str) -> str:
    if namespace is None or name.startswith(namespace + JOINT):
        return name
    return f"{namespace.rstrip('_')}{JOINT}{name.lstrip('_')}"


def _choice(said: str | Json | None, tools: Sequence[Tool]) -> tuple[Sequence[Tool], str | Json | None]:
    """Which tools go up, and the choice between them."""
    if said is None or said in ("auto", "none", "required"):
        return tools, said
    if not isinstance(said, dict):
        raise bad_field("tool_choice", "is not `auto`, `none`, `required` or an object")
    if said.get("type") == "allowed_tools":
        wanted = said.get("tools")
        if not isinstance(wanted, list) or not all(isinstance(each, dict) for each in wanted):
            raise bad_field("tool_choice.tools", "is required: an array of tools")
        chosen = [_named(each, tools, f"tool_choice.tools[{at}]") for at, each in enumerate(wanted)]
        mode = said.get("mode", "auto")
        if mode not in ("auto", "required", "none"):
            raise bad_field("tool_choice.mode", "is not `auto`, `required` or `none`")
        return chosen, mode
    tool = _named(said, tools, "tool_choice")
    return tools, {"type": "function", "function": {"name": tool.function["name"]}}


def _named(said: Json, tools: Sequence[Tool], at: str) -> Tool:
    if said.get("type") not in ("function", "custom"):
        raise unsupported(at, f"is of type `{said.get('type')}`, which this upstream cannot be given")
    for tool in tools:
        if said.get("name") in (tool.name, tool.function["name"]) and said.get("namespace") in (None, tool.namespace):
            return tool
    raise bad_field(f"{at}.name", "is not the name of one of `tools`")


# Messages


def _messages(asked: Asked, earlier: Sequence[Json], tools: Sequence[Tool], dropped: list[str]) -> list[Json]:
    conversation = _Conversation(tools)
    if asked.request.instructions is not None:
        conversation.add_message({"role": "system", "content": asked.request.instructions}, "instructions")
    for item in earlier:
        conversation.add(item, "previous_response_id", lambda _: None)
    for at, item in enumerate(asked.items):
        conversation.add(item, f"input[{at}]", dropped.append)
    return conversation.messages()


class _Conversation:
    """Items to messages. Calls that follow each other are one message's, behind the text before them; their outputs
    stand directly behind it, wherever they come, because chat servers ask for that."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._messages: list[Json] = []
        self._outputs: dict[str, Json] = {}
        self._known: dict[str, Json] = {}
        self._names = {(tool.namespace, tool.name): tool.function["name"] for tool in tools}
        self._open: Json | None = None
        """The assistant's message that further calls belong to."""

    def messages(self) -> list[Json]:
        """With each output behind its call's message; those without a call stay where they are."""
        placed: list[Json] = []
        for message in self._messages:
            placed.append(message)
            ids = [call["id"] for call in message.get("tool_calls", ())]
            placed += [self._outputs[id_] for id_ in ids if id_ in self._outputs]
        return placed

    def add(self, item: Json, at: str, drop: Callable[[str], None]) -> None:
        kind = item["type"]
        if kind == "message":
            self.add_message(item, at)
        elif kind in CALLS:
            self._add_call(item)
        elif kind in OUTPUTS:
            self._add_output(item, at)
        elif kind == "item_reference":
            raise bad_field(f"{at}.id", f"refers to `{item['id'][:64]}`, which is not kept; send the item itself")
        else:
            drop(f"{at} ({kind})")

    def add_message(self, item: Json, at: str) -> None:
        role, content = item["role"], item["content"]
        if role == "assistant":
            message: Json = {"role": role, "content": _assistant_content(content, at)}
            self._open = message
        else:
            message = {"role": role, "content": _content(content, f"{at}.content")}
            self._open = None
        self._messages.append(message)

    def _add_call(self, item: Json) -> None:
        if item["call_id"] in self._known:  # sent again by a client that also names the turn before
            return
        if self._open is None:
            self._open = {"role": "assistant", "content": None}
            self._messages.append(self._open)
        name = self._names.get((item.get("namespace"), item["name"])) or _joined(item.get("namespace"), item["name"])
        arguments = item["arguments"] if item["type"] == "function_call" else _wrapped(item["input"])
        call = {"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": arguments}}
        self._known[item["call_id"]] = call
        self._open.setdefault("tool_calls", []).append(call)

    def _add_output(self, item: Json, at: str) -> None:
        message = {"role": "tool", "tool_call_id": item["call_id"], "content": _content(item["output"], f"{at}.output")}
        if item["call_id"] in self._known:
            self._outputs[item["call_id"]] = message
        else:
            self._messages.append(message)
        self._open = None


def _wrapped(text: str) -> str:
    return msgspec.json.encode({"input": text}).decode()


def _assistant_content(content: str | list[Json], at: str) -> str | list[Json]:
    """Text alone as a text, which every server takes; with a refusal as parts."""
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{at}.content[{place}]") for place, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _content(content: str | list[Json], at: str) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{at}[{place}]") for place, part in enumerate(content)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def _part(part: Json, at: str) -> Json:
    match part["type"]:
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part["text"]}
        case "refusal":
            return {"type": "refusal", "refusal": part["refusal"]}
        case "input_image":
            return {"type": "image_url", "image_url": _image(part, at)}
        case "input_file":
            fields = {key: part[key] for key in ("file_id", "file_data", "filename") if part.get(key) is not None}
            if not fields.keys() & {"file_id", "file_data"}:
                raise unsupported(at, "is a file by its address, which this upstream cannot be given: send `file_data`")
            return {"type": "file", "file": fields}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
        case kind:
            raise unsupported(f"{at}.type", f"`{kind[:64]}` has no place in a request to this upstream")


def _image(part: Json, at: str) -> Json:
    url = part.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if not isinstance(url, str):
        raise unsupported(at, "is an image without an `image_url`, which this upstream cannot be given")
    image = {"url": url}
    if isinstance(part.get("detail"), str):
        image["detail"] = part["detail"]
    return image
