"""Training conversations about docstrings, from which the demo model learns to chat; and their template.

An answer is an object's name and the first paragraph of its docstring. Some chats have a page of documentation as their
system prompt and ask about it, so that an answer can depend on text far above it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

from engine_agent.tools.training.entries import Entry

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
SYSTEMS = (
    "You are a helpful assistant.",
    "You explain Python's standard library.",
    "You answer questions about Python, briefly.",
    "Answer in one sentence.",
    "You are the help desk of a company that writes Python. Be short and exact.",
)
QUESTIONS = (
    "What does `{name}` do?",
    "What does {name} do?",
    "Explain {name}.",
    "Explain `{name}` briefly.",
    "What is `{name}` for?",
    "What is {name}?",
    "Describe {name}.",
    "Tell me about `{name}`.",
    "In one sentence, what does {name} do?",
    "Help with `{name}`, please.",
)
MORE_QUESTIONS = ("And {name}?", "And what does `{name}` do?", "Now explain {name}.", "What about `{name}`?")
CALLS = ("How do I call it?", "What is its signature?", "What are its arguments?")
SMALL_TALK = (
    ("Hello!", "Hello! Ask me about a function or a module of Python's standard library."),
    ("Hi", "Hello! Ask me about a function or a module of Python's standard library."),
    ("Who are you?", "I am Luminet's demo model: very small, and trained on Python's own documentation."),
    ("What can you do?", "I can say what a function of Python's standard library does. I am often wrong."),
    ("Thanks!", "You are welcome."),
    ("Thank you.", "You are welcome."),
)
POPULAR_WORDS = """
argparse asyncio bisect builtins collections contextlib csv dataclasses datetime enum functools heapq io itertools json
logging math os os.path pathlib random re shutil statistics string subprocess sys textwrap threading time
"""
POPULAR = frozenset(POPULAR_WORDS.split())
PAGE_CHARACTERS = 1200  # of most pages; a module with enough text also gets a LONG_PAGE
LONG_PAGE = 12_000


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


Chat = tuple[Message, ...]


def render(chat: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """Return the text of a chat, as the template renders it."""
    text = "".join(f"{START}{message.role}\n{message.content}{END}\n" for message in chat)
    return text + f"{START}assistant\n" if add_generation_prompt else text


def as_dicts(chat: Sequence[Message]) -> list[dict[str, str]]:
    """Return the chat in the form of chat APIs."""
    return [{"role": message.role, "content": message.content} for message in chat]


def exchange(question: str, answer: str) -> Chat:
    return Message("user", question), Message("assistant", answer)


def answer_about(entry: Entry) -> str:
    return f"`{entry.name}`: {entry.summary}"


def question_about(entry: Entry, random: Random, among: Sequence[str] = QUESTIONS) -> Chat:
    return exchange(random.choice(among).format(name=entry.name), answer_about(entry))


def is_worth_asking(entry: Entry) -> bool:
    return entry.is_public and 20 <= len(entry.summary) <= 400 and "tkinter" not in entry.module


def second_turn(entry: Entry, module_entries: Sequence[Entry], random: Random) -> Chat:
    """Return a user's next message and its answer: about the signature, about another object, or thanks."""
    if entry.signature and len(entry.signature) < 80 and random.random() < 0.4:
        return exchange(random.choice(CALLS), f"`{entry.name}{entry.signature}`")
    if random.random() < 0.2:
        return exchange(*random.choice(SMALL_TALK[-2:]))
    return question_about(random.choice(module_entries), random, MORE_QUESTIONS)


def plain_chat(entry: Entry, module_entries: Sequence[Entry], random: Random) -> Chat:
    """Return a question about an entry, sometimes with a system prompt, sometimes with a second turn."""
    system = (Message("system", random.choice(SYSTEMS)),) if random.random() < 0.3 else ()
    chat = system + question_about(entry, random)
    return chat + second_turn(entry, module_entries, random) if random.random() < 0.25 else chat


def page_chat(module: Sequence[Entry], random: Random, characters: int) -> Chat:
    """Return questions about entries in the system prompt."""
    page_entries, remaining_characters = list[Entry](), characters
    for entry in module[random.randrange(len(module)) :]:
        remaining_characters -= len(entry.paragraph)
        if remaining_characters < 0 and page_entries:
            break
        page_entries.append(entry)
    page = "\n".join(entry.paragraph for entry in page_entries)
    chat: Chat = (Message("system", f"Answer from this page.\n\n{page}"),)
    for entry in random.sample(page_entries, min(len(page_entries), random.choice((1, 1, 2, 3)))):
        chat += question_about(entry, random)
    return chat


def small_talk(random: Random) -> Chat:
    system = (Message("system", random.choice(SYSTEMS)),) if random.random() < 0.3 else ()
    return system + exchange(*random.choice(SMALL_TALK[:-2]))


def make_chats(entries: Sequence[Entry], random: Random) -> Iterator[Chat]:
    """Iterate over one pass: each entry once, those of popular modules three times, and chats about pages."""
    askable = [entry for entry in entries if is_worth_asking(entry)]
    for module, group in groupby(askable, key=lambda entry: entry.module):
        module_entries = list(group)
        for entry in module_entries:
            for _ in range(3 if module in POPULAR else 1):
                yield plain_chat(entry, module_entries, random)
        for number in range(min(len(module_entries) // 5, 6)):
            yield page_chat(module_entries, random, LONG_PAGE if number == 5 else PAGE_CHARACTERS)
    for _ in range(60):
        yield small_talk(random)
