"""The far end of `tests.bench.workers`: a process that answers each line of JSON on stdin with one on stdout.

Standard library only: it also runs where only somebody else's packages are installed.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def serve(prepare: Callable[[], tuple[Mapping[str, Any], Answer]]) -> None:
    """Answer until asked no more. `prepare` returns what to say first, by which the other side knows we are ready, and
    what answers.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not be taken for an answer
        facts, answer = prepare()
        _say(answers, facts)
        for line in sys.stdin:
            _say(answers, answer(json.loads(line)))


def _say(answers: Any, what: Mapping[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()
