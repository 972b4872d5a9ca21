"""What flows of the fault matrix share: how one joins, and what is done to a machine, its VM and its Node."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lifekit import Stack, eventually, examples, write_secret

from faults.books import FOREIGN_TAG, books_of
from faults.invariants import USER_KEY, Witness
from resources.machine.manifest import NodeTemplate
from resources.machine.state import MachineState, Phase
from resources.orders import in_ms
from workflows.machine import MachineWorkflow

Boundary = tuple[str, int]
"""An activity and which of its calls."""


def _nothing(stack: Stack) -> contextlib.AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Flow:
    """Called with a stack, it drives one machine to the right end and asks for every invariant."""

    run: Callable[[Stack], Awaitable[None]]
    about: tuple[Boundary, ...] | None
    """The boundaries that the covering subset strikes; None: all, with every kind of fault."""
    home: str = "aws"
    """The cloud that its machines are in, by its name in the settings."""
    calls: tuple[str, ...] = ()
    """The cloud's operations whose calls are struck too, each for itself."""
    alone: bool = False
    """Whether its cases run one after the other: it is about all Nodes of an API server, which cases share."""
    around: Callable[[Stack], contextlib.AbstractAsyncContextManager[None]] = _nothing
    """What the stack gets before its worker begins, such as other settings."""

    async def __call__(self, stack: Stack) -> None:
        books_of(stack)  # from before anything is made
        await self.run(stack)


def flow(
    flows: dict[str, Flow],
    *about: str,
    alone: bool = False,
    around: Callable[[Stack], contextlib.AbstractAsyncContextManager[None]] = _nothing,
) -> Callable[[Callable[[Stack], Awaitable[None]]], Flow]:
    """Registers a flow. Its boundaries count from where it calls `arm`. `about`: which of them are its own, an
    activity's first call ("drain_node") or a later one ("drain_node 2")."""

    def register(run: Callable[[Stack], Awaitable[None]]) -> Flow:
        own = [(activity, int(call or 1)) for activity, _, call in (word.partition(" ") for word in about)]
        made = flows[run.__name__.replace("_", " ")] = Flow(run, tuple(own) or None, alone=alone, around=around)
        return made

    return register


async def running(stack: Stack, name: str, **spec: Any) -> Witness:
    """A machine that lives, before anything is struck."""
    await stack.create(name, **spec)
    seen = Witness([await stack.born(name)])
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    return seen


async def give(stack: Stack, secret: str, key: str, value: str) -> None:
    """Writes a Secret like the examples', with these credentials from now on."""
    (example,) = examples().secrets
    keys = {"providerAccessKeyId": key.encode(), "providerSecretAccessKey": value.encode()}
    await write_secret(stack, secret, {**example.plain(), **keys})


async def run_pod(stack: Stack, seen: Witness) -> str:
    """A pod that runs on the machine's Node."""
    pod = f"web-{seen.last.name}"
    on_node = json.dumps({"spec": {"nodeName": seen.last.status.node_name, "terminationGracePeriodSeconds": 1}})
    stack.kubectl("run", pod, "--image=i", f"--overrides={on_node}")

    async def phase() -> str:
        return await stack.kubectl_beside("get", "pod", pod, "-o", "jsonpath={.status.phase}")

    await eventually(phase, lambda p: p == "Running", f"{pod} Running")
    return pod


async def deafen(stack: Stack, seen: Witness) -> int:
    """Tells the machine that its Node is ill, as news of a watch that begins now: what its own watch tells is older,
    until a worker that was killed begins another. Returns when that watch began, as its epoch."""
    node, epoch = seen.last.node, in_ms(datetime.now(UTC))
    assert node is not None
    news = {"epoch": epoch, "ready": False, "reason": "KubeletNotReady: it has stopped"}
    await stack.started[seen.last.name].signal(MachineWorkflow.observe, node.model_copy(update=news))
    return epoch


def template(labels: dict[str, str], *taints: str) -> NodeTemplate:
    return NodeTemplate.model_validate(
        {
            "metadata": {"labels": labels, "annotations": labels},
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        }
    )


def new_name() -> str:
    return f"m-{uuid.uuid4().hex[:6]}"


def mark(stack: Stack, seen: Witness) -> None:
    """Marks what is not ours: a tag on VM, disk and NIC, a label, an annotation and a cordon on the Node."""
    state: MachineState = seen.last
    node = str(state.status.node_name)
    seen.resources = stack.leftovers(state.uid)
    for id in seen.ids:
        stack.simulator.call(lambda id=id: stack.cloud.tag(id, dict([FOREIGN_TAG])))
    stack.kubectl("label", "node", node, f"{USER_KEY}=1")
    stack.kubectl("annotate", "node", node, f"{USER_KEY}=1")
    stack.kubectl("cordon", node)
    seen.touched = max(c.n for c in stack.calls("patch nodes", "kubernetes"))
