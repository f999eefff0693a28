"""Accounts, their memberships, one-time links and failed sign-in attempts."""

import uuid
from typing import Literal

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.models.organisations import Organisation


class UserManager(BaseUserManager["User"]):
    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser):
    """An account of the web UI. Operators run the fleet; all others belong to customers."""

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

    # For Django's admin, which is open to operators without further permissions.
    @property
    def is_staff(self) -> bool:
        return self.is_operator

    def has_perm(self, perm: str, obj: object = None) -> bool:
        return self.is_active and self.is_operator

    def has_module_perms(self, app_label: str) -> bool:
        return self.is_active and self.is_operator


class SignInAttempt(models.Model):
    """A failed attempt to sign in, counted to slow down guessing. The e-mail address is stored as a keyed hash."""

    email_hash = models.BinaryField(max_length=32)
    address = models.GenericIPAddressField()
    device = models.CharField(max_length=22, blank=True, db_default="", help_text="A browser that the account knows.")
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["email_hash", "at"], name="attempts_by_email"),
            models.Index(fields=["address", "at"], name="attempts_by_address"),
        ]

    def __str__(self) -> str:
        return f"attempt from {self.address} at {self.at:%Y-%m-%d %H:%M:%S}"


class Member(models.Model):
    """A member of an organisation, from the invitation on. `user` is set when the invitation is accepted."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        EDITOR = "editor"
        ADMIN = "admin"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="members")
    email = models.EmailField(max_length=254)
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=6, choices=Role.choices)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    joined_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "email"], name="one_membership_an_address"),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="member_email_is_lower_case"),
            models.CheckConstraint(condition=Q(role__in=["viewer", "editor", "admin"]), name="member_role_is_known"),
            models.CheckConstraint(
                condition=Q(user=None, joined_at=None) | Q(user__isnull=False, joined_at__isnull=False),
                name="a_member_who_joined_is_a_user",
            ),
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def has_joined(self) -> bool:
        return self.joined_at is not None

    @property
    def state(self) -> Literal["invited", "joined"]:
        return "joined" if self.has_joined else "invited"


class OneTimeLink(models.Model):
    """A link that lets its holder set a password once. Only a keyed hash of its secret is stored."""

    class Purpose(models.TextChoices):
        INVITATION = "invitation"
        RESET = "reset"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    purpose = models.CharField(max_length=10, choices=Purpose.choices)
    member = models.ForeignKey(Member, null=True, blank=True, on_delete=models.CASCADE, related_name="links")
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="links")
    hash = models.BinaryField(max_length=32, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(purpose="invitation", member__isnull=False, user=None)
                | Q(purpose="reset", member=None, user__isnull=False),
                name="a_link_is_for_a_member_or_a_user",
            )
        ]

    def __str__(self) -> str:
        return f"{self.purpose} until {self.expires_at:%Y-%m-%d %H:%M}"
