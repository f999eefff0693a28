import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.stack.lock import OF_TORCHS_BUILD
from tests.support.make import planned

CHECKOUT = Path(__file__).parents[2]
TEMPLATES = sorted((CHECKOUT / "templates").rglob("*.html"))
assert TEMPLATES
VENDOR = CHECKOUT / "controlplane" / "dashboard" / "static" / "vendor"
HEAVY = ("torch", "triton", "safetensors", "tokenizers", "transformers", "vllm", "numpy")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_web_loads_none_of_the_engines_libraries() -> None:
    code = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings'; import controlplane.asgi, sys; "
    assert run(f"{code} print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_the_command_opens_without_loading_django_or_anything_else_installed() -> None:
    code = """
import contextlib, io, sys
from controlplane.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert [main(words) for words in (["--version"], ["--help"], ["create", "--help"])] == [0, 0, 0]
"""
    names = ("django", "celery", "redis", "psycopg", "uvicorn", "psutil", "rich", "yaml", "http.client", *HEAVY)
    assert run(f"{code}print([name for name in {names} if name in sys.modules])") == "[]"


def test_commands_of_the_data_plane_need_not_even_the_commands_parser() -> None:
    code = """
import sys
sys.modules["click"] = None
from controlplane.cli import main
with __import__("contextlib").suppress(SystemExit):
    main(["lint-prompt", "--help"])
"""
    assert run(code).startswith("usage: luminet lint-prompt")


def test_the_engine_answers_where_there_is_nothing_that_only_developers_have() -> None:
    """`make up` installs the extras `control` and `engine`, and on a CPU torch brings no Triton."""
    code = """
import asyncio, importlib, pkgutil, sys
from pathlib import Path
sys.modules.update(dict.fromkeys(("triton", "transformers", "matplotlib", "hypothesis", "pytest")))
import kernels
for one in pkgutil.walk_packages(kernels.__path__, "kernels."):
    importlib.import_module(one.name)
from engine_agent.backends.paged.backend import PagedBackend
async def first_token() -> None:
    await (await PagedBackend.open(Path("engine_agent/demo/model"))).close()
asyncio.run(first_token())
"""
    run(code)


def test_on_a_machine_with_the_other_half_the_command_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['redis'] = None; sys.modules['psycopg'] = None; "
        "from controlplane.cli import main; sys.exit(main(['health', 'broker']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs the extra `control`" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_page_has_a_script_or_a_style_of_its_own(subtests: pytest.Subtests) -> None:
    """Our Content-Security-Policy would refuse both, silently, in the reader's browser."""
    for template in TEMPLATES:
        with subtests.test(msg=str(template.relative_to(CHECKOUT))):
            text = template.read_text()
            assert not re.search(r"<style|\sstyle\s*=|\son[a-z]+\s*=|javascript:", text)
            assert not re.search(r"<script(?![^>]*\bsrc=)", text)


def test_everything_vendored_has_its_licence_beside_it() -> None:
    for file in VENDOR.iterdir():
        if file.suffix != ".LICENSE":
            assert (VENDOR / f"{file.name.split('-')[0]}.LICENSE").exists(), file.name


def has_docstring(source: str) -> bool:
    """Whether a module has one. Most begin with it, and need not be parsed to see that."""
    return bool(re.match(r'"""\s*\w', source) or ast.get_docstring(ast.parse(source)))


def test_every_module_says_what_lives_in_it() -> None:
    modules = [
        path
        for part in ("controlplane", "engine_agent", "kernels", "tenants")
        for path in (CHECKOUT / part).rglob("*.py")
    ]
    assert modules
    assert [path for path in modules if "migrations" not in path.parts and not has_docstring(path.read_text())] == []


def test_raw_colours_stand_in_one_file_only() -> None:
    styles = CHECKOUT / "controlplane" / "dashboard" / "static" / "luminet"
    for file in styles.glob("*.css"):
        found = re.findall(r"#[0-9a-f]{3,8}\b|rgb\(|hsl\(", file.read_text().replace("#parts", ""))
        found = [one for one in found if not re.search(rf"{re.escape(one)}[a-z-]*\s*[,{{]", file.read_text())]
        assert bool(found) is (file.name == "tokens.css"), (file.name, found)


def test_the_pins_name_no_host_and_cover_every_dependency() -> None:
    import tomllib

    pins = (CHECKOUT / "constraints.txt").read_text()
    assert not re.search(r"https?://|file:|--|@", pins)
    pinned = {line.split("==")[0] for line in pins.splitlines()}
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {re.split(r"[\[><=;]", one)[0].lower() for extra in extras.values() for one in extra} - {project["name"]}
    # A pin of what torch pins would fit one build of torch only: controlplane/stack/lock.py leaves those out.
    assert {one for one in wanted - pinned if not one.startswith(OF_TORCHS_BUILD)} == set()


def test_ci_calls_every_check() -> None:
    assert "exec make ci" in (CHECKOUT / ".ci" / "run").read_text().splitlines()
    ran, check = planned("ci"), planned("check")
    assert ran[:-4] == check
    assert ran[-4].endswith("-m tests.kernels.ci")
    assert ran[-3].endswith("-m tests.audit.ci")
    assert ran[-2].endswith("-m tests.clients.ci")
    assert ran[-1].endswith("-m tests.vllm.ci")
    for step in (
        "ruff format --check",
        "ruff check",
        "mypy",
        "importlinter",
        "makemigrations --check",
        "djlint",
        "pytest",
    ):
        assert step in "\n".join(check)
    assert planned("test")[-1] in check


DEPLOYED = """
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--deploy", "--fail-level", "INFO"])
execute_from_command_line(["manage.py", "diffsettings", "--default", "django.conf.global_settings"])
"""


@pytest.fixture(scope="module")
def deployed() -> str:
    """Return what two commands of `manage.py` print, one after the other, with the settings of an https deployment."""
    from tests.settings import _DEFAULTS

    environ = {**_DEFAULTS, "LUMINET_BASE_URL": "https://luminet.example", "PATH": "/usr/bin:/bin"}
    environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.django"
    command = [sys.executable, "-c", DEPLOYED]
    done = subprocess.run(command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_deployment_check_of_django_finds_nothing(deployed: str) -> None:
    """But for the two checks that want HSTS for more than this host."""
    assert "no issues (2 silenced)" in deployed


def test_hsts_speaks_for_this_host_alone(deployed: str) -> None:
    settings = [line for line in deployed.splitlines() if line.startswith("SECURE_HSTS_")]
    assert settings == ["SECURE_HSTS_SECONDS = 31536000"]
