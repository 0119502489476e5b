"""Which tool call a delta belongs to, whatever the server says or leaves out.

The protocol: a call's first delta has index, id, type and name; later ones have the index and a piece of the
arguments. Real servers send no index, no id, an empty or repeated one, one index for two calls, the name in every
delta. A client's accumulator adds up whatever it is sent, so each of these breaks it in its own way.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import msgspec

MOST_CALLS = 1024
"""Calls of one choice: a bound on what a stream can make the gateway remember, far above any real answer."""
MOST_ARGUMENTS = 1024 * 1024
"""Characters of one call's arguments that are kept to tell whether they are complete; longer ones are not judged."""
_NO_ID = ("", "null", "None")


class TooManyCalls(ValueError):
    """A stream begins more tool calls than are kept track of."""


@dataclass
class Call:
    """One tool call of a choice, as far as it has come."""

    number: int
    said_index: int | None
    said_id: str | None
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def take(self, arguments: str) -> None:
        self.length += len(arguments)
        if self.length > MOST_ARGUMENTS:
            self.pieces.clear()
        elif arguments:
            self.pieces.append(arguments)

    def has_whole_arguments(self) -> bool:
        """Whether the arguments are a complete JSON document, so that more would belong to another call."""
        if not self.pieces or self.pieces[-1].rstrip()[-1:] not in ("}", "]"):
            return False
        try:
            msgspec.json.decode("".join(self.pieces))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


@dataclass(frozen=True)
class Placed:
    """Where a delta belongs. `name` is the piece of the name that is news to the client."""

    call: Call
    is_new: bool
    name: str | None
    arguments: str


class ToolCalls:
    """The calls of one choice, numbered in the order they began."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def fits(self, index: int | None, id_: str | None, name: str | None) -> bool:
        """Whether a delta is just what the protocol wants here: the next call's start, or more of a known one."""
        if id_ is None:
            known = index is not None and 0 <= index < len(self._calls) and self._calls[index].said_index == index
            return known and name is None and self._find(index, None, None) is self._calls[index or 0]
        is_fresh = id_ not in _NO_ID and all(call.id != id_ for call in self._calls)
        return index == len(self._calls) and is_fresh and bool(name) and self._find(index, id_, name) is None

    def place(self, index: int | None, id_: str | None, name: str | None, arguments: str) -> Placed:
        """Find the delta's call, or begin one. Raises TooManyCalls."""
        said_id = None if id_ is None or id_ in _NO_ID else id_
        call = self._find(index, said_id, name)
        is_new = call is None
        if call is None:
            number = len(self._calls)
            if number >= MOST_CALLS:
                raise TooManyCalls(f"more than {MOST_CALLS} tool calls in one answer")
            call = Call(number, index, said_id, self._fresh_id(said_id), name or "")
            self._calls.append(call)
            news = name
        else:
            call.said_id = call.said_id or said_id
            news = self._more_of_the_name(call, name)
        call.take(arguments)
        return Placed(call, is_new, news, arguments)

    def _find(self, index: int | None, id_: str | None, name: str | None) -> Call | None:
        """The call that a delta goes on with; None if it begins one."""
        if id_ is not None and (same := self._with_id(id_, index, name)) is not None:
            return same
        last = self._last_at(index)
        if last is None:
            return None
        if id_ is not None:
            # An id that is new with a name is a new call; without one it is late, or changes with every delta.
            return None if name and (last.said_id is not None or last.length) else last
        return None if name and last.name and self._begins_another(last, name) else last

    def _with_id(self, id_: str, index: int | None, name: str | None) -> Call | None:
        same = [call for call in self._calls if call.said_id == id_]
        if not same:
            return None
        call = same[-1]
        is_another = name and call.name and name != call.name and index is not None and index != call.said_index
        return None if is_another else call

    def _last_at(self, index: int | None) -> Call | None:
        if index is None:
            return self._calls[-1] if self._calls else None
        at_index = [call for call in self._calls if call.said_index == index]
        return at_index[-1] if at_index else self._unnumbered(index)

    def _fresh_id(self, said: str | None) -> str:
        """The server's id, unless it gave the same one to another call."""
        if said is None or any(call.id == said for call in self._calls):
            return f"call_{uuid.uuid4().hex[:24]}"
        return said

    def _unnumbered(self, index: int) -> Call | None:
        """The call that began without an index and turns out to have this number."""
        if 0 <= index < len(self._calls) and self._calls[index].said_index is None:
            return self._calls[index]
        return None

    @staticmethod
    def _begins_another(call: Call, name: str) -> bool:
        """A name again and no id: a new call, unless it is the same name over unfinished arguments."""
        if not call.length:
            return False
        return name != call.name or call.has_whole_arguments()

    @staticmethod
    def _more_of_the_name(call: Call, name: str | None) -> str | None:
        """A name that comes in pieces goes on; one that is repeated is no news."""
        if not name or name == call.name or call.length:
            return None
        call.name += name
        return name
