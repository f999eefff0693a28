"""Fair compute shares: a namespace's virtual time rises with the tokens computed for it, divided by its weight.

The namespace with the lowest time goes first, so a flood of long prompts from one namespace delays another's request by
one chunk, not by the flood. A namespace that was idle starts at the time of the active ones, so it cannot save up time.
"""

from collections.abc import Collection, Iterable


class ComputeShares:
    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._active: set[str] = set()

    def begin_step(self, active: Collection[str]) -> None:
        """Set the namespaces that have something to compute now."""
        active_times = [self._times[name] for name in active if name in self._active]
        floor = min(active_times, default=max(self._times.values(), default=0.0))
        for name in active:
            if name not in self._active:
                self._times[name] = max(self._times.get(name, floor), floor)
        self._active = set(active)
        if len(self._times) > 2 * len(self._active) + 64:  # forget inactive ones: they would start at the floor again
            self._times = {name: at for name, at in self._times.items() if name in self._active or at > floor}

    def first(self, names: Iterable[str]) -> str:
        return min(names, key=lambda name: (self._times[name], name))

    def charge(self, name: str, tokens: int, weight: float) -> None:
        self._times[name] += tokens / weight
