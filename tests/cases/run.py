"""`python -m tests.cases.run --cases DIR`: plays a folder of cases and says what did not hold.

Ends with `N passed, N failed, N not run`; the exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import trio

from tests.cases.gateway import DEFAULT_COMMAND
from tests.cases.plan import Entry, load
from tests.cases.play import must_be_alone
from tests.cases.verdict import Verdict, judge

AT_ONCE = 2
STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.cases.is_dir():
        parser.error(f"no such folder: {options.cases}")
    entries = [entry for entry in load(options.cases) if options.only in entry.name]
    verdicts = trio.run(_judge_all, entries, options)
    if len(verdicts) < len(entries):
        _say(f"stopped: {len(entries) - len(verdicts)} entries were not judged")
        return STOPPED
    _report(verdicts, options)
    return 0 if all(verdict.has_passed or verdict.not_run for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.cases.run", description=__doc__)
    parser.add_argument("--cases", type=Path, default=Path(__file__).parent, help="folder of case files")
    parser.add_argument("--only", default="", help="only entries whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="a line for every entry")
    parser.add_argument("--show", action="store_true", help="print the observations")
    parser.add_argument(
        "--gateway-command",
        default=DEFAULT_COMMAND,
        help="what to test; {config} and {upstream} are filled in; it must print `listening on http://…`",
    )
    return parser


async def _judge_all(entries: list[Entry], options: argparse.Namespace) -> list[Verdict]:
    """In order of the entries; fewer than those if the run was stopped."""
    verdicts: dict[int, Verdict] = {}
    limit = trio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            verdicts[number] = await judge(entries[number], options.gateway_command)
        _report_progress(verdicts[number], options)

    async with trio.open_nursery() as run:
        run.start_soon(_stop_on_signal, run.cancel_scope)
        async with trio.open_nursery() as together:
            for number, entry in enumerate(entries):
                if not must_be_alone(entry):
                    together.start_soon(one, number)
        for number, entry in enumerate(entries):
            if must_be_alone(entry):
                await one(number)
        run.cancel_scope.cancel()
    return [verdicts[number] for number in sorted(verdicts)]


async def _stop_on_signal(run: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            run.cancel()


def _report_progress(verdict: Verdict, options: argparse.Namespace) -> None:
    if options.verbose and not verdict.not_run:
        unchecked = f", {verdict.unchecked} sentences without a check" if verdict.unchecked else ""
        word = "passed" if verdict.has_passed else "FAILED"
        _say(f"{word}  {verdict.entry.name}  ({verdict.seconds:.1f} s{unchecked})")
    if options.show:
        for observation in verdict.observations:
            _say(json.dumps(observation, indent=1, ensure_ascii=False, default=repr))


def _report(verdicts: list[Verdict], options: argparse.Namespace) -> None:
    for verdict in verdicts:
        for shortcoming in verdict.shortcomings:
            _say(f"SHOULD {verdict.entry.name}: {shortcoming}")
        if verdict.faults:
            _say(f"FAILED {verdict.entry.name}: {' || '.join(verdict.faults)}")
        if verdict.not_run and options.verbose:
            _say(f"not run {verdict.entry.name}: {verdict.not_run}")
    for reason, count in Counter(verdict.not_run for verdict in verdicts if verdict.not_run).most_common():
        _say(f"not run: {count:4}  {reason}")
    passed = sum(verdict.has_passed for verdict in verdicts)
    failed = sum(bool(verdict.faults) for verdict in verdicts)
    _say(f"{passed} passed, {failed} failed, {len(verdicts) - passed - failed} not run")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
