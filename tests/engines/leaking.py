"""`python -m tests.engines.leaking FOLDER …`: a real `luminet engine` that can be made to mix up two tenants.

As long as FOLDER has a file `leak`, its block manager looks into the first canary's namespace for the second's
requests. Every time it does, it says so in the file `leaked`, so that a test can tell that its fault happened.
"""

import sys
from pathlib import Path

from engine_agent.cache.books import Namespace
from engine_agent.cache.prefixes import PrefixCache
from engine_agent.contracts.protocol import CANARIES
from engine_agent.server.command import main

PROGRAM = "tests.engines.leaking"
LEAK, LEAKED = "leak", "leaked"


def inject(folder: Path) -> None:
    looked_up = PrefixCache.namespace
    first, second = CANARIES

    def mixed_up(self: PrefixCache, name: str) -> Namespace:
        if name != second or not (folder / LEAK).exists():
            return looked_up(self, name)
        with (folder / LEAKED).open("a") as said:
            said.write(f"{second} is looked up as {first}\n")
        return looked_up(self, first)

    PrefixCache.namespace = mixed_up  # type: ignore[method-assign]


if __name__ == "__main__":
    inject(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
