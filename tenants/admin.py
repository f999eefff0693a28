"""Support work in Django's admin: find a person, switch an account off or on. Everything else has its own page."""

from typing import TYPE_CHECKING

from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest

from tenants.models import User

# Django's class takes its type argument in the stubs only.
if TYPE_CHECKING:
    _UserModelAdmin = admin.ModelAdmin[User]
else:
    _UserModelAdmin = admin.ModelAdmin

admin.site.unregister(Group)


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
