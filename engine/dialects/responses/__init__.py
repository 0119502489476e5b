"""OpenAI Responses, from the client's side, over a Chat Completions upstream.

    request.py   a client's request body → what was asked, or a refusal that names the field
    items.py     what a conversation is made of: ids, and the checks of a client's own items
    outgoing.py  what was asked, and the turns before it → the body for a Chat Completions upstream
    writer.py    bursts → items, events and the response object

Source: OpenAI's API description and the Open Responses specification, both of 2026-11.
"""

from engine.dialects.responses.outgoing import Outgoing, outgoing
from engine.dialects.responses.request import Asked, parse
from engine.dialects.responses.writer import Writer

__all__ = ["Asked", "Outgoing", "Writer", "outgoing", "parse"]
