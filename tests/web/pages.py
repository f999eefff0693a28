"""Pages as people read them: their words in order, without tags; and people who may see them."""

import html
import re
from typing import Any

from django.utils import timezone

from tenants.models import Member, Organisation, User


def words(response: Any) -> str:
    """The words of the page itself, without its frame; all of a fragment."""
    page = response.content.decode()
    main = page[page.index("<main") : page.index("</main>")] if "<main" in page else page
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


def join(organisation: Organisation, role: str = "admin", email: str = "someone@acme.example") -> Member:
    """Whoever `customer_client` is, unless told otherwise."""
    user = User.objects.get(email=email)
    return Member.objects.create(organisation=organisation, email=email, role=role, user=user, joined_at=timezone.now())
