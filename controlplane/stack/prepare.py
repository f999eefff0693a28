"""One job before anything starts: migrations, static files, demo seed. Run again, it changes nothing."""

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from controlplane.stack.config import StackConfig
from controlplane.stack.files import write_private
from tenants.errors import EmailTaken
from tenants.models import User
from tenants.services.people import operator_create, password_generate

OPERATOR_EMAIL = "operator@luminet.example"


def prepare(config: StackConfig) -> None:
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    write_private(config.demo_file, json.dumps(demo_seed(config.demo_file), indent=2) + "\n")


def demo_seed(earlier: Path) -> dict[str, Any]:
    """What the demo holds. What later issues bring is null until it exists."""
    return {
        "web": settings.ENVIRONMENT.base_url,
        "gateway": None,
        "operator": {"email": OPERATOR_EMAIL, "password": _operator_password(earlier), "token": None},
        "orgs": [],
    }


def _operator_password(earlier: Path) -> str | None:
    """The password that signs the demo operator in; null when its owner has changed it, for then it is theirs alone."""
    password = password_generate()
    try:
        operator_create(email=OPERATOR_EMAIL, password=password)
    except EmailTaken:
        remembered = _remembered_password(earlier)
        operator = User.objects.get(email=OPERATOR_EMAIL)
        return remembered if remembered and operator.check_password(remembered) else None
    return password


def _remembered_password(earlier: Path) -> str | None:
    try:
        password = json.loads(earlier.read_text(encoding="utf-8"))["operator"]["password"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return password if isinstance(password, str) else None
