"""The tag `{% additions "home" %}`, which renders what other apps add there."""

from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from controlplane.dashboard.frame.additions import Place, additions_at

register = template.Library()


@register.simple_tag(takes_context=True)
def additions(context: Any, place: Place) -> SafeString:
    request = context["request"]
    return mark_safe("".join(render_to_string(*addition, request=request) for addition in additions_at(place, request)))
