"""The gate: whether the tests behind a promise would notice if the promise were broken.

Words, here and in the specs:

spec           one promise, the test files behind it, how many of their tests pass, and the mutants they must catch
mutant         one wrong edit of the product: a text that occurs once in a file (the anchor), and what replaces it
pin            the number of passing tests that a spec expects of the untouched tree; measured, written by hand
drift          the pin and the measurement differ: the suite changed, or the spec is stale
receipt        what one run of pytest says of itself: every test with its outcome, or why it cannot be believed
caught         a test failed under the mutant; survived: none did
untrustworthy  nothing can be concluded: a run broke off, other tests ran than before, something else changed
inert          a test file of which nothing ran

Every command exits with 0 (as it should be), 1 (it is not) or 2 (untrustworthy: nobody knows). Unknown options are 2.
No command writes a spec.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command or a step ended. The worst of several is the largest."""

    OK = 0
    WRONG = 1
    UNTRUSTWORTHY = 2
