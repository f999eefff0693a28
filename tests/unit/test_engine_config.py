import argparse
import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_agent.backends.engine_config import EngineConfig, engine_config
from engine_agent.backends.errors import BadOption
from engine_agent.engine.errors import BadSetting, EngineError
from engine_agent.engine.settings import EngineSettings
from engine_agent.http.listening import CannotListen, bind_tcp, listen_unix
from engine_agent.process.config import default_home
from engine_agent.process.option_types import size_read
from engine_agent.server.command import main, parser
from engine_agent.server.doors import Doors
from engine_agent.server.state import BadState, StateFolder, read_secret
from tests.engines.processes import DEMO

NOTHING: dict[str, str] = {}


def config(*arguments: str, environ: dict[str, str] = NOTHING) -> EngineConfig:
    return engine_config(parser().parse_args(["--model", "models/llama", *arguments]), environ)


def test_sizes_are_read_as_people_write_them(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int]] = [
        ("4096", 4096),
        ("0", 0),
        ("10B", 10),
        ("1k", 1_000),
        ("256MiB", 256 * 2**20),
        ("256 mib", 256 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("1.5GiB", 3 * 2**29),
        ("2T", 2 * 10**12),
    ]
    for text, bytes_ in cases:
        with subtests.test(msg=f"{text!r}, {bytes_!r}"):
            assert size_read(text) == bytes_


def test_what_is_no_size_is_named(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "MiB", "-1", "1e9", "12x", "1.", "0x10", "٣MiB", "1" * 13, "1MiBit"]
    for text in cases:
        with subtests.test(msg=text), pytest.raises(argparse.ArgumentTypeError, match="is no size like 256MiB"):
            size_read(text)


def test_nothing_but_a_model_makes_an_engine_alone_on_this_machine() -> None:
    found = config()
    assert (found.name, found.host, found.port, found.url) == ("llama", "127.0.0.1", 8101, "http://127.0.0.1:8101")
    assert found.is_alone
    assert found.admin_socket == found.state / "admin.sock"
    assert found.settings == EngineSettings()


def test_options_become_the_engines_settings() -> None:
    found = config(
        *("--pool", "1GiB", "--host-pool", "2GiB", "--dtype", "bf16", "--threads", "2", "--context", "4096"),
        *("--chunk-tokens", "64", "--max-running", "4", "--max-waiting", "9", "--device", "cpu"),
    )
    assert found.settings.pool_bytes == 2**30
    assert found.settings.host_bytes == 2**31
    assert found.settings.dtype == "bfloat16"
    assert found.settings.context_tokens == 4096
    settings = found.settings
    assert (settings.threads, settings.chunk_tokens, settings.most_running, settings.most_waiting) == (2, 64, 4, 9)


def test_an_identity_secret_makes_it_a_fleets() -> None:
    found = config("--identity-secret-file", "a", "--identity-secret-file", "b", "--agent-id", "agent-1")
    assert not found.is_alone
    assert [path.name for path in found.identity_secrets] == ["a", "b"]
    assert found.agent_id == "agent-1"
    with pytest.raises(BadOption, match="--policy: is for an engine alone"):
        config("--identity-secret-file", "a", "--policy", "policy.toml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--backend", "vllm", "--host-pool", "1GiB"),
            "host_bytes: vLLM has no host tier under policies: leave --host",
        ),
        (("--kv-dtype", "fp8"), "--kv-dtype: is for --backend vllm"),
        (("--backend", "paged", "--vllm-python", "python3"), "--vllm-python: is for --backend vllm"),
    ],
)
def test_what_the_backend_would_leave_unheeded_is_refused(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(EngineError) as refused:
        config(*options)
    assert str(refused.value).startswith(said)
    assert isinstance(refused.value, BadOption | BadSetting)


def test_each_port_has_a_state_of_its_own_where_people_expect_it() -> None:
    assert default_home({"LUMINET_HOME": "/srv/luminet"}, "engine-8102") == Path("/srv/luminet/engine-8102")
    assert default_home({}, "engine-8101").parts[-2:] == (".luminet", "engine-8101")
    assert config("--state", "/tmp/here").state == Path("/tmp/here")


def test_a_wildcard_is_shown_as_an_address_one_can_type() -> None:
    assert config("--host", "0.0.0.0").url == "http://127.0.0.1:8101"
    assert config("--host", "::").url == "http://[::1]:8101"


def test_the_help_can_be_read() -> None:
    assert "--pool SIZE" in parser().format_help()


def test_a_folder_whose_name_is_no_models_wants_another() -> None:
    with pytest.raises(BadOption, match="choose another with --name"):
        engine_config(parser().parse_args(["--model", "/models/my model"]), {})
    assert engine_config(parser().parse_args(["--model", "/models/my model", "--name", "mine"]), {}).name == "mine"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "m", "--pool", "12x"], "argument --pool: '12x' is no size"),
        (["--model", "m", "--pool", "0"], "argument --pool: an engine without room"),
        (["--model", "m", "--port", "65536"], "argument --port: '65536' is no whole number from 0 to 65,535"),
        (["--model", "m", "--threads", "0"], "argument --threads"),
        (["--model", "m", "--drain-seconds", "nan"], "argument --drain-seconds"),
        (["--model", "m", "--agent-id", "a b"], "argument --agent-id"),
        (["--model", "m", "--name", "a b"], "argument --name"),
        (["--model", "m", "--admin-port", "1", "--admin-socket", "x"], "not allowed with"),
        ([], "the following arguments are required: --model"),
    ],
)
def test_a_malformed_option_is_named_and_ends_with_1(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "m"], "m/config.json: No such file or directory"),
        (["--policy", "missing.toml"], "missing.toml: No such file or directory"),
        (["--identity-secret-file", "missing"], "missing: cannot be read: No such file or directory"),
        (["--host", "203.0.113.1"], "203.0.113.1:8101: cannot be listened on"),
        (["--host", "no such host"], "no such host:8101: is no address of this machine"),
    ],
)
def test_what_is_missing_is_one_line_and_status_1(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--model", str(DEMO), "--state", str(tmp_path), *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"luminet: {said}")


def test_a_port_in_use_is_named_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with bind_tcp("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--model", str(DEMO), "--port", str(port)]) == 1
        assert capsys.readouterr().err == f"luminet: 127.0.0.1:{port}: is in use already\n"


# The state folder


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFolder]:
    folder = StateFolder(tmp_path / "state")
    yield folder
    folder.close()


def test_a_secret_is_made_once_and_is_its_owners_alone(state: StateFolder) -> None:
    secret = state.secret("api-key", "lml_")
    assert secret.startswith("lml_")
    assert len(secret) > 30
    assert state.secret("api-key", "lml_") == secret
    assert stat.S_IMODE((state.folder / "api-key").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700


def test_a_key_of_ones_own_is_used_and_closed_to_others(state: StateFolder) -> None:
    path = state.folder / "api-key"
    path.write_text("a-key-of-my-own-choice\n")
    path.chmod(0o644)
    assert state.secret("api-key", "lml_") == "a-key-of-my-own-choice"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"short", b"with a space in it", b"\xff" * 40, "ключ-который-не-ascii".encode()]
)
def test_a_file_that_holds_no_secret_is_named(state: StateFolder, content: bytes) -> None:
    (state.folder / "api-key").write_bytes(content)
    with pytest.raises(BadState, match="api-key: holds no secret"):
        state.secret("api-key", "lml_")


def test_two_engines_never_have_one_folder(state: StateFolder) -> None:
    with pytest.raises(BadState, match="another engine has this folder: give this one another with --state"):
        StateFolder(state.folder)
    state.close()
    StateFolder(state.folder).close()


def test_a_spoiled_document_is_as_good_as_none(state: StateFolder) -> None:
    state.keep("policy.json", {"revision": 3})
    assert state.document("policy.json") == {"revision": 3}
    for spoiled in (b"", b"[]", b"\xff", b"{"):
        (state.folder / "policy.json").write_bytes(spoiled)
        assert state.document("policy.json") == {}


def test_an_identity_secret_is_read_without_its_line_end_and_must_be_long(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"s" * 32 + b"\n")
    assert read_secret(path, least=32) == b"s" * 32
    path.write_bytes(b"s" * 31 + b"\n")
    with pytest.raises(BadState, match="has 31 bytes, needs at least 32"):
        read_secret(path, least=32)


# Doors


def test_engines_on_any_free_port_have_a_state_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINET_HOME", str(tmp_path))
    found: list[EngineConfig] = []
    arguments = ["--model", str(DEMO), "--port", "0"]

    async def served(doors: Doors, began: float) -> int:
        """Instead of a model: a second engine, while the first one is there."""
        found.append(doors.config)
        return await asyncio.to_thread(main, arguments) if len(found) == 1 else 0

    monkeypatch.setattr("engine_agent.server.command._served", served)
    assert main(arguments) == 0
    assert len({one.port for one in found}) == 2
    for one in found:
        assert one.state == tmp_path / f"engine-{one.port}"
        assert one.admin_socket == one.state / "admin.sock"
        assert one.agent_id.endswith(f"-{one.port}")


def test_the_admin_socket_is_its_owners_alone_and_replaces_one_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    for _ in range(2):  # the second finds what the first left
        with listen_unix(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.fspath(path))


def test_a_socket_somebody_listens_on_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with listen_unix(path) as first:
        with pytest.raises(CannotListen, match=r"admin\.sock: is in use already"), listen_unix(path):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(path))
            first.accept()[0].close()
    assert not path.exists()


def test_a_socket_that_is_anothers_by_now_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with listen_unix(path):
        path.rename(tmp_path / "aside")  # keeps its number from being given to the next one
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(os.fspath(path))
    assert path.is_socket()


def test_a_file_in_the_place_of_the_admin_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(CannotListen, match=r"thesis\.txt: is in use already"), listen_unix(path):
        pass
    assert path.read_text() == "years of work"


def test_a_socket_path_that_is_too_long_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match=r"longer than the 107 bytes a socket may have: give --admin-socket"):
        listen_unix(tmp_path / ("x" * 120)).__enter__()
