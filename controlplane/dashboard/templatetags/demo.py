"""The note that stands on the homes of a demonstration, as one tag: no view needs to know of it."""

from typing import Any

from django import template

from controlplane.demo.note import demo_note as note_of

register = template.Library()


@register.inclusion_tag("demo/_demo_traffic.html", takes_context=True)
def demo_note(context: Any) -> dict[str, Any]:
    user = context["request"].user
    is_operator = bool(user.is_authenticated and user.is_operator)
    note = note_of(is_operator=is_operator)
    return {"demo": note, "is_operator": is_operator, "csrf_token": context.get("csrf_token")}
