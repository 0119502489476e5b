"""One epoll and one heap of timers: clients and upstream of a probe share a thread and read one clock.

Plain callbacks, because a load client and an upstream must cost less than the proxy between them, and
because a time taken in another thread would wait for the interpreter's lock. Knows no HTTP.
"""

import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
GONE = select.EPOLLHUP | select.EPOLLERR

# epoll waits whole milliseconds: paced streams would fall into step and their chunks come in company.
# Waits shorter than this (seconds) go through select, which takes microseconds.
FINE = 0.02

OnEvent = Callable[[int], None]


class Loop:
    """Level-triggered; a callback gets the epoll mask and does its own reading and writing."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, OnEvent] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = itertools.count()

    def watch(self, source: socket.socket | int, on_event: OnEvent, mask: int = READ) -> None:
        number = number_of(source)
        self._epoll.register(number, mask)
        self._watched[number] = on_event

    def rewatch(self, sock: socket.socket, mask: int) -> None:
        self._epoll.modify(sock, mask)

    def forget(self, source: socket.socket | int) -> None:
        """Before it is closed; a second time does nothing."""
        if self._watched.pop(number_of(source), None):
            self._epoll.unregister(source)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.perf_counter() + seconds, next(self._ticket), call))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs until `until()` holds or the time is over; answers whether it held."""
        end = time.perf_counter() + seconds
        while not (held := until()) and (left := end - time.perf_counter()) > 0:
            self._step(left)
        return held

    def _step(self, longest: float) -> None:
        for number, mask in self._ready(self._until_next_timer(longest)):
            if on_event := self._watched.get(number):  # an earlier callback may have closed it
                on_event(mask)
        now = time.perf_counter()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _ready(self, longest: float) -> list[tuple[int, int]]:
        if 0 < longest < FINE:
            select.select([self._epoll], (), (), longest)
            longest = 0
        return self._epoll.poll(longest)

    def _until_next_timer(self, longest: float) -> float:
        if not self._timers:
            return longest
        return min(longest, max(0.0, self._timers[0][0] - time.perf_counter()))

    def close(self) -> None:
        self._epoll.close()


def number_of(source: socket.socket | int) -> int:
    return source if isinstance(source, int) else source.fileno()
