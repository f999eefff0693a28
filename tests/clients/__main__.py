"""`make test-clients`: clients generated from the REST API's description in two languages, on a real web process.

Where a generator cannot be installed this says so, and ends with a status of its own: what did not run is not green.
"""

import os
import subprocess
import sys
from collections.abc import Callable

from controlplane.stack.bootstrap import CHECKOUT
from controlplane.stack.environments import Unavailable
from tests.clients.environment import NODE_CLIENTS, PYTHON_CLIENTS
from tests.vllm.environment import FAILED, NOT_RUN, PASSED, banner

BOTH = "LUMINET_TEST_CLIENTS"  # set to 1: TypeScript's tests run as well, and what cannot run fails


def main(ready: tuple[Callable[[], object], ...] = (PYTHON_CLIENTS.ready_python, NODE_CLIENTS.ready_modules)) -> int:
    try:
        for one in ready:
            one()
    except Unavailable as why:
        print(banner(f"NO GENERATED CLIENT WAS TESTED: {why}"), file=sys.stderr)
        return NOT_RUN
    command = [sys.executable, "-m", "pytest", "tests/clients"]
    code = subprocess.run(command, cwd=CHECKOUT, env={**os.environ, BOTH: "1"}, check=False).returncode
    return FAILED if code else PASSED


if __name__ == "__main__":
    raise SystemExit(main())
