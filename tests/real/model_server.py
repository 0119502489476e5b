"""Install (once) and run a real model server: `python -m tests.real.model_server --port 8081`.

Prints `model server: listening on http://127.0.0.1:PORT` on stderr when it can answer; stops on SIGTERM.
"""

import os
import sys

from tests.real import install, llama


def main() -> None:
    options = sys.argv[1:]
    llama.parsed(options)  # a mistyped option should not cost an install first
    if reason := install.why_it_cannot_run_here():
        sys.exit(f"model server: {reason}")
    python = install.installed_python()
    # exec, not a child: one process to signal, and no parent of it that could die first and leave it behind.
    # -I: the private environment sees neither our packages nor our PYTHON* variables.
    os.execv(python, [str(python), "-I", llama.__file__, *options])


if __name__ == "__main__":
    main()
