"""Which port a part listens on, and whether somebody else already does."""

import socket


def port_problem(host: str, port: int) -> OSError | None:
    """Why nothing can listen there now; EADDRINUSE when somebody else does."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do: a port in TIME_WAIT after our own last run is not somebody else's.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def port_is_free(host: str, port: int) -> bool:
    return port_problem(host, port) is None


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
