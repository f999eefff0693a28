"""Open an engine from a model's folder: weights, revision, scales, pages, and a first token to warm up."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from engine_agent.engine.batch import BatchRow
from engine_agent.engine.calibration import load_calibration, scale_set
from engine_agent.engine.config import ModelConfig, read_config
from engine_agent.engine.dtypes import serving_dtype
from engine_agent.engine.engine import Engine, Parts
from engine_agent.engine.errors import BadSetting
from engine_agent.engine.kv_pages import KvPages
from engine_agent.engine.model import Model, load_model
from engine_agent.engine.runner import Runner, RunRow
from engine_agent.engine.settings import EngineSettings
from engine_agent.engine.tokenizer import Tokenizer
from kernels.formats import EXACT, KV_FORMATS, KvFormat
from kernels.layout import PageLayout
from kernels.scales import ScaleSet, neutral_scales

Tell = Callable[[str], None]
MEASURED_TOKENS = 128


def open_engine(
    folder: Path,
    *,
    name: str,
    settings: EngineSettings,
    boot: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    tell: Tell = lambda line: None,
) -> Engine:
    """Return a ready engine. Raises EngineError, OSError. `tell` gets a line before each slow part."""
    torch.set_num_threads(settings.threads)
    config = read_config(folder)
    device = _device(settings.device)
    context = settings.context_tokens or config.max_positions
    if context > config.max_positions:
        raise BadSetting("context_tokens", f"{context:,} is more than the model was made for, {config.max_positions:,}")
    tell(f"reading {folder.name}: {config.layers} layers of {config.hidden_size}")
    dtype = serving_dtype(folder, config, device=device, asked=settings.dtype)
    model = load_model(folder, dtype=dtype, device=device, most_positions=context)
    settings = settings.sized(gpu_free_bytes=torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None)
    revision = model.revision
    layouts = page_layouts(config, settings.block_tokens, dtype)
    scales = _scales(folder, config, layouts, revision, device)
    pages = KvPages(layouts, device_bytes=settings.pool_bytes, host_bytes=settings.host_bytes, device=device)
    if settings.host_bytes:
        tell("measuring whether loading from the host is worth it")
        pages.open_host(pages.worth_loading(_prefill_seconds(model, pages, scales)))
    tokenizer = Tokenizer.from_folder(folder, config)
    parts = Parts(model, revision, tokenizer, pages, scales, replace(settings, context_tokens=context), context)
    return Engine(parts, name=name, boot=boot or secrets.token_hex(8), clock=clock)


def served_name(folder: Path) -> str:
    """Return the model's name for clients: the folder's name."""
    return folder.resolve().name


def page_layouts(config: ModelConfig, block_tokens: int, dtype: torch.dtype) -> Mapping[str, PageLayout]:
    """Return the layouts of every format that policies offer, plus the exact one for a model in float32."""
    offered = [kv_format for kv_format in KV_FORMATS.values() if _is_served(kv_format, dtype)]
    return {
        kv_format.name: PageLayout(kv_format, config.layers, config.kv_heads, config.head_size, block_tokens)
        for kv_format in offered
    }


def _is_served(kv_format: KvFormat, dtype: torch.dtype) -> bool:
    return kv_format.is_offered or (kv_format.name == EXACT and dtype == torch.float32)


def _scales(
    folder: Path, config: ModelConfig, layouts: Mapping[str, PageLayout], revision: str, device: torch.device
) -> Mapping[str, ScaleSet]:
    calibration = load_calibration(folder, config, model_revision=revision)
    return {
        name: neutral_scales(layout, device)
        if calibration is None
        else scale_set(calibration, layout.kv_format).to(device)
        for name, layout in layouts.items()
    }


def _prefill_seconds(model: Model, pages: KvPages, scales: Mapping[str, ScaleSet]) -> float:
    """Return the seconds per token of a chunk, measured in an unused pool."""
    kv_format, layout = next(iter(pages.layouts.items()))
    runner = Runner(model, pages.arena, pages.layouts, scales)
    pool_tokens = pages.arena.numel() // layout.page_bytes * layout.block_tokens
    tokens = min(MEASURED_TOKENS, pool_tokens, model.config.max_positions)
    offsets = [number * layout.page_bytes for number in range(-(-tokens // layout.block_tokens))]
    row = RunRow(BatchRow(kv_format, offsets, 0, tokens), [1] * tokens, wants_logits=False)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        runner.run([row])  # reads a result, so it waits for a GPU
        times.append(time.perf_counter() - began)
    return min(times) / tokens


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
