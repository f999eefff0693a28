"""The tests that need vLLM, as CI runs them: after all others. Where there is no vLLM, that is said and fails nothing.

`make ci` runs this after `make check`. `make test-vllm` is for who wants them: it fails where they cannot be run.
"""

import sys
from collections.abc import Callable, Sequence

from tests.vllm import environment
from tests.vllm.environment import FAILED, NOT_RUN, PASSED, banner

NOT_TESTED = (
    "NOTHING OF vLLM WAS TESTED: it could not be installed, for the reason above.",
    "That alone fails no CI. `make test-vllm` runs these tests where there is a network and a wheel.",
)


def main(arguments: Sequence[str], run: Callable[[Sequence[str]], int] = environment.main) -> int:
    told = run(arguments)
    if told == NOT_RUN:
        print(banner(*NOT_TESTED), file=sys.stderr)
    return PASSED if told in (PASSED, NOT_RUN) else FAILED


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
