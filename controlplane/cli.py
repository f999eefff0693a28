"""The `luminet` command, the same on every machine. Each command imports only what it needs when it runs."""

import importlib
import os
import sys
from collections.abc import Sequence

from controlplane.commands.standalone import STANDALONE
from controlplane.common.collector import collect_less_often


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    collect_less_often()
    try:
        return _run(words)
    except ModuleNotFoundError as error:
        return _missing_half(error, words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output stopped early, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(words: list[str]) -> int:
    if words and words[0] in STANDALONE:
        status: int = importlib.import_module(STANDALONE[words[0]].module).main(words[1:])
        return status
    from controlplane.commands.tree import run

    return run(words)


def _missing_half(error: ModuleNotFoundError, words: Sequence[str]) -> int:
    """Say which extra is missing: the machine has one half of Luminet, and the command belongs to the other."""
    if (error.name or "").split(".")[0] in {"controlplane", "tenants"}:
        raise error
    extra = _extra_of(words)
    print(
        f"luminet: {error.name} is not installed on this machine. This command needs the extra `{extra}`: "
        f"pip install -c constraints.txt -e '.[{extra}]'",
        file=sys.stderr,
    )
    return 1


def _extra_of(words: Sequence[str]) -> str:
    """Return the extra that the command needs, in addition to what is installed: pip removes nothing."""
    name = words[0] if words else ""
    if name in STANDALONE:
        return STANDALONE[name].extra
    return "control,embedded" if name == "stack" else "control"


if __name__ == "__main__":
    sys.exit(main())
