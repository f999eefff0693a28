import json
from pathlib import Path

import pytest

from controlplane.stack.prepare import OPERATOR_EMAIL, demo_seed
from tenants.models import User

pytestmark = pytest.mark.django_db


def seed(file: Path) -> str | None:
    demo = demo_seed(file)
    file.write_text(json.dumps(demo))
    password: str | None = demo["operator"]["password"]
    return password


def test_the_demo_operator_can_sign_in_with_what_the_file_says_however_often_it_is_seeded(tmp_path: Path) -> None:
    password = seed(tmp_path / "demo.json")
    assert password is not None
    assert User.objects.get(email=OPERATOR_EMAIL).check_password(password)
    assert seed(tmp_path / "demo.json") == password
    assert User.objects.count() == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"operator": null}', '{"operator": {"password": 7}}'])
def test_a_spoiled_file_costs_the_password_and_nothing_else(tmp_path: Path, text: str) -> None:
    seed(tmp_path / "demo.json")
    (tmp_path / "demo.json").write_text(text)
    assert seed(tmp_path / "demo.json") is None
    assert User.objects.count() == 1


def test_a_password_its_owner_changed_is_never_written_down(tmp_path: Path) -> None:
    seed(tmp_path / "demo.json")
    operator = User.objects.get()
    operator.set_password("something of my own")
    operator.save()
    assert seed(tmp_path / "demo.json") is None
    assert seed(tmp_path / "demo.json") is None
