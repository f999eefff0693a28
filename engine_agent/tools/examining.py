"""What `luminet doctor` asks of a data plane's machine, in a process of its own: facts as JSON, and no judgement.

    python -m engine_agent.tools.examining machine
    python -m engine_agent.tools.examining home DIR

Changes nothing: no file is written, no lock kept, and what an agent's credentials are for is done once, as reading.
Nothing secret is printed.
"""

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from engine_agent.http.redirects import Stays

if TYPE_CHECKING:  # importing it for real needs third-party packages
    from engine_agent.sidecar.credentials import Credentials

SECONDS = 3.0
QUERY = "--query-gpu=driver_version"


def main(arguments: Sequence[str]) -> int:
    match [*arguments]:
        case ["machine"]:
            facts = machine()
        case ["home", folder]:
            facts = home(Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 1
    print(json.dumps(facts))
    return 0


def machine() -> dict[str, Any]:
    """Return the accelerators and libraries that engines would find on this machine."""
    import torch

    from kernels.native.library import status

    has_cuda, cuda_problem = _sees_cuda(torch)
    return {
        "driver": _driver(),
        "has_device_files": Path("/dev/nvidia0").exists(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "why_no_cuda": cuda_problem,
        "devices": [_device(torch, number) for number in range(torch.cuda.device_count())] if has_cuda else [],
        "architectures": torch.cuda.get_arch_list() if has_cuda else [],
        "triton": _triton(),
        "native": status(),
    }


def _sees_cuda(torch: Any) -> tuple[bool, str | None]:
    if torch.version.cuda is None:
        return False, None
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return False, _first_line(error)
    return bool(torch.cuda.is_available()), None


def _device(torch: Any, number: int) -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info(number)
    properties = torch.cuda.get_device_properties(number)
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "free_bytes": free,
        "total_bytes": total,
    }


def _triton() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    try:
        command_line = [command, QUERY, "--format=csv,noheader"]
        done = subprocess.run(command_line, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split("\n")[0].strip() or None if done.returncode == 0 else None


def home(folder: Path) -> dict[str, Any]:
    """Return facts about an agent or a gateway: identity, whether it runs, undelivered data, and access rights."""
    from engine_agent.sidecar.credentials import credentials_read
    from engine_agent.sidecar.errors import BadCredentials

    try:
        credentials = credentials_read(folder)
    except (BadCredentials, OSError) as error:
        return {"problem": _first_line(error)}
    if credentials is None:
        return {"problem": f"there are no credentials in {folder}"}
    return {
        "home": str(folder),
        "kind": credentials.kind,
        "agent": credentials.agent,
        "url": credentials.url,
        "runs": _is_locked(folder / "lock"),
        "has_snapshot": (folder / "snapshot").is_file(),
        **_spool(folder / "spool"),
        **_others(credentials),
    }


def _others(credentials: "Credentials") -> dict[str, Any]:
    """Check control plane and broker in parallel: when both are down, a sequence would exceed the caller's timeout."""
    with ThreadPoolExecutor(2) as executor:
        control_plane = executor.submit(_control_plane, credentials.url, credentials.token)
        broker = executor.submit(_broker, str(credentials.broker["url"]))
        return {**control_plane.result(), **broker.result()}


def _is_locked(lock: Path) -> bool:
    """Return whether a process holds the lock exclusively, by taking a shared lock for an instant."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _spool(path: Path) -> dict[str, Any]:
    from engine_agent.sidecar.spool import Frozen, Spool

    try:
        content, modified_at = path.read_bytes(), path.stat().st_mtime
    except FileNotFoundError:
        return {"spooled": 0}
    spool = Spool(Frozen(content))
    return {"spooled": len(spool), "spool_age_seconds": time.time() - modified_at, "spool_problem": spool.problem}


def _control_plane(url: str, token: str) -> dict[str, Any]:
    """Return the control plane's status from a request that changes nothing; its body is not read."""
    request = Request(f"{url}/agent/v1/snapshot?have=", headers={"Authorization": f"Bearer {token}"})
    began = time.time()
    try:
        with build_opener(ProxyHandler({}), Stays).open(request, timeout=SECONDS) as answer:
            status, date = answer.status, answer.headers.get("date")
    except HTTPError as refused:
        status, date = refused.code, refused.headers.get("date")
    except (OSError, HTTPException, ValueError) as error:
        return {"control_plane_problem": _first_line(getattr(error, "reason", error))}
    return {"status": status, "date": date, "asked_at": (began + time.time()) / 2}


def _broker(url: str) -> dict[str, Any]:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    retry = Retry(NoBackoff(), 0)
    try:
        with redis.Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, retry=retry) as client:
            client.ping()
            return {"broker": "ok", "broker_is_loose": _may(client)}
    except (redis.RedisError, OSError) as error:
        return {"broker": _first_line(error)}


def _may(client: Any) -> bool:
    """Return whether the client can read what it should not. It should be refused."""
    import redis

    try:
        client.execute_command("INFO", "server")
    except redis.exceptions.NoPermissionError:
        return False
    return True


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
