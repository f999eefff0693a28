"""The demo is an app that only a demonstration loads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
LOADED = """
import json
import sys

import django

django.setup()
from django.apps import apps
from django.test import RequestFactory
from django.urls import Resolver404, resolve

from controlplane.dashboard.frame.additions import additions_at
from controlplane.urls import urlpatterns


def is_answered(path):
    try:
        return bool(resolve(path))
    except Resolver404:
        return False


print(json.dumps({
    "is_installed": apps.is_installed("controlplane.demo"),
    "models": [model.__name__ for app in apps.get_app_configs() if app.label == "demo" for model in app.get_models()],
    "answered": [path for path in ("/five-minutes", "/five-minutes/now/hit", "/demo-traffic") if is_answered(path)],
    "added": [template for template, _ in additions_at("overview", RequestFactory().get("/"))],
    "modules": sorted(name for name in sys.modules if name.startswith("controlplane.demo")),
}))
"""


def loaded(is_demo: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(CHECKOUT),
        "LUMINET_DEMO": is_demo,
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=environment, capture_output=True, text=True, check=False, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_production_loads_nothing_of_the_demo() -> None:
    assert loaded("no") == {"is_installed": False, "models": [], "answered": [], "added": [], "modules": []}


def test_a_demonstration_has_its_pages_and_no_table() -> None:
    found = loaded("yes")
    assert found["is_installed"]
    assert found["models"] == []
    assert found["answered"] == ["/five-minutes", "/five-minutes/now/hit", "/demo-traffic"]
    assert found["added"] == ["demo/_five_minutes_link.html"]
    assert not [name for name in found["modules"] if name.startswith("controlplane.demo.seed")]
