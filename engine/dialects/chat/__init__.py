"""OpenAI Chat Completions, from both sides.

    request.py   a client's request body → a Prompt, or a refusal that names the field
    outgoing.py  a Prompt → the body for a Chat Completions upstream
    chunks.py    what a well-formed stream chunk looks like, as types
    reader.py    an upstream's stream → bursts, with what real servers get wrong mended on the way
    run.py       text chunks that differ only in their text, recognised by their bytes
    repair.py    the mending of one chunk; calls.py and think.py are its parts
    whole.py     answers in one piece, taken apart and put together
    writer.py    bursts → a client's stream or whole answer
    faults.py    errors, read from an upstream and said to a client

Source: the API description of 2026-11 (platform.openai.com/docs/api-reference/chat); the repairs come from public
bug reports, kept as tests/cases/.
"""

from engine.dialects.chat.outgoing import upstream_body
from engine.dialects.chat.reader import StreamReader
from engine.dialects.chat.request import parse
from engine.dialects.chat.writer import StreamWriter, WholeWriter

NAME = "chat"
PATH = "/chat/completions"

__all__ = ["NAME", "PATH", "StreamReader", "StreamWriter", "WholeWriter", "parse", "upstream_body"]
