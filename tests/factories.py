"""The least that works, made on the spot."""

from tenants.models import User

PASSWORD = "correct horse battery"


def make_user(*, email: str = "someone@acme.example", is_operator: bool = False, is_active: bool = True) -> User:
    user = User(email=email, is_operator=is_operator, is_active=is_active)
    user.set_password(PASSWORD)
    user.save()
    return user


def make_operator() -> User:
    return make_user(email="operator@luminet.example", is_operator=True)
