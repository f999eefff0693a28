"""The settings of one engine: sizes and bounds, checked once. Standard library only."""

from dataclasses import dataclass, replace

from engine_agent.engine.errors import BadSetting

MIB = 1 << 20


CPU_POOL_BYTES, CPU_CHUNK_TOKENS, CPU_MOST_RUNNING = 256 * MIB, 256, 32
GPU_CHUNK_TOKENS, GPU_MOST_RUNNING = 2048, 256
GPU_POOL_PART = 0.9  # of the free memory after the weights are loaded; activations use some of the rest


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """An engine's sizes and bounds. 0 means a default for the device, which `sized` fills in."""

    pool_bytes: int = 0
    host_bytes: int = 0
    block_tokens: int = 16
    chunk_tokens: int = 0  # the most computed in one step, which bounds the wait for another request's prompt
    most_running: int = 0  # answers in the batch at once
    most_waiting: int = 1_000
    context_tokens: int | None = None  # None: the model's own
    dtype: str = "auto"
    device: str = "auto"
    threads: int = 1  # on shared cores, two threads that wait for each other are slower than one

    def __post_init__(self) -> None:
        for name, least in (
            ("pool_bytes", 0),
            ("host_bytes", 0),
            ("block_tokens", 16),
            ("chunk_tokens", 0),
            ("most_running", 0),
            ("most_waiting", 1),
            ("threads", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise BadSetting(name, f"{value!r} is no whole number of {least} or more")
        if self.context_tokens is not None and (type(self.context_tokens) is not int or self.context_tokens < 2):
            raise BadSetting("context_tokens", f"{self.context_tokens!r} is no whole number of 2 or more")
        if self.block_tokens & (self.block_tokens - 1):
            raise BadSetting("block_tokens", f"{self.block_tokens} is no power of two")
        if self.dtype not in ("auto", "float32", "bfloat16"):
            raise BadSetting("dtype", f"{self.dtype!r} is none of auto, float32, bfloat16")

    def sized(self, *, gpu_free_bytes: int | None) -> "EngineSettings":
        """Return the settings with all defaults filled in. None: there is no GPU."""
        is_cpu = gpu_free_bytes is None
        pool_bytes = CPU_POOL_BYTES if gpu_free_bytes is None else int(gpu_free_bytes * GPU_POOL_PART)
        return replace(
            self,
            pool_bytes=self.pool_bytes or pool_bytes,
            chunk_tokens=self.chunk_tokens or (CPU_CHUNK_TOKENS if is_cpu else GPU_CHUNK_TOKENS),
            most_running=self.most_running or (CPU_MOST_RUNNING if is_cpu else GPU_MOST_RUNNING),
        )
