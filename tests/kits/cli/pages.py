"""What pages are held to: the commands that they tell people to type, and the reasons that the code gives."""

from __future__ import annotations

import ast
import asyncio
import functools
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import typer
from lifekit import Stack
from paths import ROOT
from typer.main import get_command

from resources import errors
from resources.reasons import Kind
from starter.commands.kinds import ALIASES, ALL
from starter.main import app

SYNOPSIS = re.compile(r"[|…\[\]·]")
"""Placeholders: a line with one is a form, not a command."""


def typed(page: str) -> Iterator[list[str]]:
    """The words of every `hostler` line in the page's blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = line.removeprefix("$ ").split("    #")[0]
            if command.startswith("hostler ") and not SYNOPSIS.search(re.sub(r'"\$\(.*\)"', "i-1", command)):
                yield shlex.split(re.sub(r'"\$\(.*\)"', "i-1", command), comments=True)[1:]


def parse(words: list[str]) -> str:
    """The command that takes them, with a kind that it may be about. Raises a usage error; runs nothing."""
    command, name = get_command(app), "hostler"
    ctx = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        ctx = command.make_context(name, rest, parent=ctx)
    path = str(ctx.command_path)
    for kind in str(ctx.params.get("kind") or ALL).split(","):
        if not path.startswith("hostler hook ") and kind.partition("/")[0] not in (
            *ALIASES,
            ALL,
        ):  # a hook's kind is its own
            raise typer.BadParameter(f"{kind!r} is no kind")
    return path


async def run(stack: Stack, command: list[str]) -> str:
    program = Path(sys.executable).parent / command[0]
    # What README cannot know: this server's address, and that stacks of tests have task queues of their own.
    arguments = [stack.settings.queue_prefix if a == "hostler" else a for a in command[1:]]
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        "--output",
        "json",
        cwd=stack.settings_file.parent,
        env={**os.environ, "TEMPORAL_ADDRESS": stack.client.service_client.config.target_host},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


# -- the reasons that the code gives, found by reading it: literals where a reason is said, and what leads there -------

HISTORY = ROOT / "starter/sdk/history.py"
"""The story that `hostler events` tells has reasons of its own."""
FILES = [*(f for room in ("workflows", "planners", "activities") for f in sorted((ROOT / room).rglob("*.py"))), HISTORY]

# Where a reason is said: the call's name, the place or keyword of the reason, and how a person meets it.
SAID: dict[str, tuple[int | str, Kind]] = {
    "waiting": (0, Kind.WAIT),
    "waits_for": (0, Kind.WAIT),
    "waits_only": (0, Kind.WAIT),
    "fail": (1, Kind.FAILURE),
    "condition": (1, Kind.CONDITION),
    "enter": (1, Kind.HAPPENING),
    "note": (0, Kind.HAPPENING),
    "note_news": (0, Kind.HAPPENING),
    "tell_story": (0, Kind.HAPPENING),
    "_note": (0, Kind.HAPPENING),
    "tell": (1, Kind.HAPPENING),
    "Health": (1, Kind.WAIT),
    "Confirmation": (1, Kind.WAIT),
    "Retry": ("reason", Kind.WAIT),
    "after_failed_create": ("reason", Kind.WAIT),
    "FleetWait": ("reason", Kind.WAIT),
    "Happening": ("reason", Kind.HAPPENING),
    "Note": ("reason", Kind.HAPPENING),
}
POOL: dict[str, tuple[int | str, Kind]] = {
    "Wait": (0, Kind.WAIT),
    "wait": (0, Kind.WAIT),
    "_back_off": (1, Kind.WAIT),
    "Create": (2, Kind.HAPPENING),
    "Delete": (1, Kind.HAPPENING),
    "delete": (1, Kind.HAPPENING),
    "_replace": (2, Kind.HAPPENING),
    "GrantPermit": (1, Kind.HAPPENING),
    "GrantPreservation": (2, Kind.HAPPENING),
    "TakeSlots": (1, Kind.HAPPENING),
    "MarkNodes": (2, Kind.HAPPENING),
    "LiftHold": (1, Kind.HAPPENING),
    "Act": (2, Kind.HAPPENING),
    "GiveConfig": (2, Kind.HAPPENING),
    "RenderTrouble": (2, Kind.WAIT),
    "RenderRefused": (0, Kind.WAIT),
    "Link": (2, Kind.WAIT),
    "Acceptance": (0, Kind.WAIT),
}
"""Only in an owner's plan: elsewhere these words mean something else."""
PRESERVATION: dict[str, tuple[int | str, Kind]] = {
    "Preserve": (2, Kind.HAPPENING),
    "End": (0, Kind.HAPPENING),
    "Stay": (0, Kind.WAIT),
}
"""Only in planners/machine/preservation.py."""
PASSED_ON = {"_happened"}
"""Functions whose answer is a reason that is found where it is made."""


@dataclass
class Found:
    reasons: dict[str, Kind] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Places where a reason is said in a form that cannot be read here."""
    failed_waits: bool = False
    """A Failed machine waits, and the reason of its wait is the one that it failed for."""

    def add(self, names: set[str], kind: Kind) -> None:
        for name in names:
            self.reasons[name] = self.reasons.get(name, kind) | kind


def find(sources: dict[str, str]) -> Found:
    """Finds the reasons in sources, by file name."""
    found = Found()
    for name, source in sources.items():
        module = ast.parse(source)
        constants = _assigned(module.body)
        for function in _functions(module):
            local = {**constants, **_assigned(list(ast.walk(function)))}
            for node in _own(function):
                _one(node, function, local, found, name)
    for name, kind in found.reasons.items():
        if found.failed_waits and Kind.FAILURE in kind:
            kind |= Kind.WAIT
            found.reasons[name] = kind
        if kind != Kind.HAPPENING:  # the journal has everything: it counts only where nothing else has the reason
            found.reasons[name] = kind & ~Kind.HAPPENING
    return found


@functools.cache
def everything() -> Found:
    return find({str(f.relative_to(ROOT)): f.read_text() for f in FILES})


def _one(node: ast.AST, function: ast.AST, local: dict[str, list[ast.expr]], found: Found, file: str) -> None:
    if isinstance(node, ast.Call) and (said := said_by(node, file)) is not None:
        expression, kind = said
        names = _read(expression, function, local)
        found.failed_waits |= Kind.WAIT in kind and ast.unparse(expression) in ("failed.reason", "cause.reason")
        if names is None:
            found.unread.append(f"{file}:{node.lineno}: {ast.unparse(expression)}")
        found.add(names or set(), kind)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and _name(node.target) == "REASON":
        found.add({str(ast.literal_eval(v)) for v in node.value.values}, Kind.WAIT)
    elif (
        isinstance(node, ast.Return)
        and file == "workflows/calls.py"
        and _name(function) == "reason"
        and node.value is not None
    ):
        found.add(_read(node.value, function, local) or set(), Kind.WAIT)
    elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and file.endswith(HISTORY.name):
        found.add(_read(node.value.elts[0], function, local) or set(), Kind.HAPPENING)
    elif (name := _intent(node)) and file.startswith(
        ("workflows/machine/", "workflows/machine_class", "workflows/entity")
    ):
        # Each intent of a machine is told as asked, whether it came by update or by signal; some are every entity's.
        found.add({name.capitalize() + "Asked"}, Kind.HAPPENING)


def said_by(call: ast.Call, file: str = "") -> tuple[ast.expr, Kind] | None:
    """The reason's expression and how it is met, where the call says one."""
    name = _name(call.func)
    if name == "condition" and file.startswith("planners/machine_config/"):
        return None  # it reads one of an object
    words = SAID
    if file.startswith(("planners/pool/", "planners/fleet/", "planners/control_plane/", "planners/machine_config/")):
        words = {**SAID, **POOL}
    elif file == "planners/machine/preservation.py":
        words = {**SAID, **PRESERVATION}
    if name not in words or (name == "tell" and not file.endswith(HISTORY.name)):
        return None
    if name == "Health" and isinstance(call.args[0], ast.Constant) and call.args[0].value is True:
        return None  # nobody waits for a healthy node
    if name == "Acceptance" and isinstance(call.args[0], ast.Constant) and call.args[0].value == "Rendered":
        return None  # nor for a KubeletConfig that is accepted
    place, kind = words[name]
    if isinstance(place, int):
        return (call.args[place], kind) if len(call.args) > place else None
    return next(((k.value, kind) for k in call.keywords if k.arg == place), None)


def _read(e: ast.expr, function: ast.AST, local: dict[str, list[ast.expr]]) -> set[str] | None:
    """The strings that an expression can be; empty where it is found elsewhere; None where it cannot be read."""
    match e:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=other):
            return _all([body, other], function, local)
        case ast.BoolOp(values=values):
            return _all(values, function, local)
        case ast.Name(id=name) if name in local:
            return _all(local[name], function, {k: v for k, v in local.items() if k != name})
        case ast.Name(id=name) if name in _parameters(function):
            return set()  # its caller says it
        case ast.Name(id=name) if isinstance(getattr(errors, name, None), str):
            return {getattr(errors, name)}
        case ast.Attribute(attr="reason") | ast.Subscript(value=ast.Name(id="REASON")):
            return set()
        case ast.Call(func=callee) if _name(callee) in PASSED_ON:
            return set()
        case ast.JoinedStr() if "Asked" in ast.unparse(e):
            return set()  # the intents, which are found by their updates
    return None


def _all(expressions: list[ast.expr], function: ast.AST, local: dict[str, list[ast.expr]]) -> set[str] | None:
    read = [_read(e, function, local) for e in expressions]
    return None if None in read else set().union(*(r for r in read if r is not None))


def _functions(module: ast.Module) -> Iterator[ast.AST]:
    yield module
    yield from (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in the function and not in one nested in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own(child)


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.iter)
    return found


def _parameters(function: ast.AST) -> set[str]:
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    return {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}


def _name(node: ast.AST) -> str:
    match node:
        case (
            ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name)
        ):
            return name
    return ""


def _intent(node: ast.AST) -> str:
    """The name of `… = intent(…)`, or of a function decorated by `@workflow.update(name="…")`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _name(node.value.func) == "intent":
        return _name(node.targets[0])
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ():
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "update":
            return next((str(ast.literal_eval(k.value)) for k in decorator.keywords if k.arg == "name"), "")
    return ""
