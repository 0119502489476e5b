"""Reasoning in <think> tags: told apart from the text at the start of an answer, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.think import CLOSE, LONGEST_LEAD, OPEN, ThinkTags

EXAMPLES = {
    "<think>hm</think>so": ("hm", "so"),
    "\n <think>hm</think>\n\nso": ("hm", "so"),
    "<think></think>so": ("", "so"),
    "<think>hm": ("hm", ""),
    "<think>a < b </thin </thinks></think>so": ("a < b </thin </thinks>", "so"),
    "<think>hm</think>so <think>x</think>": ("hm", "so <think>x</think>"),
    "<think>a<think>b</think>so": ("a<think>b", "so"),
    "</think>so": ("", "so"),
    "so <think>hm</think>": ("", "so <think>hm</think>"),
    "<thin": ("", "<thin"),
    "<thinking>hm": ("", "<thinking>hm"),
    "  so\n": ("", "  so\n"),
    "<think>hm</thi": ("hm</thi", ""),
    "\n\n": ("", "\n\n"),
    "": ("", ""),
    "<think>hm</think>\n\n": ("hm", ""),
    "<THINK>hm": ("", "<THINK>hm"),
}


def told_apart(pieces: list[str]) -> tuple[str, str]:
    tags = ThinkTags()
    parts = [*map(tags.split, pieces), tags.flush()]
    return "".join(reasoning for reasoning, _ in parts), "".join(words for _, words in parts)


@pytest.mark.parametrize(("text", "expected"), EXAMPLES.items(), ids=repr)
def test_an_example_is_told_apart_whole_and_letter_by_letter_and_cut_anywhere(
    text: str, expected: tuple[str, str]
) -> None:
    assert told_apart([text]) == expected
    assert told_apart(list(text)) == expected
    for place in range(len(text)):
        assert told_apart([text[:place], text[place:]]) == expected


PARTS = st.lists(st.sampled_from([OPEN, CLOSE, "<", "</", "think>", ">", "a", " ", "\n", "é"]), max_size=12)


@given(PARTS)
def test_no_cutting_changes_what_is_told_apart(parts: list[str]) -> None:
    text = "".join(parts)
    assert told_apart(parts) == told_apart([text]) == told_apart(list(text))


@given(PARTS)
def test_no_letter_is_lost_but_tags_and_white_space_around_them(parts: list[str]) -> None:
    text = "".join(parts)
    reasoning, words = told_apart([text])
    kept = text
    if text.lstrip().startswith(OPEN):
        kept = text.lstrip().removeprefix(OPEN)
        if CLOSE in kept:
            thought, _, rest = kept.partition(CLOSE)
            kept = thought + rest.lstrip("\n")
    elif text.lstrip().startswith(CLOSE):
        kept = text.lstrip().removeprefix(CLOSE).lstrip("\n")
    assert reasoning + words == kept


def test_text_is_not_held_back_longer_than_it_may_be_a_tag() -> None:
    tags = ThinkTags()
    assert tags.split("<th") == ("", "")
    assert tags.split("e") == ("", "<the")
    assert tags.done
    tags = ThinkTags()
    assert tags.split("<think>a</t") == ("a", "")
    assert tags.split("x") == ("</tx", "")
    assert not tags.done


def test_white_space_before_a_tag_is_held_back_only_so_far() -> None:
    tags = ThinkTags()
    words = ""
    for _ in range(LONGEST_LEAD):
        words += tags.split(" ")[1]
    assert words == " " * LONGEST_LEAD
    assert tags.done


def test_nobody_needs_to_ask_any_more_once_the_text_has_begun() -> None:
    tags = ThinkTags()
    assert not tags.done
    tags.split("<think>hm</think>")
    assert not tags.done  # line feeds may follow
    tags.split("\nso")
    assert tags.done


def test_a_long_thought_is_never_gone_through_twice() -> None:
    """Only a beginning of the closing tag is kept, so that each piece costs no more than itself."""
    tags = ThinkTags()
    tags.split(OPEN)
    for _ in range(1000):
        tags.split("<" * 50)
        assert len(tags._held) < len(CLOSE)
