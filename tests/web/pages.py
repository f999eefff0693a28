"""Pages as people read them: their words in order, without tags; and people who may see them."""

import html
import re

from django.http import HttpResponse
from django.utils import timezone

from tenants.models import Member, Organisation, User


def words(response: HttpResponse) -> str:
    """What stands in the page itself, without its frame."""
    page = response.content.decode()
    main = page[page.index("<main") : page.index("</main>")]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", main).split()))


def join(organisation: Organisation, role: str = "admin", email: str = "someone@acme.example") -> Member:
    """Whoever `customer_client` is, unless told otherwise."""
    user = User.objects.get(email=email)
    return Member.objects.create(organisation=organisation, email=email, role=role, user=user, joined_at=timezone.now())
