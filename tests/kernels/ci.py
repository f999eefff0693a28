"""The full kernel matrix as CI runs it: not again if the last green run tested the same kernels in the same way."""

from collections.abc import Callable, Sequence

from tests.kernels import __main__ as full
from tests.kernels.verified import Ids, current_ids, differences, verified_ids

LEFT_OUT = (
    "make test-kernels: left out. The kernels, their tests, Python, torch, Triton, numpy, the C compiler and the"
    " processor are those of the last green full run (tests/kernels/verified.json)."
)


def main(
    run: Callable[[Sequence[str]], int] = full.main,
    verified: Callable[[], Ids] = verified_ids,
    current: Callable[[], Ids] = current_ids,
) -> int:
    differing = differences(verified(), current())
    if not differing:
        print(LEFT_OUT)
        return 0
    print(f"make test-kernels: runs. Changed since the last green full run: {', '.join(differing)}.", flush=True)
    return run([])


if __name__ == "__main__":
    raise SystemExit(main())
