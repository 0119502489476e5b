"""What the model server is busy with: its own word on whether a turn is still being computed."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

from msgspec import Struct

LOOK_EVERY = 0.01  # seconds; the server answers between two tokens, which take about as long


class ModelServer(Struct, frozen=True):
    """A running llama.cpp server; `url` is its root, without `/v1`."""

    url: str

    def busy_slots(self) -> int:
        return len(self._busy())

    def until_writing(self, within: float, turns: int = 1) -> None:
        """Until `turns` turns have each brought a token; `TimeoutError` if they have not by then."""
        _until(lambda: sum(_written(slot) > 0 for slot in self._busy()) >= turns, within, "too few slots write")

    def until_idle(self, within: float, but: int = 0) -> float:
        """The seconds until no slot, `but` so many, works on anything; `TimeoutError` beyond `within`."""
        return _until(lambda: self.busy_slots() <= but, within, "a slot is still busy")

    def _busy(self) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/slots", timeout=10) as answer:
            return [slot for slot in json.load(answer) if slot["is_processing"]]


def _written(slot: dict[str, Any]) -> int:
    return sum(token["n_decoded"] for token in slot["next_token"])


def _until(holds: Callable[[], bool], within: float, complaint: str) -> float:
    """Polls, as the server tells only who asks."""
    start = time.monotonic()
    while not holds():
        if (waited := time.monotonic() - start) > within:
            raise TimeoutError(f"{complaint} after {waited:.2f} s")
        time.sleep(LOOK_EVERY)
    return time.monotonic() - start
