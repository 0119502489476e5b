"""The secret scan: no key, private key, token or other random literal in what is tracked or about to be.

`python -m evidence.gate.secret_scan`. The patterns are detect-secrets' own, and those of model providers that it does
not know. A literal that must stand there is marked in its line with `pragma: allowlist secret`, or in the line before
with `pragma: allowlist nextline secret`. Files of the git attribute `recorded` have ids in them that real servers drew,
and are not searched for random literals; for the rest they are.

Exits with 0, 1 or 2. A finding is named by its place and kind, and never shown.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import re
import string
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.scan import scan_file, scan_line
from detect_secrets.settings import transient_settings

from evidence.gate import Exit
from evidence.gate.repository import GitError, Repository

RECORDED = "recorded"
MARKS = ("pragma: allowlist secret", "pragma: allowlist nextline secret")
UNUSED = ("IPPublicDetector", "KeywordDetector")
"""Of an address nothing is secret; and a name that sounds secret says nothing of its value."""
RANDOM = {"Base64HighEntropyString": 4.5, "HexHighEntropyString": 3.0}
"""From how many bits a character on a quoted literal counts as random: detect-secrets' own figures."""
FILTERS = (
    "allowlist.is_line_allowlisted",
    "heuristic.is_sequential_string",
    "heuristic.is_potential_uuid",
    "heuristic.is_templated_secret",
    "heuristic.is_not_alphanumeric_string",
    "heuristic.is_non_text_file",
)
PROVIDERS = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?:ant-|or-|proj-|svcacct-)?[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic, OpenRouter, DeepSeek and their kind
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|(?:gsk|hf|r8|xai|pplx|nvapi|fw|tgp_v1|csk|co)[_-][A-Za-z0-9_-]{30,}"  # Groq, Hugging Face, Replicate, xAI …
    r"|AKIA[A-Z0-9]{16}|ABSK[A-Za-z0-9+/=]{60,}"  # AWS, and Bedrock's own
    r")(?![A-Za-z0-9_-])"
)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_TEXT = frozenset(string.printable.encode())


class Finding(NamedTuple):
    file: str
    line: int
    kind: str


def findings(root: Path, files: Collection[str], recorded: Collection[str] = ()) -> Iterator[Finding]:
    """In the order of the files."""
    for file in sorted(files):
        yield from sorted(set(_in_file(root, file, is_recorded=file in recorded)), key=lambda found: found.line)


def _in_file(root: Path, file: str, *, is_recorded: bool) -> Iterator[Finding]:
    data = (root / file).read_bytes()
    if b"\0" in data:
        return
    encoded: list[tuple[int, str]] = []
    with transient_settings(_settings(random=not is_recorded)):
        for secret in scan_file(str(root / file)):
            if (text := _decoded(secret.secret_value or "")) is not None:
                encoded.append((secret.line_number, text))
            else:
                yield Finding(file, secret.line_number, secret.type)
    with transient_settings(_settings(random=False)):
        for number, text in encoded:
            if PROVIDERS.search(text) or any(True for line in text.splitlines() for _ in scan_line(line)):
                yield Finding(file, number, "A key in base64")
    before = ""
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if PROVIDERS.search(line) and MARKS[0] not in line and MARKS[1] not in before:
            yield Finding(file, number, "Provider key")
        before = line


def _settings(*, random: bool) -> dict[str, object]:
    plugins: dict[str, type] = get_mapping_from_secret_type_to_class()
    names = {plugin.__name__ for plugin in plugins.values()} - {*UNUSED}
    used = sorted(names if random else names - RANDOM.keys())
    return {
        "plugins_used": [{"name": name} | ({"limit": RANDOM[name]} if name in RANDOM else {}) for name in used],
        "filters_used": [{"path": f"detect_secrets.filters.{name}"} for name in FILTERS],
    }


def _decoded(literal: str) -> str | None:
    """The text that a literal is the base64 of, as bodies in JSON are; None if it is none. Bytes drawn at random are
    printable three times in eight."""
    if not _BASE64.fullmatch(literal):
        return None
    try:
        data = base64.b64decode(literal, validate=True)
    except binascii.Error:
        return None
    return data.decode("utf-8", "replace") if sum(byte in _TEXT for byte in data) > 0.8 * len(data) else None


def scan(repository: Repository) -> tuple[Exit, str]:
    """Prints each finding; the line is for the summary. Raises GitError."""
    files = repository.files()
    count = 0
    for found in findings(repository.root, files, repository.with_attribute(RECORDED)):
        print(f"{found.file}:{found.line}: {found.kind}; if it is a fixture, mark the line with `{MARKS[0]}`")
        count += 1
    return (Exit.WRONG if count else Exit.OK), f"{len(files)} files, {count} findings"


def main() -> Exit:
    argparse.ArgumentParser("python -m evidence.gate.secret_scan", description=__doc__).parse_args()
    try:
        exit_, says = scan(Repository.around(Path.cwd()))
    except GitError as error:
        exit_, says = Exit.UNTRUSTWORTHY, str(error)
    print(says)
    return exit_


if __name__ == "__main__":
    sys.exit(main())
