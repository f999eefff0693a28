"""The two sides meet in `engine_agent.contracts.protocol` alone. import-linter checks who imports whom (pyproject)."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

# Without site-packages: what is not in the standard library is not there to be found.
LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import engine_agent.contracts.protocol
print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
"""


def test_the_protocol_loads_nothing_but_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", LOADED, str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["engine_agent"]


def test_the_policy_fields_load_nothing_but_the_standard_library() -> None:
    code = LOADED.replace("contracts.protocol", "contracts.policy_fields")
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code, str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["engine_agent"]


CALCULATOR = (
    "kernels.calculator.asked",
    "kernels.calculator.calculating",
    "kernels.models.presets",
    "kernels.formats",
    "kernels.layout",
)


def test_the_calculator_loads_nothing_but_the_standard_library() -> None:
    """The control plane and every machine with the command have it, with torch or without."""
    code = LOADED.replace("import engine_agent.contracts.protocol", f"import {', '.join(CALCULATOR)}")
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code, str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["kernels"]


def test_the_protocol_loads_neither_the_control_plane_nor_a_heavy_library() -> None:
    heavy = ("django", "controlplane", "tenants", "torch", "numpy", "celery", "pydantic")
    code = f"import sys, engine_agent.contracts.protocol; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
