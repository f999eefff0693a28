"""Hostile chat templates end within their bounds, as an error with a name, while the event loop turns."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from engine_agent.prompts.bounds import Bounds
from engine_agent.prompts.errors import BadRequest, TemplateExhausted, TemplateUnavailable
from engine_agent.prompts.inspecting import template_contents
from engine_agent.prompts.renderer import PROCESSES, BoundedTemplate, Renderer
from engine_agent.prompts.templates import Chat, TemplateSource
from tests.engines.rendering import template_made
from tests.unit.engine.test_chat import CHATS, TEMPLATES

MEMORY = 160 << 20
SLACK = 32 << 20  # of this process: what a failed rendering may leave here
BOUNDS = Bounds(cpu_seconds=0.1, memory_bytes=MEMORY)
CHAT = Chat([{"role": "user", "content": "hello"}])
LOOP = "{% for a in range(99999) %}"
END = "{% endfor %}"
HOSTILE = {
    "format width": "{{ '%999999999d' % 1 }}",
    "format filter": "{{ '%999999999s' | format('x') }}",
    "format method": "{{ '{:>999999999}'.format('x') }}",
    "ljust": "{{ messages[0].content.ljust(999999999) }}",
    "center filter": "{{ messages[0].content | center(999999999) }}",
    "zfill": "{{ messages[0].content.zfill(999999999) }}",
    "expandtabs": "{{ '\t'.expandtabs(999999999) }}",
    "replace method": "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "join": "{{ range(99999) | join('x' * 99999) }}",
    "translate": "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
    "indent": "{{ ('\n' * 99999) | indent(99999, blank=true) }}",
    "wordwrap": "{{ ('a ' * 499999) | wordwrap(1, wrapstring='x' * 99999) }}",
    "nested loops": LOOP + LOOP + "a" + END + END,
    "silent loops": LOOP + LOOP + "{% set b = a %}" + END + END,
    "string doubling": "{% set n = namespace(s='x') %}" + LOOP + "{% set n.s = n.s ~ n.s %}" + END,
    "tuple of lists": "{% set n = namespace(s=[1]) %}" + LOOP + "{% set n.s = [n.s, n.s] %}" + END + "{{ n.s }}",
    "string repetition": "{{ 'x' * 999999999 }}",
    "growing power": "{% set n = namespace(s=9 ** 63) %}" + LOOP + "{% set n.s = n.s * n.s %}" + END,
    "sum of lists": "{{ ([[1]] * 99999) | sum(start=[]) }}",
    "macro recursion": "{% macro again() %}{{ again() }}{{ again() }}{% endmacro %}{{ again() }}",
    "macro fan-out": "".join(
        f"{{% macro m{at}() %}}{f'{{{{ m{at - 1}() }}}}' * 8 if at else 'x' * 8}{{% endmacro %}}" for at in range(12)
    )
    + "{{ m11() }}",
    "loop recursion": "{% for a in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "cycler": "{% set c = cycler(*('x' * 1048576)) %}" + LOOP + LOOP + "{{ c.next() }}" + END + END,
    "namespace growth": "{% set n = namespace(s=()) %}" + LOOP + "{% set n.s = n.s + (a, 'x' * 9999) %}" + END,
    "tojson with an indent": "{{ ([[[[1] * 99] * 99] * 99]) | tojson(indent=99) }}",
    "tojson with separators": "{{ ([1] * 99999) | tojson(separators=('x' * 99999, ':')) }}",
    "pprint": "{{ ([[[1] * 99] * 99] * 99) | pprint }}",
    "batch": "{{ range(2) | batch(999999999, 'x') | list }}",
    "sort": "{% for a in range(99999) %}{{ (range(99999) | sort(reverse=true))[0] }}{% endfor %}",
    "title": LOOP + "{{ ('a' * 999999) | title | length }}" + END,
    "caller": "{% macro m() %}" + LOOP + "{{ caller() }}" + END + "{% endmacro %}"
    "{% call m() %}" + LOOP + "x" + END + "{% endcall %}",
    "filter block": "{% filter upper %}" + LOOP + LOOP + "x" + END + END + "{% endfilter %}",
    "constants at compile time": "{% if ('%999999999d' % 1) == 'x' %}{% endif %}",
    "long error": "{{ raise_exception('x' * 1048576) }}",
    "deep parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep lists": "{{ " + "[" * 50_000 + "]" * 50_000 + " }}",
    "deep blocks": "{% if 1 %}" * 5_000 + "{% endif %}" * 5_000,
    "deep loops": "{% for a in [1] %}" * 60 + END * 60,
    "long sum": "{{ 1" + "+1" * 50_000 + " }}",
    "division by zero": "{{ 1 / 0 }}",
    "an attribute of nothing": "{{ nothing.at.all }}",
    "a private attribute": "{{ ''.__class__.__mro__ }}",
}


def processes() -> list[psutil.Process]:
    """That render for this one."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "engine_agent.prompts.child" in child.cmdline():
                found.append(child)
    return found


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer(wait_seconds=600, bounds=BOUNDS)
    yield made
    made.close()
    assert not processes()


class Turning:
    """Counts how often the event loop turns, and watches memory meanwhile."""

    def __init__(self) -> None:
        self.turns = self.most_here = self.most_there = 0
        self._process = psutil.Process()

    async def __aenter__(self) -> "Turning":
        self._task = asyncio.create_task(self._turn())
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self.turns += 1
            self.most_here = max(self.most_here, self._process.memory_info().rss)
            self.most_there = max([self.most_there, *self._rss_of_children()])

    def _rss_of_children(self) -> Iterator[int]:
        for child in processes():
            try:
                yield child.memory_info().rss
            except psutil.NoSuchProcess:
                continue


def bounded(renderer: Renderer, text: str) -> BoundedTemplate:
    return BoundedTemplate(TemplateSource(text, {}), renderer)


async def rendered(renderer: Renderer, text: str, chat: Chat = CHAT) -> str:
    template = bounded(renderer, text)
    return await template.render(template.pack(chat))


async def test_hostile_templates_end_within_bounds(renderer: Renderer) -> None:
    rss = psutil.Process().memory_info().rss
    async with Turning() as turning:
        ends = await asyncio.gather(*(rendered(renderer, text) for text in HOSTILE.values()), return_exceptions=True)
    unnamed = {name: end for name, end in zip(HOSTILE, ends, strict=True) if not isinstance(end, BadRequest)}
    assert not unnamed
    assert turning.turns > len(HOSTILE)  # the event loop went on meanwhile
    assert turning.most_there <= MEMORY
    assert turning.most_here <= rss + SLACK


@pytest.mark.parametrize(
    ("text", "bound"),
    [("{{ 'x'.ljust(2 ** 40) }}", "160 MiB of memory"), (LOOP + LOOP + END + END, "0.1 s of processor")],
)
async def test_exceeded_bound_is_named(text: str, bound: str, renderer: Renderer) -> None:
    with pytest.raises(TemplateExhausted, match=f"the model's chat template takes more than {bound}"):
        await rendered(renderer, text)


async def test_event_loop_turns_while_template_renders(renderer: Renderer) -> None:
    """The template outlives any number of turns: its own process stands still meanwhile."""
    await renderer.warm()
    (child,) = processes()
    child.suspend()
    rendering = asyncio.create_task(rendered(renderer, "well"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not rendering.done()
    child.resume()
    assert await rendering == "well"


async def test_other_template_renders_beside_slow_one(renderer: Renderer) -> None:
    await renderer.warm()
    (child,) = processes()
    child.suspend()
    slow = asyncio.create_task(rendered(renderer, "slow"))
    await asyncio.sleep(0)
    assert [await rendered(renderer, f"{number}") for number in range(5)] == ["0", "1", "2", "3", "4"]
    assert not slow.done()
    child.resume()
    assert await slow == "slow"


async def test_renderer_serves_after_every_excess(renderer: Renderer) -> None:
    for text in ("{{ 'x'.ljust(2 ** 40) }}", LOOP + LOOP + END + END, "{{ 1 / 0 }}"):
        with pytest.raises(BadRequest):
            await rendered(renderer, text)
        assert await rendered(renderer, "{{ messages[0].content }}") == "hello"


async def test_chat_waits_no_longer_than_told() -> None:
    renderer = Renderer(wait_seconds=0.05, bounds=BOUNDS)
    try:
        await renderer.warm()
        (child,) = processes()
        child.suspend()
        slow = [asyncio.create_task(rendered(renderer, "{{ 'x' }}")) for _ in range(PROCESSES)]
        await asyncio.sleep(0)
        for other in processes():
            other.suspend()
        with pytest.raises(TemplateUnavailable, match="others take long"):
            await rendered(renderer, "well")
    finally:
        renderer.close()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_process_that_was_killed_is_replaced(renderer: Renderer) -> None:
    assert await rendered(renderer, "one") == "one"
    (child,) = processes()
    child.kill()
    gone, _ = await asyncio.to_thread(psutil.wait_procs, [child], 60)
    assert gone
    assert await rendered(renderer, "two") == "two"


async def test_process_killed_while_it_renders_is_no_fault_of_chat(renderer: Renderer) -> None:
    await renderer.warm()
    (child,) = processes()
    child.suspend()
    rendering = asyncio.create_task(rendered(renderer, "one"))
    await asyncio.sleep(0.01)
    child.kill()
    with pytest.raises(TemplateUnavailable, match="ended with status -9"):
        await rendering


async def test_process_that_stands_still_is_given_up() -> None:
    renderer = Renderer(wait_seconds=600, bounds=Bounds(wall_seconds=0.2))
    try:
        await renderer.warm()
        (child,) = processes()
        child.suspend()
        with pytest.raises(TemplateExhausted):
            await rendered(renderer, "one")
    finally:
        renderer.close()


async def test_caller_that_leaves_costs_no_process(renderer: Renderer) -> None:
    await renderer.warm()
    (child,) = processes()
    child.suspend()
    rendering = asyncio.create_task(rendered(renderer, "one"))
    await asyncio.sleep(0.01)
    rendering.cancel()
    child.resume()
    assert await rendered(renderer, "two") == "two"
    assert await rendered(renderer, "three") == "three"
    assert child in processes()


async def test_process_that_cannot_start_is_named() -> None:
    renderer = Renderer(wait_seconds=600, bounds=Bounds(memory_bytes=1 << 20))
    with pytest.raises(TemplateUnavailable, match="before it was ready"):
        await rendered(renderer, "one")
    renderer.close()
    assert not processes()


async def test_process_ends_with_its_parent(renderer: Renderer) -> None:
    """Signals to a whole group are not for it: its parent may still have chats."""
    assert await rendered(renderer, "one") == "one"
    (child,) = processes()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child.pid, number)
    assert await rendered(renderer, "two") == "two"
    assert child in processes()


async def test_chat_of_any_length_comes_back_whole() -> None:
    renderer = Renderer(wait_seconds=600)
    for characters in (0, 9 << 20, 1, 3 << 20, 3 << 20, 0):
        text = "é" * characters + "\ud800"
        chat = Chat([{"role": "user", "content": text}])
        assert await rendered(renderer, "{{ messages[0].content }}", chat) == text
    renderer.close()


async def test_templates_render_as_they_do_here() -> None:
    renderer = Renderer(wait_seconds=600)
    for source, chat in itertools.product(TEMPLATES.values(), CHATS.values()):
        template = TemplateSource(source, {"bos_token": "<s>", "eos_token": "</s>"}, template_contents(source))
        bound = BoundedTemplate(template, renderer)
        for asked in (Chat(chat), Chat(chat, tools=[{"a": 1}], add_generation_prompt=False, kwargs={"b": [None, 1.5]})):
            assert await bound.render(bound.pack(asked)) == template_made(template).render_chat(asked)
    renderer.close()


async def test_chat_nested_too_deeply_is_refused(renderer: Renderer) -> None:
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(BadRequest, match="nested too deeply"):
        await rendered(renderer, "well", Chat([{"role": "user", "content": nested}]))


def test_template_that_compiles_slowly_stops_start() -> None:
    """Constants are worked out by the compiler."""
    text = "{{ 'x' | center(9999999) | upper | title | lower | replace(' ', 'y') }}" * 30
    with pytest.raises(TemplateExhausted, match=r"0\.1 s of processor time"):
        template_contents(text, BOUNDS)
