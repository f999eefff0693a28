"""Support work in Django's admin: find a person, enable or disable an account. Other tasks have their own pages."""

from typing import TYPE_CHECKING, Any, Protocol, cast

from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest

from tenants.actor import Actor
from tenants.models import User
from tenants.services.people import account_close, account_open

# Django's class takes its type argument in the stubs only.
if TYPE_CHECKING:
    _UserModelAdmin = admin.ModelAdmin[User]
else:
    _UserModelAdmin = admin.ModelAdmin

admin.site.unregister(Group)


class KnowsWhoActs(Protocol):
    """The admin site's extension of Django's: it returns the actor of a request."""

    def actor_of(self, request: HttpRequest) -> Actor: ...


@admin.register(User)
class UserAdmin(_UserModelAdmin):
    list_display = ("email", "is_operator", "is_active", "last_login", "created_at")
    list_filter = ("is_operator", "is_active")
    search_fields = ("email",)
    ordering = ("email",)
    fields = ("email", "is_operator", "is_active", "last_login", "created_at")
    readonly_fields = ("email", "is_operator", "last_login", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        actor = cast(KnowsWhoActs, self.admin_site).actor_of(request)
        switch = account_open if obj.is_active else account_close
        switch(actor=actor, user=obj)
