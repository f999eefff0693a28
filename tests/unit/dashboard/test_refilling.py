"""Pages as read at an address of their own, and their forms with what was typed: nothing of it is lost in silence."""

from controlplane.dashboard.accounts.refilling import anchored, placed, refilled

WHERE = "/orgs/acme/keys?revoke=7#keys"
PAGE = """<main><a href="?find=a&amp;page=2">Next</a><a href="?">All</a><a href="/orgs?page=2">Up</a>
<a href="#keys">Keys</a>
<form
  method="get"
  role="search"><input name="find"></form>
<form class="stack" method="post"
      novalidate><input name="name"></form>
<form method="post" class="x" action=""><input name="other"></form>
<form method="post"
      action="/orgs/acme"
      ><input name="slug"></form></main>"""


def test_forms_and_links_to_this_page_lead_to_its_address() -> None:
    page = placed(PAGE, WHERE)
    assert page.count('action="/orgs/acme/keys?revoke=7"') == 3
    assert '<form method="get" role="search" action="/orgs/acme/keys?revoke=7">' in page
    assert page.count('action="/orgs/acme"') == 1
    assert 'href="/orgs/acme/keys?find=a&amp;page=2"' in page
    assert 'href="/orgs/acme/keys?">All' in page


def test_what_leads_elsewhere_or_within_the_page_stays() -> None:
    page = placed(PAGE, WHERE)
    assert 'href="/orgs?page=2"' in page
    assert 'href="#keys"' in page
    assert placed(page, "/sign-in") == page


FORM = """<details><form method="post" action="/it"{id}>
<input type="hidden" name="seen" value="new"><input type="hidden" name="x-revision" value="9">
<select name="kind"><option value="a" selected>A</option><option value="b">B</option></select>
<input type="radio" name="way" value="all" checked><input type="radio" name="way" value="some">
<input type="checkbox" name="may" value="read" checked disabled="">
<input type="checkbox" name="may" value="write" checked>
<input name="note" value=""></form></details>"""


def form(own: str = "") -> str:
    return FORM.replace("{id}", own)


def test_values_that_are_not_offered_any_more_are_left_to_be_read() -> None:
    typed = {"kind": ["gone"], "way": ["none"], "may": ["write", "admin"], "note": ["why"]}
    typed |= {"seen": ["old"], "x-revision": ["3"]}
    found = refilled(form(), sent_to="/it", typed=typed)
    assert found is not None
    assert found.unplaced == {"kind": ["gone"], "way": ["none"], "may": ["admin"]}
    assert 'name="note" value="why"' in found.html


def test_values_that_are_offered_are_chosen_and_have_no_other_place() -> None:
    typed = {"kind": ["b"], "way": ["some"], "note": ["why"], "seen": ["old"], "x-revision": ["3"]}
    found = refilled(form(), sent_to="/it", typed=typed)
    assert found is not None
    assert found.unplaced == {}
    assert '<option value="a">A</option><option value="b" selected="">' in found.html
    assert 'value="all"><input type="radio" name="way" value="some" checked="">' in found.html
    assert 'name="may" value="write">' in found.html, "it was not sent: the tick was taken away"


def test_which_state_the_page_had_shown_comes_back_with_the_form() -> None:
    found = refilled(form(), sent_to="/it", typed={"seen": ["old"], "x-revision": ["3"], "note": ["why"]})
    assert found is not None
    assert 'name="seen" value="old"' in found.html
    assert 'name="x-revision" value="3"' in found.html


def test_the_form_is_gone_to_by_its_own_name_where_it_has_one() -> None:
    typed = {"note": ["why"], "seen": ["old"], "x-revision": ["3"]}
    for own, anchor in (("", "kept-form"), (' id="mine"', "mine")):
        for found in (
            refilled(form(own), sent_to="/it", typed=typed),
            anchored(form(own), sent_to="/it", typed=typed),
        ):
            assert found is not None
            assert found.anchor == anchor
            assert found.html.count(f'id="{anchor}"') == 1
    assert anchored(form(), sent_to="/elsewhere", typed=typed) is None
