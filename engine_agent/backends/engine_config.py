"""The options of one engine process, read once into a frozen value. Nothing is opened or looked up here.

Standard library only, so that misspelt options are reported before any library is loaded.
"""

import argparse
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine_agent.backends.errors import BadOption
from engine_agent.backends.registry import USUAL, backend_entry, backend_names
from engine_agent.engine.errors import EngineError
from engine_agent.engine.settings import EngineSettings
from engine_agent.http.listening import local_url
from engine_agent.http.scraping import Scrapers
from engine_agent.process.commands import Parser, run
from engine_agent.process.config import default_home
from engine_agent.process.option_types import seconds_read, size_read, text_like, whole_read

DEFAULTS = EngineSettings()
DTYPES = {"auto": "auto", "bf16": "bfloat16", "bfloat16": "bfloat16", "fp32": "float32", "float32": "float32"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    model: Path
    name: str
    host: str
    port: int
    state: Path
    admin_socket: Path | None  # None: the admin API listens on `admin_port` of loopback
    admin_port: int
    policy: Path | None
    identity_secrets: tuple[Path, ...]  # files; none: a standalone engine
    agent_id: str
    settings: EngineSettings
    drain_seconds: float
    is_logging_json: bool
    backend: str = USUAL
    kv_dtype: str = "auto"  # for vLLM, which computes one format; our own engine computes all
    vllm_python: Path | None = None
    scrapers: Scrapers = field(default_factory=Scrapers)

    @property
    def is_alone(self) -> bool:
        return not self.identity_secrets

    @property
    def url(self) -> str:
        return local_url(self.host, self.port)


def engine_config(options: argparse.Namespace, environ: Mapping[str, str]) -> EngineConfig:
    """Return the configuration. Raises BadOption, BadSetting, and the backend's own errors."""
    state = options.state or default_home(environ, f"engine-{options.port}")
    if options.policy and options.identity_secret_file:
        raise BadOption("--policy", "is for an engine alone; with --identity-secret-file policies come as snapshots")
    backend_entry(options.backend).check(options)
    return EngineConfig(
        model=options.model,
        name=_name(options),
        host=options.host,
        port=options.port,
        state=state,
        admin_socket=None if options.admin_port is not None else options.admin_socket or state / "admin.sock",
        admin_port=options.admin_port or 0,
        policy=options.policy,
        identity_secrets=tuple(options.identity_secret_file),
        agent_id=options.agent_id or _agent_id(options.port),
        backend=options.backend,
        kv_dtype=options.kv_dtype,
        vllm_python=options.vllm_python,
        settings=_settings(options),
        drain_seconds=options.drain_seconds,
        is_logging_json=options.json_logs,
        scrapers=Scrapers.read(environ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Check an engine's options for a program that is about to start one, and report errors."""
    parser = Parser(prog="luminet engine", allow_abbrev=False)
    engine_options(parser)
    options = parser.parse_args(arguments)

    def read() -> int:
        engine_config(options, os.environ)
        return 0

    return run(read, EngineError)


def engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, metavar="PATH", help="a Hugging Face model's folder")
    parser.add_argument("--name", type=text_like(_MODEL), help="what clients call the model (the folder's name)")
    _computing(parser.add_argument_group("who computes"))
    _listening(parser.add_argument_group("where it listens"))
    _whom(parser.add_argument_group("whom it serves"))
    _sizes(parser.add_argument_group("how much of the machine it takes"))


def _computing(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--backend", choices=backend_names(), default=USUAL, help="our own engine, or vLLM (paged)")
    group.add_argument(
        "--kv-dtype", default="auto", metavar="NAME", help="of all of vLLM's keys and values (auto: the model's)"
    )
    group.add_argument(
        "--vllm-python", type=Path, metavar="PATH", help="of the virtualenv that has vLLM (.venv-vllm in the checkout)"
    )


def _listening(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1", help="(127.0.0.1)")
    group.add_argument("--port", type=whole_read(0, 65_535), default=8101, help="(8101; 0: any free one)")
    group.add_argument(
        "--state", type=Path, metavar="DIR", help="its key, journal and admin socket (.luminet/engine-PORT)"
    )
    admin = group.add_mutually_exclusive_group()
    admin.add_argument(
        "--admin-socket", type=Path, metavar="PATH", help="the admin face (admin.sock in the state folder)"
    )
    admin.add_argument(
        "--admin-port", type=whole_read(0, 65_535), metavar="PORT", help="instead of that on loopback, with a token"
    )
    group.add_argument(
        "--drain-seconds",
        type=seconds_read,
        default=30.0,
        metavar="N",
        help="for what still runs when it is stopped (30)",
    )
    group.add_argument("--json-logs", action="store_true", help="log lines for programs")


def _whom(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--policy", type=Path, metavar="FILE", help="what its namespace asks for, JSON or TOML; SIGHUP rereads"
    )
    group.add_argument(
        "--identity-secret-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="serve a fleet's gateways, which share this secret; may be repeated, to change it",
    )
    group.add_argument(
        "--agent-id", type=text_like(_NAME), metavar="ID", help="who it is in a fleet (the host's name and port)"
    )


def _sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--pool",
        type=_room_read,
        default=DEFAULTS.pool_bytes,
        metavar="SIZE",
        help="for keys and values (256MiB; on a GPU 90 %% of what is free)",
    )
    group.add_argument(
        "--host-pool", type=size_read, default=0, metavar="SIZE", help="for what is evicted from that (0)"
    )
    group.add_argument("--dtype", choices=tuple(DTYPES), default="auto", help="of weights and activations")
    group.add_argument("--device", default=DEFAULTS.device, help="cpu, cuda or auto")
    group.add_argument(
        "--threads", type=whole_read(1, 1024), default=DEFAULTS.threads, metavar="N", help="of a CPU (1)"
    )
    group.add_argument(
        "--context", type=whole_read(2), metavar="TOKENS", help="at most, prompt and answer (the model's)"
    )
    group.add_argument(
        "--chunk-tokens",
        type=whole_read(1),
        default=DEFAULTS.chunk_tokens,
        metavar="N",
        help="of prompts in one step (256; on a GPU 2048)",
    )
    group.add_argument(
        "--max-running",
        type=whole_read(1),
        default=DEFAULTS.most_running,
        metavar="N",
        help="answers at once (32; on a GPU 256)",
    )
    group.add_argument(
        "--max-waiting", type=whole_read(1), default=DEFAULTS.most_waiting, metavar="N", help="requests in line (1000)"
    )


def _settings(options: argparse.Namespace) -> EngineSettings:
    return EngineSettings(
        pool_bytes=options.pool,
        host_bytes=options.host_pool,
        chunk_tokens=options.chunk_tokens,
        most_running=options.max_running,
        most_waiting=options.max_waiting,
        context_tokens=options.context,
        dtype=DTYPES[options.dtype],
        device=options.device,
        threads=options.threads,
    )


def _name(options: argparse.Namespace) -> str:
    name = str(options.name or options.model.absolute().name)
    if not _MODEL.fullmatch(name):
        raise BadOption("--name", f"{name[:80]!r} cannot be a model's name: choose another with --name")
    return name


def _agent_id(port: int) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:100]
    return f"{host or 'engine'}-{port or os.getpid()}"


def _room_read(text: str) -> int:
    if not (size := size_read(text)):
        raise argparse.ArgumentTypeError("an engine without room for keys and values computes nothing")
    return size


if __name__ == "__main__":
    sys.exit(main())
