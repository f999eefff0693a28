"""People who sign in, and the trace of their attempts. Fields and constraints only; services write."""

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone


class UserManager(BaseUserManager["User"]):
    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser):
    """Someone who signs in to the web UI. Operators run the fleet; everyone else belongs to a customer."""

    email = models.EmailField(
        max_length=254, unique=True, help_text="Always in lower case, so that each has one account."
    )
    is_operator = models.BooleanField(default=False, help_text="Runs the fleet and sees every organisation.")
    is_active = models.BooleanField(default=True, help_text="Off: can no longer sign in, and open sessions end.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    USERNAME_FIELD = "email"
    objects = UserManager()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="email_is_lower_case")]

    def __str__(self) -> str:
        return self.email

    # What Django's admin asks: it is open to operators, whole.
    @property
    def is_staff(self) -> bool:
        return self.is_operator

    def has_perm(self, perm: str, obj: object = None) -> bool:
        return self.is_active and self.is_operator

    def has_module_perms(self, app_label: str) -> bool:
        return self.is_active and self.is_operator


class SignInAttempt(models.Model):
    """One attempt that has not succeeded. Counted to slow down guessing; the e-mail address is kept as a keyed hash."""

    email_hash = models.BinaryField(max_length=32)
    address = models.GenericIPAddressField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["email_hash", "at"], name="attempts_by_email"),
            models.Index(fields=["address", "at"], name="attempts_by_address"),
        ]

    def __str__(self) -> str:
        return f"attempt from {self.address} at {self.at:%Y-%m-%d %H:%M:%S}"
