"""The inert census: a test file of which nothing ran shows nothing, and is not to look as if it did.

Whoever runs the gate on a machine where some files cannot run says so in `TIDEGATE_INERT`, their paths one a line.
There is no default: a file that is inert and not declared is wrong, however good its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from evidence.gate import Exit
from evidence.gate.receipts import Receipt
from evidence.gate.static import is_test_file

DECLARED = "TIDEGATE_INERT"


def declared(environment: Mapping[str, str]) -> frozenset[str]:
    return frozenset(line.strip() for line in environment.get(DECLARED, "").splitlines() if line.strip())


def census(files: Collection[str], receipt: Receipt | None, known: Collection[str]) -> tuple[Exit, list[str], str]:
    """How it ended, what there is to say, and the line for the summary; of the suite's receipt."""
    if receipt is None or receipt.problem is not None:
        return Exit.UNTRUSTWORTHY, [], "without a whole run of the suite nobody knows what ran"
    planned = {file for file in files if is_test_file(file)}
    inert = {file for file in planned if not receipt.ran_in(file)}
    says = [f"{file}: {_why(file, receipt)}" for file in sorted(inert - {*known})]
    says += [f"{file} is declared inert, and is not" for file in sorted({*known} - inert)]
    line = f"{len(planned)} test files, {len(inert)} inert, {len(inert - {*known})} of them not declared"
    return (Exit.WRONG if inert - {*known} else Exit.OK), says, line


def _why(file: str, receipt: Receipt) -> str:
    reasons = {reason for test, reason in receipt.skipped.items() if test.partition("::")[0] == file}
    return f"nothing ran ({'; '.join(sorted(reasons)) or 'it was not collected'})"
