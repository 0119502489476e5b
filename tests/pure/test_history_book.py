"""Who is kept: ages, counts, bytes and shares; and that no chain is ever torn."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.history.book import Book, Bounds, Entry, TooLarge

SMALL = Bounds(idle=10, age=100, turns=4, bytes=1_000_000, least_share=100)


def entry(id_: str, tenant: str = "a", parent: str | None = None, size: int = 100, at: float = 0) -> Entry:
    return Entry(id_, tenant, parent, size, at, at)


def kept(book: Book, *ids: str, tenant: str = "a", now: float = 0) -> list[str]:
    return [id_ for id_ in ids if book.visible(tenant, id_, now) is not None]


def add(book: Book, *entries: Entry) -> list[str]:
    """Each is over at once."""
    gone: list[str] = []
    for each in entries:
        gone += book.add(each)
        gone += book.close(each.id, each.size, each.made_at)
    return gone


def test_a_turn_is_its_tenant_s_alone() -> None:
    book = Book(SMALL)
    add(book, entry("1"))
    assert kept(book, "1", "2") == ["1"]
    assert kept(book, "1", tenant="b") == []


def test_idle_is_since_the_last_use_and_age_since_the_making() -> None:
    book = Book(SMALL)
    add(book, entry("1"))
    assert (kept(book, "1", now=10), kept(book, "1", now=10.5)) == (["1"], [])
    for now in range(9, 100, 9):
        book.chain("1", now)
    assert (kept(book, "1", now=100), kept(book, "1", now=100.5)) == (["1"], [])


def test_a_chain_is_used_as_a_whole() -> None:
    book = Book(SMALL)
    add(book, entry("1"), entry("2", parent="1"))
    assert book.chain("2", now=9) == ["1", "2"]
    assert kept(book, "1", "2", now=15) == ["1", "2"]


def test_the_oldest_goes_when_there_are_too_many() -> None:
    book = Book(SMALL)
    assert add(book, *(entry(str(number), at=number) for number in range(6))) == ["0", "1"]
    book.chain("2", now=7)
    assert add(book, entry("6", at=8)) == ["3"]


def test_a_turn_with_a_child_is_not_evicted_and_neither_is_one_under_way() -> None:
    book = Book(SMALL)
    book.add(entry("open"))
    add(book, entry("1", at=1), entry("2", parent="1", at=1), entry("3", at=2))
    assert add(book, entry("4", at=3)) == ["2"]
    assert kept(book, "open", "1", "3", "4", now=3) == ["open", "1", "3", "4"]


def test_who_has_more_than_its_share_pays_for_itself() -> None:
    book = Book(SMALL)
    add(book, entry("b", "b"), *(entry(str(number), at=1) for number in range(3)))
    assert add(book, entry("3", at=2)) == ["0"]
    assert kept(book, "b", tenant="b") == ["b"]


def test_who_has_less_than_its_share_takes_from_the_oldest_of_all() -> None:
    book = Book(SMALL)
    add(book, *(entry(str(number), at=number) for number in range(4)))
    assert add(book, entry("b", "b", at=5)) == ["0"]


def test_bytes_are_bounded_and_counted() -> None:
    book = Book(Bounds(turns=100, bytes=400_000, least_share=0))
    add(book, *(entry(str(number), size=90_000, at=number) for number in range(4)))
    assert book.bytes == 360_000
    assert add(book, entry("4", size=90_000, at=5)) == ["0"]
    assert book.bytes == 360_000


def test_a_tenant_keeps_its_least_share_whoever_else_is_there() -> None:
    book = Book(Bounds(turns=100, bytes=400_000, least_share=300_000))
    add(book, *(entry(f"b{number}", f"b{number}", size=50_000, at=number) for number in range(5)))
    gone = add(book, entry("1", size=90_000, at=6), entry("2", size=90_000, at=7))
    assert gone == ["b0"]
    assert kept(book, "1", "2", now=7) == ["1", "2"]


def test_what_is_larger_than_one_may_be_is_refused_and_changes_nothing() -> None:
    book = Book(Bounds(bytes=400_000))
    assert book.bounds.largest == 100_000
    add(book, entry("0"))
    with pytest.raises(TooLarge, match="100001 bytes; 100000 are kept of one"):
        book.add(entry("1", size=100_001, parent="0"))
    book.add(entry("2"))
    with pytest.raises(TooLarge):
        book.close("2", 100_001, 0)
    assert (len(book), book.bytes, book.hide("0")) == (2, 200, ["0"])


def test_a_turn_whose_parent_is_gone_is_refused() -> None:
    with pytest.raises(KeyError):
        Book(SMALL).add(entry("1", parent="0"))


def test_a_deleted_parent_resolves_no_longer_and_goes_with_its_last_child() -> None:
    book = Book(SMALL)
    add(book, entry("1"), entry("2", parent="1"), entry("3", parent="2"))
    assert (book.hide("1"), kept(book, "1", "2", "3")) == ([], ["2", "3"])
    assert book.chain("3", 0) == ["1", "2", "3"]
    assert (book.hide("2"), book.hide("3")) == ([], ["3", "2", "1"])
    assert (len(book), book.bytes, book.tenants) == (0, 0, 0)


def test_what_is_too_old_goes_and_a_parent_waits_for_its_child() -> None:
    book = Book(SMALL)
    add(book, entry("1", at=0), entry("other", at=0))
    book.chain("1", 9)
    add(book, entry("2", parent="1", at=9))
    assert book.expire(12) == ["other"]
    book.chain("2", 19)
    for now in range(28, 110, 9):
        book.chain("2", now)
    assert book.expire(105) == []
    assert (kept(book, "1", now=105), kept(book, "2", now=105)) == ([], ["2"])
    assert book.expire(110) == ["2", "1"]


def test_what_a_store_found_is_as_it_was() -> None:
    book = Book(SMALL)
    found = [entry("2", parent="1", at=2), entry("1", at=3), entry("3", at=1)]
    for each in found:
        each.is_open = False
    book.restore(found)
    assert (book.bytes, book.chain("2", 3)) == (300, ["1", "2"])
    assert add(book, entry("4", at=4), entry("5", at=4)) == ["3"]


class Kept(RuleBasedStateMachine):
    """Whatever is done to it: what resolves has all its ancestors, the sums are right, and the bounds are held."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Book(Bounds(idle=30, age=80, turns=6, bytes=300_000, least_share=0))
        self.now = 0.0
        self.made = 0

    def visible(self, tenant: str) -> list[str]:
        return [str(n) for n in range(self.made) if self.book.visible(tenant, str(n), self.now) is not None]

    @rule(tenant=st.sampled_from("ab"), size=st.integers(1, 70_000), at=st.integers(0, 100), over=st.booleans())
    def make(self, tenant: str, size: int, at: int, over: bool) -> None:
        known = self.visible(tenant)
        parent = known[at % len(known)] if known and at % 2 else None
        self.book.add(entry(str(self.made), tenant, parent, size, self.now))
        if over:
            self.book.close(str(self.made), size + 1, self.now)
        self.made += 1

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        self.book.expire(self.now)

    @precondition(lambda self: self.visible("a"))
    @rule(at=st.integers(0, 100))
    def delete(self, at: int) -> None:
        known = self.visible("a")
        self.book.hide(known[at % len(known)])

    @invariant()
    def no_chain_is_torn(self) -> None:
        for tenant in "ab":
            for id_ in self.visible(tenant):
                place = next(each for each in self.book.entries() if each.id == id_)
                while place.parent is not None:
                    place = next(each for each in self.book.entries() if each.id == place.parent)

    @invariant()
    def the_sums_are_right(self) -> None:
        entries = self.book.entries()
        assert self.book.bytes == sum(each.size for each in entries)
        assert self.book.tenants == len({each.tenant for each in entries})
        for each in entries:
            assert each.children == sum(other.parent == each.id for other in entries)

    @invariant()
    def the_bounds_are_held(self) -> None:
        """By what is over; what is under way is bounded elsewhere, and may take the place of nobody else's."""
        assert sum(not each.is_open for each in self.book.entries()) <= 6


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
