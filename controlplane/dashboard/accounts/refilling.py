"""A page's form with what somebody had typed into it: found by where it is sent, filled in, and a note above. Pure.

Whatever a view renders is read as HTML, so that no form needs code of its own for it. Only what a person can see and
change is filled in, and which revision they had seen; a form of something else than what was sent is never touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

Typed = Mapping[str, Sequence[str]]
Attributes = dict[str, str | None]
TOKENS: Final = frozenset({"csrfmiddlewaretoken", "form_by", "kept"})
PRESSED: Final = frozenset({"submit", "button", "image", "reset"})
UNTOUCHED: Final = PRESSED | {"password", "file"}
TICKED: Final = frozenset({"checkbox", "radio"})
ANCHOR: Final = "kept-form"


def is_of_page(name: str) -> bool:
    """What a page has hidden in a form to say which state of things it showed."""
    return name.rpartition("-")[2] in ("revision", "once", "seen")


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    attributes: Attributes
    start: int
    end: int

    def get(self, name: str) -> str:
        return self.attributes.get(name) or ""

    def rewritten(self, **changed: str | None) -> str:
        """None takes an attribute away."""
        kept = {**self.attributes, **changed}
        told = [f' {name}="{escape(value)}"' for name, value in kept.items() if value is not None]
        bare = [f" {name}" for name, value in self.attributes.items() if value is None and name not in changed]
        return f"<{self.name}{''.join(told)}{''.join(bare)}>"


@dataclass(slots=True)
class Form:
    tag: Tag
    around: list[Tag]  # what has to be open for it to be seen
    controls: list[Tag] = field(default_factory=list)
    options: dict[int, list[Tag]] = field(default_factory=dict)  # by where their select starts
    texts: dict[int, int] = field(default_factory=dict)  # where a textarea's text ends, by where its tag starts

    @property
    def anchor(self) -> str:
        return self.tag.get("id") or ANCHOR


@dataclass(frozen=True, slots=True)
class Refilled:
    html: str
    anchor: str  # of the form
    unplaced: dict[str, list[str]]  # what the page has no place for any more


def placed(html: str, where: str) -> str:
    """As if read at that address, whichever it is answered at: what means "this page" leads there."""
    parts = urlsplit(where)
    reader = _Reader(html)
    address = f"{parts.path}?{parts.query}".removesuffix("?")
    forms = [one.tag for one in reader.forms if not one.tag.get("action")]
    edits = [(one.start, one.end, one.rewritten(action=address)) for one in forms]
    edits += [(one.start, one.end, one.rewritten(href=f"{parts.path}{one.get('href')}")) for one in reader.links]
    return _edited(html, edits)


def refilled(html: str, *, sent_to: str, typed: Typed) -> Refilled | None:
    """Of a page that is `placed`. None where it has no such form."""
    form = _chosen(_sent_to(html, sent_to, typed), typed)
    if form is None:
        return None
    left = {name: list(values) for name, values in typed.items() if name not in TOKENS}
    edits = [*_found(form, sent_to), *_filled(html, form, left)]
    unplaced = {name: values for name, values in left.items() if any(values)}
    return Refilled(_edited(html, edits), form.anchor, unplaced)


def anchored(html: str, *, sent_to: str, typed: Typed) -> Refilled | None:
    """The same of a page whose view has filled it in: the form is only to be found."""
    form = _chosen(_sent_to(html, sent_to), typed)
    return None if form is None else Refilled(_edited(html, _found(form, sent_to)), form.anchor, {})


def noted(html: str, note: str) -> str:
    """With a note, which is HTML, on top of what the page says."""
    start = html.find("<main")
    if start < 0:
        return note + html
    end = html.index(">", start) + 1
    return f"{html[:end]}{note}{html[end:]}"


class _Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.links: list[Tag] = []  # to the same page, otherwise
        self._open: Form | None = None
        self._select: Tag | None = None
        self._text: Tag | None = None
        self._details: list[Tag] = []
        self._lines = [0, *(place + 1 for place, letter in enumerate(html) if letter == "\n")]
        self.feed(html)

    @property
    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("a", "form", "input", "select", "option", "textarea", "button", "details"):
            return
        found = Tag(tag, dict(attrs), self._at, self._at + len(self.get_starttag_text() or ""))
        match tag:
            case "details":
                self._details.append(found)
            case "a":
                if found.get("href").startswith("?"):
                    self.links.append(found)
            case "form":
                self._open = Form(found, list(self._details))
                self.forms.append(self._open)
            case _ if self._open is not None:
                self._control(self._open, found)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details" and self._details:
            self._details.pop()
        elif tag == "form":
            self._open = None
        elif tag == "select":
            self._select = None
        elif tag == "textarea" and self._text is not None and self._open is not None:
            self._open.texts[self._text.start] = self._at
            self._text = None

    def _control(self, form: Form, found: Tag) -> None:
        if found.name == "option":
            if self._select is not None:
                form.options.setdefault(self._select.start, []).append(found)
            return
        form.controls.append(found)
        if found.name == "select":
            self._select = found
        elif found.name == "textarea":
            self._text = found


def _sent_to(html: str, sent_to: str, hidden: Typed | None = None) -> list[Form]:
    """Those of that address; and where it matters what they hide, those that hide what was sent."""
    path = urlsplit(sent_to).path
    posts = [one for one in _Reader(html).forms if one.tag.get("method").lower() == "post"]
    found = [one for one in posts if urlsplit(one.tag.get("action")).path == path]
    return found if hidden is None else [one for one in found if _hides(one, hidden)]


def _chosen(forms: Sequence[Form], typed: Typed) -> Form | None:
    """The one that was sent: it has most of the names."""
    return max(forms, key=lambda one: len(_names(one) & typed.keys()), default=None)


def _found(form: Form, sent_to: str) -> list[tuple[int, int, str]]:
    """It can be gone to, and what hides it is open."""
    tag = form.tag
    opened = [(one.start, one.end, one.rewritten(open="")) for one in form.around]
    return [(tag.start, tag.end, tag.rewritten(id=form.anchor, action=sent_to)), *opened]


def _hides(form: Form, typed: Typed) -> bool:
    """What the page itself says in it is what was sent: never another key's, another member's."""
    hidden = [one for one in form.controls if one.get("type").lower() == "hidden"]
    said = [(one.get("name"), one.get("value")) for one in hidden]
    return all(value in typed.get(name, ()) for name, value in said if name not in TOKENS and not is_of_page(name))


def _names(form: Form) -> set[str]:
    return {one.get("name") for one in form.controls} - TOKENS


def _filled(html: str, form: Form, left: dict[str, list[str]]) -> Iterator[tuple[int, int, str]]:
    """`left`: what has found no place yet."""
    ticked = {name: list(values) for name, values in left.items()}
    for one in form.controls:
        name, kind = one.get("name"), one.get("type").lower()
        if not name or name in TOKENS or "disabled" in one.attributes:
            continue
        if one.name == "button" or kind in UNTOUCHED:
            left.pop(name, None)
        elif kind in TICKED:
            yield from _tick(one, kind, ticked.get(name))
            _take(left, name, [_value(one)])
        elif one.name == "select":
            options = form.options.get(one.start, [])
            yield from _select(options, ticked.get(name))
            _take(left, name, [option.get("value") for option in options])
        elif left.get(name):
            value = left[name].pop(0)
            if kind != "hidden" or is_of_page(name):
                yield from _typed_in(one, value, form)


def _take(left: dict[str, list[str]], name: str, offered: Sequence[str]) -> None:
    """What is offered has a place. What is not any more is left, to be read."""
    left[name] = [value for value in left.get(name, ()) if value not in offered]


def _typed_in(one: Tag, value: str, form: Form) -> Iterator[tuple[int, int, str]]:
    if one.name == "textarea":
        # A browser drops one line break at the beginning of a textarea.
        yield one.end, form.texts.get(one.start, one.end), f"\n{escape(value)}"
    else:
        yield one.start, one.end, one.rewritten(value=value)


def _tick(one: Tag, kind: str, values: Sequence[str] | None) -> Iterator[tuple[int, int, str]]:
    """A tick that was not sent was taken away; a choice that was not sent was not there."""
    if values is None and kind == "radio":
        return
    is_ticked = _value(one) in (values or ())
    yield one.start, one.end, _switched(one, "checked", is_on=is_ticked)


def _value(one: Tag) -> str:
    """Of a tick."""
    return one.get("value") or "on"


def _select(options: Sequence[Tag], values: Sequence[str] | None) -> Iterator[tuple[int, int, str]]:
    if values is None or not any(one.get("value") in values for one in options):
        return
    for one in options:
        yield one.start, one.end, _switched(one, "selected", is_on=one.get("value") in values)


def _switched(one: Tag, name: str, *, is_on: bool) -> str:
    return one.rewritten(**{name: "" if is_on else None})


def _edited(html: str, edits: Sequence[tuple[int, int, str]]) -> str:
    for start, end, said in sorted(edits, reverse=True):
        html = f"{html[:start]}{said}{html[end:]}"
    return html
