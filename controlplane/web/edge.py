"""The web's server: it limits connections like the data plane, with the web's own settings and errors.

The limits need no proxy: they apply to a connection before any application sees it.
"""

import sys
from typing import Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from controlplane.live.protocol import MOST_BYTES, ListeningSocket
from controlplane.settings.env import Environment
from engine_agent.http.connection_limits import ConnectionLimits
from engine_agent.http.connections import Config, Connection, Deadlines, Refusal
from engine_agent.http.errors import ApiError
from engine_agent.http.listening import CannotListen, bind_tcp
from engine_agent.process.commands import open_files_raise

APPLICATION: Final = "controlplane.served:application"
GRACE_SECONDS = 3
KEPT_SECONDS = 75  # idle connections: agents report every 5 s, and a large fleet should not reconnect each time
SPARE_FILES, LEAST_CONNECTIONS = 256, 64  # files for the database and Redis; the minimum of connections
PROBLEM_TYPES: Final = {400: "malformed", 408: "too-slow", 431: "head-too-large", 503: "overloaded"}


def web_serve(environment: Environment) -> None:
    """Serve until a signal ends it."""
    config = web_config(environment, files=open_files_raise())
    try:
        listening = bind_tcp(environment.web_host, environment.web_port)
    except CannotListen as problem:
        sys.exit(f"luminet: {problem}")
    if config.workers > 1:
        Multiprocess(config, sockets=[listening]).run()
        return
    config.load_app()
    server = uvicorn.Server(config)
    server.run(sockets=[listening])
    if not server.started:
        sys.exit(uvicorn.config.STARTUP_FAILURE)


def web_config(environment: Environment, *, files: int) -> Config:
    """Return the server's configuration. `files`: how many the process may open; each connection is one."""
    return Config(
        APPLICATION,
        limits=ConnectionLimits(
            total=min(environment.web_connections, max(LEAST_CONNECTIONS, files - SPARE_FILES)),
            per_address=environment.web_connections_per_address,
            exempt=environment.trusted_proxies,
        ),
        deadlines=Deadlines(environment.web_head_seconds, environment.web_body_seconds),
        refusal=problem_refusal,
        host=environment.web_host,
        port=environment.web_port,
        workers=environment.web_workers,
        loop="uvloop",
        http=Connection,
        ws=ListeningSocket,
        ws_max_size=MOST_BYTES,
        # Compression gains nothing for messages of 300 bytes, and would cost each socket a few hundred kB.
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=[str(network) for network in environment.trusted_proxies],
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEPT_SECONDS,
    )


def problem_refusal(error: ApiError, request_id: str) -> Refusal:
    """Return a refusal of the connection as a problem document, as the REST API would."""
    # Imported late: with several web processes, the supervisor serves no request and needs no Django.
    from controlplane.api.problem_json import CONTENT_TYPE, problem, problem_bytes
    from controlplane.api.problems import MEANINGS
    from controlplane.common.metrics import http_requests
    from controlplane.common.request_id import request_id_bound

    http_requests.labels("OTHER", "refused", str(error.status)).inc()
    kind = PROBLEM_TYPES[error.status]
    with request_id_bound(request_id):
        document = problem(error.status, type=kind, title=MEANINGS[kind][1], detail=error.message)
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    return Refusal(headers, problem_bytes(document))
