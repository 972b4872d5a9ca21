"""Temporal's web UI renders Markdown with raw HTML and links of any scheme: strangers' text is shown as it is."""

from __future__ import annotations

import ast
import html
import re
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from entitykit import NOW, waits_for
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # of rich, which needs it
from paths import ROOT
from temporalio.testing import WorkflowEnvironment

from resources.machine.state import Condition, LastOperation, OperationState, OperationType
from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
from resources.visible import visible
from workflows.machine.details import details

LIES = [
    "[Log in](javascript:alert(1)) ![x](https://evil.example/p.png)",
    "<img src=x onerror=alert(1)> <a href=javascript:alert(1)>hostler</a> <NAME> <!-- --> <script>alert(1)</script>",
    "see https://evil.example/a <https://evil.example> mailto:a@evil.example FTP://evil.example",
    "# Deleted",
    "- done\n- also done",
    "1. first 2) second",
    "> quoted",
    "a | b\n--|--\nc | d",
    "Term\n: definition",
    "===",
    "--cluster prod -- or --- none ... (c) (TM) 1/2",
    "`hostler delete machine m-1` ``x",
    "**bold** __bold__ *i* _i_ ~~gone~~ x^2^",
    "$x$ $$y$$ \\(z\\) \\[w\\]",
    "&lt;b&gt; &#60;b&#62; &copy; &",
    "[1]: https://evil.example 'x'",
    "[^1]: note",
    "{#id} {namespace}/{workflowId}",
    "ends with \\",
    "    indented",
    "\x1b]0;x\x07\u202egnp.exe",
    "a_b_c {} '' \"q\" «x» +1 =2 :3 1.5 -6 #7",
]
HONEST = "2 of 3 pods gone; default/web-1 blocked by PDB web (generation 4), asked for by alice: it's 100% slow"


def shapes(text: str) -> list[tuple[Markdown, str, set[str]]]:
    """Each way onto a page: its Markdown, the text that should be visible, and the intended elements."""
    seen = visible(" ".join(text.split()))
    return [
        (page(text), seen, {"p"}),
        (items([text, "x", text]), f"{seen} x {seen}", {"ul", "li"}),
        (heading(text), seen, {"h3"}),
        (
            page(join("Waits for ", strong(text), f" since: {text}"), text),
            f"Waits for {seen} since: {seen} {seen}",
            {"p", "strong"},
        ),
        (page(join("Type ", code(text), ".")), f"Type {seen}.", {"p", "code"}),
    ]


def assert_shown(render: Callable[[str], str], text: str) -> None:
    for markdown, seen, elements in shapes(text):
        rendered = render(markdown)
        assert set(re.findall(r"<(\w+)", rendered)) <= elements, (markdown, rendered)
        # A renderer makes quotes pretty, and wraps as it likes.
        shown = html.unescape(re.sub(r"<[^>]*>", " ", rendered)).translate(str.maketrans("“”‘’", "\"\"''"))
        assert "".join(shown.split()) == "".join(seen.split()), (markdown, rendered)


@pytest.mark.parametrize("text", [*LIES, HONEST])
def test_text_is_text_for_commonmark(text: str) -> None:
    assert_shown(MarkdownIt("commonmark").render, text)


@given(st.text(st.sampled_from("ab1 \t\n\\`*_{}[]()#+-.!:|&<>~^$=/'\"@\u202e;"), min_size=1, max_size=40))
def test_any_text_is_text_for_commonmark(text: str) -> None:
    if text.strip():
        assert_shown(MarkdownIt("commonmark").render, text)


async def test_text_is_text_for_the_web_ui_itself() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    binary = str(Path(sys.executable).with_name("temporal"))
    async with await WorkflowEnvironment.start_local(
        ui=True,
        dev_server_existing_path=binary,
        dev_server_log_level="error",
        ui_port=port,
    ):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def render(markdown: str) -> str:
            query = urllib.parse.urlencode({"content": markdown})
            with direct.open(f"http://127.0.0.1:{port}/render?{query}") as answer:
                found = re.search(r"<main>(.*)</main>", answer.read().decode(), re.DOTALL)
            assert found
            # It gives headings ids, and opens links elsewhere.
            return re.sub(r'(<h3) id="[^"]*"', r"\1", found[1])

        assert "javascript:alert(1)" in render(LIES[0])  # what it makes of unescaped Markdown
        assert "<img src=x" in render(LIES[1])
        for text in (*LIES, HONEST):
            assert_shown(render, text)


def test_an_honest_text_is_not_made_unreadable() -> None:
    assert plain(HONEST) == HONEST
    assert prose("Nothing; then `hostler delete m --cluster c`.") == "Nothing; then `hostler delete m --cluster c`."
    assert prose("one ` tick") == "one &#96; tick"
    assert code("a`b") == "`` a`b ``"
    assert page("", "a", items([]), "b") == "a\n\nb"
    assert items([strong("x"), f"{strong('x')}"]) == "- **x**\n- &#42;&#42;x&#42;&#42;"


def test_a_machines_page_shows_lies_as_text() -> None:
    lie = "[x](javascript:alert(1))\n\n# m-1: Running <img src=x onerror=alert(1)>"
    state = waits_for("NodeNotSeen")
    assert state.status.waiting_for is not None
    state.status.waiting_for = state.status.waiting_for.model_copy(update={"message": lie})
    state.status.last_operation = LastOperation(
        type=OperationType.CREATE, state=OperationState.FAILED, description=f"{lie} too", time=NOW
    )
    state.status.conditions = [
        Condition(type="Odd", reason=lie, message="as it says", since=NOW - timedelta(minutes=1))
    ]
    state.status.node_name = lie
    rendered = MarkdownIt("commonmark").render(details(state))
    assert set(re.findall(r"<(\w+)", rendered)) == {"h3", "p", "strong", "code", "ul", "li"}
    assert rendered.count("<h3>") == 1
    assert (
        rendered.count("[x](javascript:alert(1)) # m-1: Running &lt;img") == 4
    )  # the wait, the operation, the condition, the node


def test_the_web_ui_is_told_in_one_place_alone() -> None:
    calls = {
        str(file.relative_to(ROOT))
        for room in ("workflows", "activities", "starter")
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("set_current_details", "static_details")
    }
    assert calls == {"workflows/page.py"}  # its parameter is of type Markdown, which mypy checks
