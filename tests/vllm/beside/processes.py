"""The processes of an engine with vLLM."""

from pathlib import Path


def core_of(front: int) -> int:
    """The process in which vLLM schedules, of the engine whose process that is."""
    (core,) = [pid for pid in children(front) if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()]
    return core


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(one)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for one in (task / "children").read_text().split()
    ]
