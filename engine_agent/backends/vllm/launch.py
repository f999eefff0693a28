"""Start vLLM under our scheduler from a model's folder: flags, start, and the reason of a failure. Imports vLLM."""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_agent.backends.base import ModelCard
from engine_agent.backends.vllm.declarations import vllm_enforcement
from engine_agent.backends.vllm.dying import Listening, exit_codes_in, said_of
from engine_agent.backends.vllm.formats import VLLM_DTYPES, WORKER, aliases
from engine_agent.backends.vllm.governor import Setup
from engine_agent.backends.vllm.versions import installed_version
from engine_agent.contracts.enforcement import enforcement_encode
from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.errors import BadSetting, EngineFailed
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.weights import model_revision
from kernels.formats import BASELINE, KV_FORMATS

SCHEDULER = "engine_agent.backends.vllm.scheduler.PolicyScheduler"
ASYNC_SCHEDULER = "engine_agent.backends.vllm.scheduler.PolicyAsyncScheduler"
CPU_BLOCK_TOKENS = 32  # the smallest block of vLLM's attention on CPUs
# On a CPU, vLLM quantises keys and values with one of these. It tests AVX-512F; its kernels need the others, too.
AVX_512, AMX = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}), "amx_tile"
# vLLM must not ask networks for models, report its use, listen elsewhere than on loopback, or write to standard output,
# where an engine prints that it is ready. Its warnings after an early end only distract from the reason.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # For killed processes it would follow the reason.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}


@dataclass(frozen=True, slots=True)
class Launched:
    client: Any
    card: ModelCard
    settings: EngineSettings
    model: ModelConfig
    secret: str = field(repr=False)
    listening: Listening


def launch(
    folder: Path, *, name: str, settings: EngineSettings, kv_format: str, tell: Callable[[str], None]
) -> Launched:
    """Start vLLM, in half a minute. Raises BadModel, BadSetting, EngineFailed, OSError with messages for operators."""
    model = read_config(folder)
    for setting, value in ENVIRONMENT.items():
        os.environ.setdefault(setting, value)
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))
    is_gpu = _computes_on_gpu(settings)
    if not is_gpu:
        check_processor(kv_format, processor_flags())
    tell(f"reading {folder.name}: {model.layers} layers of {model.hidden_size}")
    revision = model_revision(folder)
    return _launched(folder, name, settings, kv_format, model, revision, tell, is_gpu)


def _launched(
    folder: Path,
    name: str,
    settings: EngineSettings,
    kv_format: str,
    model: ModelConfig,
    revision: str,
    tell: Callable[[str], None],
    is_gpu: bool,
) -> Launched:
    import torch
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.core_client import EngineCoreClient
    from vllm.v1.executor import Executor

    from engine_agent.backends.accelerator import accelerator
    from engine_agent.backends.vllm.formats import served_names

    settings = settings.sized(gpu_free_bytes=torch.cuda.mem_get_info()[0] if is_gpu else None)
    settings = replace(settings, block_tokens=max(settings.block_tokens, 16 if is_gpu else CPU_BLOCK_TOKENS))
    context = settings.context_tokens or model.max_positions
    check_room(model, settings.pool_bytes, context, element_bytes=_element_bytes(kv_format))
    arguments = AsyncEngineArgs(
        model=str(folder),
        served_model_name=[name],
        skip_tokenizer_init=True,
        dtype=settings.dtype,
        kv_cache_dtype=VLLM_DTYPES[kv_format],
        max_model_len=context,
        block_size=settings.block_tokens,
        kv_cache_memory_bytes=settings.pool_bytes,
        max_num_batched_tokens=max(settings.chunk_tokens, settings.most_running),
        max_num_seqs=settings.most_running,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        enforce_eager=not is_gpu,
        scheduler_cls=ASYNC_SCHEDULER if is_gpu else SCHEDULER,
        async_scheduling=is_gpu,
        worker_extension_cls=WORKER,
        disable_log_stats=True,
        generation_config="vllm",
    )
    tell("starting vLLM")
    listening = Listening()
    try:
        config = arguments.create_engine_config()
        setup = Setup(name, revision, served_names(config), most_waiting=settings.most_waiting)
        config.additional_config = setup.packed()
        client = EngineCoreClient.make_async_mp_client(config, Executor.get_class(config), False)
    except Exception as problem:
        cause = listening.cause(exit_codes_in(str(problem)), said_of(problem))
        listening.close()
        raise EngineFailed("", f"vLLM did not start: {cause}") from problem
    blocks, width = int(config.cache_config.num_gpu_blocks), int(config.cache_config.block_size)
    page_bytes = settings.pool_bytes // max(1, blocks)
    card = ModelCard(
        name=name,
        revision=revision,
        created=int((folder / "config.json").stat().st_mtime),
        context_tokens=int(config.model_config.max_model_len),
        vocab_size=model.vocab_size,
        block_tokens=width,
        kv_dtypes=setup.kv_formats,
        device="cuda" if is_gpu else "cpu",
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        pool_bytes=(blocks - 1) * page_bytes,
        block_bytes=dict.fromkeys(setup.kv_formats, page_bytes),
        accelerator=accelerator(torch.device("cuda" if is_gpu else "cpu")),
        backend="vllm",
        backend_version=installed_version() or "",
        computed_as=aliases(setup.kv_formats),
        enforcement=enforcement_encode(vllm_enforcement(is_gpu=is_gpu)),
    )
    settings = replace(settings, context_tokens=card.context_tokens)
    return Launched(client, card, settings, model, secrets.token_hex(32), listening)


def _computes_on_gpu(settings: EngineSettings) -> bool:
    import torch

    return torch.cuda.is_available() and settings.device != "cpu"


def processor_flags() -> frozenset[str] | None:
    """Return the flags in /proc/cpuinfo (none on ARM), or None without that file."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def check_processor(kv_format: str, flags: frozenset[str] | None) -> None:
    """Refuse quantised keys and values on a CPU without AVX-512 and AMX; vLLM would refuse them only after its start.

    Raises BadSetting. If the flags are unknown, vLLM decides.
    """
    if flags is None or kv_format in ("auto", BASELINE):
        return
    if not (flags >= AVX_512 or AMX in flags):
        problem = f"vLLM computes {kv_format} on a CPU only with AVX-512 or AMX, which this CPU lacks: use bf16"
        raise BadSetting("kv_dtype", problem)


def _element_bytes(kv_format: str) -> float:
    """Return a lower bound of an element's size."""
    return KV_FORMATS[BASELINE if kv_format == "auto" else kv_format].key.bits / 8


def check_room(model: ModelConfig, pool_bytes: int, context_tokens: int, *, element_bytes: float) -> None:
    """Refuse a pool without room for one request of the whole context, which vLLM refuses only after half a minute.

    Raises BadSetting. `element_bytes` is a lower bound, so vLLM may still refuse what passes here.
    """
    token_bytes = 2 * model.layers * model.kv_heads * model.head_size * element_bytes
    if (tokens := int(pool_bytes // token_bytes)) < context_tokens:
        shortfall = (
            f"{pool_bytes / 2**20:,.1f} MiB hold {tokens:,} tokens, fewer than the context of {context_tokens:,}"
        )
        raise BadSetting("pool_bytes", f"{shortfall}: raise --pool, or lower --context")
