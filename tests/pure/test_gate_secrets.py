"""The secret scan: each kind of secret is found, by its place and never by its text, and what is marked is let be."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from evidence.gate.secret_scan import findings

DRAWN = "q8Zt3LxV0bN7" + "rYw2PkD9sHf4" + "JmC6uTgE1aXo"
SECRETS = {
    "OpenAI": "sk-" + "proj-" + DRAWN,
    "Anthropic": "sk-" + "ant-api03-" + DRAWN,
    "Google": "AI" + "za" + DRAWN[:35],
    "Groq": "gs" + "k_" + DRAWN,
    "Hugging Face": "h" + "f_" + DRAWN,
    "xAI": "xa" + "i-" + DRAWN,
    "AWS": "AK" + "IA" + "Q3EGRNXT7ABLYZ5W",
    "GitHub": "gh" + "p_" + DRAWN,
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJhIn0." + DRAWN,
    "drawn at random": f"'{DRAWN}'",
    "drawn at random, in hex": "'" + "9f86d081884c7d659a2f" + "eaa0c55ad015a3bf4f1b2b0b'",  # pragma: allowlist secret
    "basic authentication": "https://user:" + DRAWN + "@host",
}
MARK = "pragma: allowlist " + "secret"


def found(folder: Path, text: str, *, recorded: bool = False) -> list[tuple[str, int]]:
    (folder / "x.py").write_text(text)
    return [(file, line) for file, line, _ in findings(folder, ["x.py"], ["x.py"] if recorded else [])]


@pytest.mark.parametrize("name", SECRETS)
def test_each_kind_is_found_in_its_line(name: str, tmp_path: Path) -> None:
    assert set(found(tmp_path, f"\nvalue = {SECRETS[name]}\n")) == {("x.py", 2)}


@pytest.mark.parametrize("name", SECRETS)
def test_a_marked_line_is_let_be_and_the_next_is_not(name: str, tmp_path: Path) -> None:
    line = f"value = {SECRETS[name]}"
    assert found(tmp_path, f"{line}  # {MARK}\n") == []
    nextline = MARK.replace("secret", "nextline secret")
    assert set(found(tmp_path, f"# {nextline}\n{line}\n{line}\n")) == {("x.py", 3)}


@pytest.mark.parametrize("name", set(SECRETS) - {"drawn at random", "drawn at random, in hex"})
def test_in_a_recording_only_what_is_drawn_at_random_is_let_be(name: str, tmp_path: Path) -> None:
    assert set(found(tmp_path, f"value = {SECRETS[name]}\n", recorded=True)) == {("x.py", 1)}


def test_ids_in_a_recording_are_let_be(tmp_path: Path) -> None:
    line = f'data: {{"id": {SECRETS["drawn at random"]}}}\n'
    assert found(tmp_path, line) == [("x.py", 1)]
    assert found(tmp_path, line, recorded=True) == []


def test_text_in_base64_is_text(tmp_path: Path) -> None:
    body = base64.b64encode(b'data: {"choices": [{"delta": {"content": "How are you?"}}]}\n\n').decode()
    assert found(tmp_path, f'"{body}"\n') == []


@pytest.mark.parametrize("name", ["OpenAI", "GitHub", "private key", "xAI"])
def test_a_key_in_base64_is_a_key(name: str, tmp_path: Path) -> None:
    body = base64.b64encode(f"authorization: {SECRETS[name]}, and more of it\n".encode()).decode()
    assert found(tmp_path, f'body = "{body}"\n') == [("x.py", 1)]


@pytest.mark.parametrize(
    "text", ["sk-short", "task-force-of-the-whole-regiment-01", "sha256:…", "'a' * 64", "the_hf_model_of_the_day", "''"]
)
def test_what_only_looks_like_one_is_none(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, f"value = {text}\n") == []


def test_what_is_no_text_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"\0" + SECRETS["OpenAI"].encode())
    assert list(findings(tmp_path, ["x.png"])) == []


def test_a_finding_does_not_show_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"key = '{SECRETS['OpenAI']}'\n")
    assert DRAWN not in str(list(findings(tmp_path, ["x.py"])))
