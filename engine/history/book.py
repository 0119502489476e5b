"""Who is kept: ages, counts, bytes and tenants' shares. Pure; the stores tell it the time and do what it says.

A turn is kept as itself, and names its parent: what is stored for a chain of N turns grows with N. So a parent must
stay as long as a child needs it. Deleted or expired, it is hidden: it resolves no longer, and goes when its last child
does. Only turns without children are evicted, so no chain is ever torn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct


class Bounds(Struct, frozen=True):
    """In seconds, turns and bytes. A tenant may hold its share of turns and bytes whoever else is there."""

    idle: float = 3600.0
    """Since a turn was last read, continued or written."""
    age: float = 86_400.0
    """Since it was made; never renewed."""
    turns: int = 10_000
    bytes: int = 128 * 1024 * 1024
    least_share: int = 256 * 1024
    """Bytes that a tenant may hold, however many tenants there are."""

    @property
    def largest(self) -> int:
        """Bytes of one turn."""
        return max(64 * 1024, self.bytes // 4)


class Entry(Struct):
    """What is known of a turn without its content. `size` in bytes; times on the store's clock."""

    id: str
    tenant: str
    parent: str | None
    size: int
    made_at: float
    used_at: float
    is_open: bool = True
    """Under way: it is not evicted."""
    is_hidden: bool = False
    children: int = 0


class TooLarge(Exception):
    """A turn is larger than one may be. The message says by how much."""


class Statistics(Struct, frozen=True):
    """Counts since the process began, and what is held now."""

    stored: int
    hits: int
    misses: int
    gone: int
    """Evicted, expired or deleted."""
    refused: int
    turns: int
    bytes: int
    tenants: int


class Book:
    """Every turn that is stored, in the order in which they were used last."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._entries: dict[str, Entry] = {}
        self._of_tenant: dict[str, list[int]] = {}
        """Turns and bytes of each tenant that has any."""
        self.bytes = 0
        self._stored = self._hits = self._misses = self._gone = self._refused = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tenants(self) -> int:
        return len(self._of_tenant)

    @property
    def statistics(self) -> Statistics:
        return Statistics(
            stored=self._stored,
            hits=self._hits,
            misses=self._misses,
            gone=self._gone,
            refused=self._refused,
            turns=len(self),
            bytes=self.bytes,
            tenants=self.tenants,
        )

    def restore(self, entries: Collection[Entry]) -> None:
        """What a store found when it was opened."""
        for entry in sorted(entries, key=lambda entry: entry.used_at):
            self._put(entry)
        for entry in entries:
            if entry.parent in self._entries:
                self._entries[entry.parent].children += 1

    def entries(self) -> Collection[Entry]:
        return self._entries.values()

    def visible(self, tenant: str, id_: str, now: float) -> Entry | None:
        """A turn of this tenant that resolves; a stranger's is as unknown as none at all."""
        entry = self._entries.get(id_)
        if entry is None or entry.tenant != tenant or entry.is_hidden:
            return None
        return entry if self._is_fresh(entry, now) else None

    def add(self, entry: Entry) -> list[str]:
        """Enter a turn; what has to go for it. Raises TooLarge, or KeyError if its parent is gone; nothing has changed
        then."""
        self._check_size(entry.size)
        if entry.parent is not None:
            self._entries[entry.parent].children += 1
        self._put(entry)
        return list(self._make_room(entry))

    def close(self, id_: str, size: int, now: float) -> list[str]:
        """A turn is over and has its final size; what has to go for it. Raises TooLarge; then it is as it was."""
        entry = self._entries[id_]
        self._check_size(size)
        self._resize(entry, size)
        self._stored += entry.is_open
        entry.is_open = False
        self._use(entry, now)
        return list(self._make_room(entry))

    def resolve(self, tenant: str, id_: str, now: float) -> list[str] | None:
        """The chain of a turn that a tenant asks for; None if it has no such turn. Raises KeyError as `chain` does."""
        if self.visible(tenant, id_, now) is None:
            self._misses += 1
            return None
        self._hits += 1
        return self.chain(id_, now)

    def chain(self, id_: str, now: float) -> list[str]:
        """A turn and its ancestors, the oldest first; all of them count as used now. Raises KeyError, the id in it, if
        one is missing."""
        chain: list[str] = []
        place: str | None = id_
        while place is not None:
            chain.append(place)
            place = self._entries[place].parent
        chain.reverse()
        for each in chain:
            self._use(self._entries[each], now)
        return chain

    def hide(self, id_: str) -> list[str]:
        """It resolves no longer; what goes with it."""
        entry = self._entries[id_]
        entry.is_hidden = True
        return list(self._drop_if_unneeded(entry))

    def discard(self, id_: str) -> list[str]:
        """It could not be written down: it goes, if it was entered."""
        if id_ not in self._entries:
            return []
        self._entries[id_].is_open = False
        return self.hide(id_)

    def expire(self, now: float) -> list[str]:
        """What is too old goes, or is hidden while it has children."""
        late = [entry for entry in self._entries.values() if not entry.is_open and not self._is_fresh(entry, now)]
        gone: list[str] = []
        for entry in late:
            entry.is_hidden = True
            if entry.id in self._entries:
                gone += self._drop_if_unneeded(entry)
        return gone

    def _check_size(self, size: int) -> None:
        if size > self.bounds.largest:
            self._refused += 1
            raise TooLarge(f"the turn has {size} bytes; {self.bounds.largest} are kept of one")

    def _is_fresh(self, entry: Entry, now: float) -> bool:
        return now - entry.made_at <= self.bounds.age and now - entry.used_at <= self.bounds.idle

    def _put(self, entry: Entry) -> None:
        self._entries[entry.id] = entry
        held = self._of_tenant.setdefault(entry.tenant, [0, 0])
        held[0] += 1
        self._resize(entry, entry.size, was=0)

    def _resize(self, entry: Entry, size: int, was: int | None = None) -> None:
        more = size - (entry.size if was is None else was)
        entry.size = size
        self.bytes += more
        self._of_tenant[entry.tenant][1] += more

    def _use(self, entry: Entry, now: float) -> None:
        entry.used_at = now
        self._entries[entry.id] = self._entries.pop(entry.id)

    def _make_room(self, new: Entry) -> Iterator[str]:
        while len(self._entries) > self.bounds.turns or self.bytes > self.bounds.bytes:
            victim = self._victim(new)
            if victim is None:
                return
            victim.is_hidden = True
            yield from self._drop_if_unneeded(victim)

    def _victim(self, new: Entry) -> Entry | None:
        """Who has more than its share pays with its own oldest turn; otherwise the oldest of all goes."""
        turns, held = self._of_tenant[new.tenant]
        share = max(self.bounds.least_share, self.bounds.bytes // self.tenants)
        is_over = held > share if self.bytes > self.bounds.bytes else turns > max(1, self.bounds.turns // self.tenants)
        for entry in self._entries.values():
            is_free = entry.children == 0 and not entry.is_open and entry is not new
            if is_free and (not is_over or entry.tenant == new.tenant):
                return entry
        return None

    def _drop_if_unneeded(self, entry: Entry) -> Iterator[str]:
        """With it go its hidden ancestors that only it needed."""
        place: Entry | None = entry
        while place is not None and place.is_hidden and place.children == 0 and not place.is_open:
            del self._entries[place.id]
            self._gone += 1
            self._resize(place, 0)
            held = self._of_tenant[place.tenant]
            held[0] -= 1
            if not held[0]:
                del self._of_tenant[place.tenant]
            yield place.id
            place = self._entries.get(place.parent) if place.parent is not None else None
            if place is not None:
                place.children -= 1
