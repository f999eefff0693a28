"""Calls one function with the settings of a stack's own parts: `python -m tests.bench.inside MODULE:FUNCTION JSON…`.

What it returns is printed as the last line, in JSON. With `--serve`, each line of standard input is a call, and is
answered with one line: `result JSON`, or `problem` when the call failed, with its traceback on standard error.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import django


def main(*words: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()
    if words == ("--serve",):
        serve()
    else:
        print(called(*words))


def called(name: str, *arguments: str) -> str:
    module, _, function = name.partition(":")
    return json.dumps(getattr(import_module(module), function)(*map(json.loads, arguments)))


def serve() -> None:
    """Each call in a child of its own: none inherits a connection, a cache or a thread of the call before."""
    for line in sys.stdin:
        call = json.loads(line)
        import_module(call[0].partition(":")[0])
        if (child := os.fork()) == 0:
            _answer(call)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print("problem", flush=True)


def _answer(call: Sequence[str]) -> NoReturn:
    """End this process, with status 0 after a result was printed."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = called(*call)
        print("result", result, flush=True)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
