"""Members, and the links that work once. The pages those links open are tests/integration/test_links.py."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tenants.actor import SYSTEM, Actor
from tenants.errors import (
    Conflict,
    InvalidEmail,
    InvalidFields,
    LimitReached,
    LinkSpent,
    NotFound,
    NotPermitted,
    SignInRefused,
    TooManySignIns,
    WeakPassword,
)
from tenants.limits import Limits
from tenants.models import AuditRecord, Member, OneTimeLink, Organisation, SignInAttempt, User
from tenants.services.members import (
    INVITATION_LASTS,
    RESET_LASTS,
    NewLink,
    invitation_accept,
    link_open,
    member_invite,
    member_link,
    member_remove,
    member_update,
    reset_accept,
    reset_link,
)
from tenants.services.organisations import limits_put, organisation_delete
from tenants.services.people import password_change
from tenants.sign_in_limits import EMAIL_AND_ADDRESS_LIMIT
from tests.database.factories import PASSWORD, actor_of, make_user
from tests.support.threads import at_once, failures, while_uncommitted
from tests.web.api import Api, make_key, make_organisation, said

pytestmark = pytest.mark.django_db
at_once_on_the_database = pytest.mark.django_db(transaction=True)
EMAIL = "kim@acme.example"
NEW = "a fine new password"


def invite(
    organisation: Organisation, email: str = EMAIL, role: str = "editor", *, actor: Actor = SYSTEM
) -> tuple[Member, NewLink]:
    return member_invite(actor=actor, organisation=organisation, email=email, role=role)


def accept(link: NewLink, password: str = NEW, *, is_new_password: bool = True, now: datetime | None = None) -> User:
    return invitation_accept(
        secret=link.secret,
        password=password,
        is_new_password=is_new_password,
        address="192.0.2.1",
        request_id="r-1",
        now=now or timezone.now(),
    )


def reset(link: NewLink, password: str = NEW, *, now: datetime | None = None) -> User:
    return reset_accept(
        secret=link.secret, password=password, address="192.0.2.1", request_id="r-1", now=now or timezone.now()
    )


def join(organisation: Organisation, email: str = EMAIL, role: str = "editor") -> Member:
    member, link = invite(organisation, email, role)
    accept(link)
    return Member.objects.get(pk=member.pk)


def own_admin(organisation: Organisation) -> Actor:
    return actor_of(make_key(organisation, "admin"))


# Invited and joined


def test_an_invited_person_has_no_account_until_they_accept() -> None:
    member, link = invite(make_organisation())
    assert (member.has_joined, User.objects.count()) == (False, 0)
    user = accept(link)
    member.refresh_from_db()
    assert (member.user, member.has_joined, user.email, user.check_password(NEW)) == (user, True, EMAIL, True)
    assert (user.is_operator, user.is_active) == (False, True)
    record = AuditRecord.objects.latest("seq")
    assert (record.verb, record.actor_name) == ("member.join", EMAIL)
    assert (record.address, record.request_id) == ("192.0.2.1", "r-1")


def test_the_invitation_is_in_the_answer_once_and_nowhere_else(acme: Api) -> None:
    answer = said(acme.post("/orgs/acme/members", {"email": EMAIL, "role": "viewer"}))
    secret = answer["invitation_url"].rpartition("/")[2]
    assert answer["invitation_url"] == f"http://localhost:8000/invitation/{secret}"
    assert secret not in acme.get("/orgs/acme/members").content.decode()
    assert secret.encode() not in bytes(OneTimeLink.objects.get().hash)


def test_an_address_is_kept_in_lower_case_and_is_a_member_once() -> None:
    made = make_organisation()
    assert invite(made, " Kim@ACME.example ")[0].email == EMAIL
    with pytest.raises(Conflict, match="is a member of this organisation already"):
        invite(made, "KIM@acme.example")
    assert OneTimeLink.objects.count() == 1


LONG = "kim@" + ".".join(["x" * 60] * 4) + ".example"
NO_ADDRESSES = ["", "kim", "kim@", "@acme.example", "kim@acme", "a b@acme.example", "kim@acme.example\n.x", LONG]


@pytest.mark.parametrize("email", NO_ADDRESSES)
def test_what_is_no_address_is_refused(email: str) -> None:
    with pytest.raises(InvalidEmail):
        invite(make_organisation(), email)


def test_the_longest_address_in_the_longest_slug_fits_into_every_column() -> None:
    made = make_organisation("x" * 63)
    email = "k" * 60 + "@" + ".".join(["x" * 60] * 3) + ".example"
    assert len(email) == 251
    join(made, email)
    assert AuditRecord.objects.filter(target__contains=email).count() == 2


def test_a_role_is_one_of_three() -> None:
    member, _ = invite(make_organisation())
    with pytest.raises(InvalidFields, match="role: 'owner' is none of viewer, editor, admin"):
        member_update(actor=SYSTEM, member=member, role="owner")
    with pytest.raises(InvalidFields):
        invite(member.organisation, "l@acme.example", role="operator")


def test_a_weak_password_is_refused_and_the_link_stays_open() -> None:
    _, link = invite(make_organisation())
    for weak in ("short", "password1234", "x" * 257):
        with pytest.raises(WeakPassword):
            accept(link, weak)
    assert not User.objects.exists()
    accept(link)


# Who has an account already


def test_an_existing_account_joins_with_its_own_password() -> None:
    user = make_user(email=EMAIL)
    _, link = invite(make_organisation())
    assert accept(link, PASSWORD) == user
    assert User.objects.get().check_password(PASSWORD)


def test_an_invitation_to_an_existing_account_sets_no_password() -> None:
    make_user(email=EMAIL)
    _, link = invite(make_organisation())
    with pytest.raises(SignInRefused):
        accept(link, NEW)
    assert User.objects.get().check_password(PASSWORD)
    assert not Member.objects.get().has_joined


def test_wrong_guesses_at_an_invitation_are_counted_and_held_back() -> None:
    make_user(email=EMAIL)
    _, link = invite(make_organisation())
    for _ in range(EMAIL_AND_ADDRESS_LIMIT):
        with pytest.raises(SignInRefused):
            accept(link, "wrong", is_new_password=False)
    assert SignInAttempt.objects.count() == EMAIL_AND_ADDRESS_LIMIT
    with pytest.raises(TooManySignIns):
        accept(link, PASSWORD)


def test_a_closed_account_joins_nothing() -> None:
    make_user(email=EMAIL, is_active=False)
    _, link = invite(make_organisation())
    with pytest.raises(SignInRefused):
        accept(link, PASSWORD)


def test_one_person_may_belong_to_several_organisations() -> None:
    first = join(make_organisation("acme"))
    _, link = invite(make_organisation("globex"))
    assert accept(link, NEW) == first.user
    assert set(Member.objects.values_list("organisation__slug", "user__email")) == {("acme", EMAIL), ("globex", EMAIL)}


# Links end


def test_a_used_link_is_spent() -> None:
    _, link = invite(make_organisation())
    accept(link)
    with pytest.raises(LinkSpent):
        accept(link)


def test_an_expired_link_is_spent() -> None:
    _, link = invite(make_organisation())
    late = timezone.now() + INVITATION_LASTS + timedelta(seconds=1)
    with pytest.raises(LinkSpent):
        accept(link, now=late)
    accept(link, now=late - timedelta(seconds=5))


def test_a_replaced_link_is_spent_and_the_new_one_works() -> None:
    member, old = invite(make_organisation())
    new = member_link(actor=SYSTEM, member=member)
    with pytest.raises(LinkSpent):
        accept(old)
    accept(new)


@pytest.mark.parametrize("secret", ["", "x", "é", "x" * 43, "\x00", "../x", "x" * 100_000])
def test_what_is_no_link_is_told_like_a_spent_one(secret: str) -> None:
    for purpose in OneTimeLink.Purpose:
        with pytest.raises(LinkSpent):
            link_open(purpose, secret, now=timezone.now())


def test_a_link_works_for_its_own_purpose_alone() -> None:
    _, invitation = invite(make_organisation())
    resetting = reset_link(actor=SYSTEM, user=make_user())
    with pytest.raises(LinkSpent):
        reset(invitation)
    with pytest.raises(LinkSpent):
        accept(resetting)


def test_links_of_removed_members_and_deleted_organisations_are_spent() -> None:
    made = make_organisation()
    member, removed = invite(made, "a@acme.example")
    _, deleted = invite(made, "b@acme.example")
    member_remove(actor=SYSTEM, member=member)
    organisation_delete(actor=SYSTEM, organisation=made, expected=None)
    for link in (removed, deleted):
        with pytest.raises(LinkSpent):
            accept(link)
    assert not User.objects.exists()


def test_a_link_is_not_in_its_repr() -> None:
    _, link = invite(make_organisation())
    assert link.secret not in repr(link)
    assert link.path == f"/invitation/{link.secret}"


# Forgotten passwords


def test_a_reset_sets_the_password_and_ends_every_session() -> None:
    user, browser = make_user(), Client()
    browser.force_login(user)
    link = reset_link(actor=SYSTEM, user=user)
    assert browser.get("/").status_code == 200
    reset(link)
    assert browser.get("/").status_code == 302
    user.refresh_from_db()
    assert user.check_password(NEW)
    with pytest.raises(LinkSpent):
        reset(link, "another fine password")


def test_a_reset_expires_after_a_day_and_not_before() -> None:
    link = reset_link(actor=SYSTEM, user=make_user())
    assert timedelta(0) <= timezone.now() + RESET_LASTS - link.expires_at < timedelta(seconds=5)
    with pytest.raises(LinkSpent):
        reset(link, now=link.expires_at)
    reset(link, now=link.expires_at - timedelta(seconds=1))


def test_a_refused_password_leaves_the_reset_open_and_the_old_password_in_force() -> None:
    user = make_user()
    link = reset_link(actor=SYSTEM, user=user)
    with pytest.raises(WeakPassword):
        reset(link, "short")
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    reset(link)


def test_a_password_changed_meanwhile_ends_the_links_to_reset_it() -> None:
    user = make_user()
    link = reset_link(actor=SYSTEM, user=user)
    password_change(user=user, current=PASSWORD, new=NEW)
    with pytest.raises(LinkSpent):
        reset(link, "another fine password")


def test_a_closed_account_is_not_opened_by_a_reset() -> None:
    user = make_user()
    link = reset_link(actor=SYSTEM, user=user)
    User.objects.update(is_active=False)
    with pytest.raises(LinkSpent):
        reset(link)


def test_operators_alone_may_reset_a_members_password(operator: Api, acme: Api) -> None:
    member = join(Organisation.objects.get(slug="acme"))
    refused = acme.post(f"/orgs/acme/members/{member.pk}/link")
    assert (refused.status_code, "Only operators" in said(refused)["detail"]) == (403, True)
    assert said(operator.post(f"/orgs/acme/members/{member.pk}/link"))["kind"] == "reset"
    with pytest.raises(NotPermitted):
        member_link(actor=own_admin(member.organisation), member=member)


def test_an_organisations_admin_may_renew_an_invitation(acme: Api) -> None:
    member, _ = invite(Organisation.objects.get(slug="acme"))
    assert said(acme.post(f"/orgs/acme/members/{member.pk}/link"))["kind"] == "invitation"


def test_who_joined_meanwhile_gets_no_second_invitation() -> None:
    member, link = invite(make_organisation())
    accept(link)
    with pytest.raises(NotPermitted):  # `member` is as it was looked up before
        member_link(actor=own_admin(member.organisation), member=member)


# Roles


def test_the_last_admin_stays_unless_an_operator_says_otherwise() -> None:
    made = make_organisation()
    admin = join(made, role="admin")
    invite(made, "invited@acme.example", role="admin")  # who has not joined can manage nothing
    for refused in (lambda: member_update(actor=own_admin(made), member=admin, role="viewer"),
                    lambda: member_remove(actor=own_admin(made), member=admin)):  # fmt: skip
        with pytest.raises(Conflict, match="the organisation's last admin"):
            refused()
    assert member_update(actor=SYSTEM, member=admin, role="viewer").role == "viewer"


def test_one_of_two_admins_may_go() -> None:
    made = make_organisation()
    first, second = join(made, "a@acme.example", "admin"), join(made, "b@acme.example", "admin")
    member_remove(actor=own_admin(made), member=first)
    with pytest.raises(Conflict):
        member_remove(actor=own_admin(made), member=second)


def test_a_role_that_stays_is_no_change() -> None:
    member, _ = invite(make_organisation(), role="viewer")
    before = AuditRecord.objects.count()
    member_update(actor=SYSTEM, member=member, role="viewer")
    assert AuditRecord.objects.count() == before


def test_a_removed_member_keeps_their_account_and_loses_the_organisation() -> None:
    member = join(make_organisation())
    member_remove(actor=SYSTEM, member=member)
    assert (Member.objects.count(), User.objects.count()) == (0, 1)
    with pytest.raises(NotFound, match="member"):
        member_remove(actor=SYSTEM, member=member)


def test_an_organisation_has_as_many_members_as_its_limit() -> None:
    made = make_organisation()
    limits_put(actor=SYSTEM, organisation=made, limits=Limits(max_members=1), expected=None)
    invite(made, "a@acme.example")
    with pytest.raises(LimitReached, match="max_members: the limit is 1"):
        invite(made, "b@acme.example")


# At the same moment


@at_once_on_the_database
def test_of_two_who_open_one_invitation_at_once_one_joins() -> None:
    _, link = invite(make_organisation())
    outcomes = at_once(*[lambda n=n: accept(link, f"a fine new password {n}") for n in range(4)])
    assert len(failures(outcomes)) == 3
    assert set(failures(outcomes)) <= {"LinkSpent", "SignInRefused", "EmailTaken"}
    assert (User.objects.count(), Member.objects.get().has_joined) == (1, True)


@at_once_on_the_database
def test_of_two_who_open_one_reset_at_once_one_sets_the_password() -> None:
    link = reset_link(actor=SYSTEM, user=make_user())
    outcomes = at_once(*[lambda n=n: reset(link, f"a fine new password {n}") for n in range(4)])
    assert failures(outcomes) == ["LinkSpent"] * 3
    winner = next(n for n, one in enumerate(outcomes) if isinstance(one, User))
    assert User.objects.get().check_password(f"a fine new password {winner}")


@at_once_on_the_database
def test_of_two_links_made_at_once_one_stays_open() -> None:
    user, (member, _) = make_user(), invite(make_organisation())
    at_once(*[lambda: reset_link(actor=SYSTEM, user=user)] * 3, *[lambda: member_link(actor=SYSTEM, member=member)] * 3)
    open_ones = OneTimeLink.objects.filter(used_at=None).values_list("purpose", flat=True)
    assert sorted(open_ones) == ["invitation", "reset"]


@at_once_on_the_database
def test_an_invitation_accepted_while_it_is_replaced_is_used_once() -> None:
    member, link = invite(make_organisation())
    outcomes = while_uncommitted(lambda: member_link(actor=SYSTEM, member=member), lambda: accept(link))
    assert failures(outcomes) == ["LinkSpent"]
    accept(outcomes[0])


@at_once_on_the_database
@pytest.mark.parametrize("other", ["renewed", "accepted"])
def test_a_member_removed_meanwhile_is_gone(other: str) -> None:
    member, link = invite(make_organisation())
    deeds = {"renewed": lambda: member_link(actor=SYSTEM, member=member), "accepted": lambda: accept(link)}
    outcomes = while_uncommitted(lambda: member_remove(actor=SYSTEM, member=member), deeds[other])
    assert failures(outcomes) == [{"renewed": "NotFound", "accepted": "LinkSpent"}[other]]
    assert (Member.objects.count(), User.objects.count()) == (0, 0)


@at_once_on_the_database
def test_two_admins_who_remove_each_other_at_once_leave_one() -> None:
    made = make_organisation()
    both = [join(made, f"{name}@acme.example", "admin") for name in "ab"]
    actor = own_admin(made)
    outcomes = at_once(*[lambda one=one: member_remove(actor=actor, member=one) for one in both])
    assert failures(outcomes) == ["Conflict"]
    assert Member.objects.count() == 1


@at_once_on_the_database
def test_the_limit_holds_for_invitations_made_at_once() -> None:
    made = make_organisation()
    limits_put(actor=SYSTEM, organisation=made, limits=Limits(max_members=2), expected=None)
    outcomes = at_once(*[lambda n=n: invite(made, f"m{n}@acme.example") for n in range(5)])
    assert failures(outcomes) == ["LimitReached"] * 3
