"""Binds a process's sockets before anything slow begins, so that a port in use is reported at once."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SILENT_MILLISECONDS = 60_000  # the kernel drops a client whose machine acknowledges nothing for so long
LONGEST_PATH = 107  # limit for a Unix socket, in bytes, on Linux; 103 on macOS


class CannotListen(Exception):
    """The address is in use or invalid; the message names it."""


def local_url(host: str, port: int) -> str:
    """Return the URL of a server for users of this machine."""
    reachable_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"http://{f'[{reachable_host}]' if ':' in reachable_host else reachable_host}:{port}"


def bind_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise CannotListen(f"{host}:{port}: is no address of this machine: {problem.strerror}") from problem
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted sockets inherit it
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MILLISECONDS)
        bound.bind(address)
    except OSError as problem:
        bound.close()
        raise CannotListen(f"{host}:{port}: {_why(problem)}") from problem
    return bound


@contextmanager
def listen_unix(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that only its owner may open. It replaces one that a dead process left, and is deleted at the
    end, unless another process has replaced it by then.
    """
    with _bind_unix(path) as bound:
        ours = path.stat().st_ino
        try:
            yield bound
        finally:
            with suppress(OSError):
                if path.stat().st_ino == ours:
                    path.unlink()


def _bind_unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise CannotListen(f"{path}: is longer than the {LONGEST_PATH} bytes a socket may have: give --admin-socket")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        if path.is_socket():
            _check_left_behind(path)
            path.unlink()
        bound.bind(os.fspath(path))
        bound.listen()  # from here on, other processes see that the path is in use
    except OSError as problem:
        bound.close()
        raise CannotListen(f"{path}: {_why(problem)}") from problem
    finally:
        os.umask(mask)
    return bound


def _check_left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(os.fspath(path))
        except ConnectionRefusedError:
            return
        except BlockingIOError:  # another process listens, and is busy
            pass
    raise OSError(errno.EADDRINUSE, "somebody answers", os.fspath(path))


def _why(problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return "is in use already"
    return f"cannot be listened on: {problem.strerror}"
