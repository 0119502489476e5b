"""The other client of the README: curl, which shows the bytes that an SDK hides."""

import json
import shutil
import subprocess

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


def test_curl_prints_a_stream_that_ends_with_done(lone_gateway: str) -> None:
    events = curl(lone_gateway, model="simulated", stream=True).split("\n\n")
    *chunks, done, rest = events
    assert (done, rest) == ("data: [DONE]", "")
    said = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    assert {chunk["object"] for chunk in said} == {"chat.completion.chunk"}


def test_curl_prints_a_whole_answer(lone_gateway: str) -> None:
    answer = json.loads(curl(lone_gateway, model="simulated"))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_curl_sees_the_first_event_long_before_the_last(lone_gateway: str) -> None:
    """Paced at 0.1 s a chunk, a stream that somebody on the way buffers would come all at once."""
    model = "simulated/chunks=10,pace=0.1"
    timing = curl(lone_gateway, "--output", "/dev/null", "--write-out", TIMES, model=model, stream=True)
    first, last = map(float, timing.split())
    assert last - first > 0.7


TIMES = "%{time_starttransfer} %{time_total}"


def curl(base_url: str, *options: str, **body: object) -> str:
    """What curl printed. Fails unless curl is content: a chunked answer cut short is its exit code 18."""
    body["messages"] = [{"role": "user", "content": "Hello"}]
    command = ["curl", "--silent", "--show-error", "--no-buffer", "--max-time", "30", *options]
    sent = ["--header", "content-type: application/json", "--data", json.dumps(body)]
    command += [*sent, f"{base_url}/chat/completions"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
