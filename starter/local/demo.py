"""`make demo`: one machine's life in a stack of its own, from `apply` until nothing is left, with a worker killed in
between."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from activities.kube.client import node_path
from activities.kube.looks import every_node
from resources.clouds import PROVIDERS, provider_key, simulations
from resources.machine.state import MachineState, Phase
from resources.manifests import Loaded, load_manifests
from resources.names import MACHINE_NAME_LABEL
from resources.settings import SettingsError
from resources.words import cause
from starter.local.demo_view import DemoView, view
from starter.local.ports import Ports, the_first
from starter.local.stack import CLUSTER, Options, Stack
from starter.local.up import cancelled_by_signals, examples_of, shown, words
from starter.outlet import complain, speak_for_libraries
from starter.screen import screen
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError
from starter.sdk.kube import connect_cluster
from starter.sdk.results import Description, Json

FOLDER = Path(".hostler/demo")
KEEP_VARIABLE = "DEMO_KEEP"
CLUSTER_VARIABLE = "HOSTLER_API_SERVER_KUBECONFIG"
"""The variable that names a kubeconfig file of a cluster for the machine to join; without it the cluster is
simulated."""
SLOW_CALL = 4.0
"""Seconds that the creating call takes, so that there is time to kill a worker during it."""
LOOK = 0.3
"""Seconds between two looks at the machine."""
STEP_TIMEOUT = 60.0
TERMINATE = 4.0  # a real VM takes ten times as long to end, with nothing to be seen meanwhile
"""Seconds for each step; the life as a whole takes about half of that."""


class DemoError(HostlerError):
    """Something is not as it should be."""


class Demo:
    def __init__(self, stack: Stack, hostler: HostlerClient, screen: DemoView, examples: Path) -> None:
        self.stack = stack
        self.hostler = hostler
        self.screen = screen
        self.examples = examples
        self.manifests = Loaded()
        for file in sorted(examples.glob("*.yaml")):
            loaded = load_manifests(file.read_text(), str(file))
            self.manifests.secrets += loaded.secrets
            self.manifests.classes += loaded.classes
            self.manifests.machines += loaded.machines
        (machine_class,), (machine,) = self.manifests.classes, self.manifests.machines
        self.name = machine.metadata.name
        simulation = PROVIDERS[machine_class.provider].simulation
        assert simulation is not None
        self.cloud = simulation

    async def run(self) -> None:
        """Plays the whole life. Raises DemoError or TimeoutError when it does not go as announced."""
        with self.screen.running():
            await self._create()
            state = await self._until(lambda d: _phase(d) == Phase.RUNNING)
            await self._show_node(state)
            self.screen.say(f"hostler delete machine {self.name}")
            answer = await self.hostler.delete(self.name, reason="the demo is over")
            self.screen.say(answer.message)
            await self._until(lambda d: not d.life.running)
        self.screen.say(f"{self.name} is gone")
        await self._show_what_is_left()

    async def _create(self) -> None:
        create, cloud = self.cloud.create, self.cloud.service.upper()
        slow = {"service": self.cloud.service, "operation": create, "delay": SLOW_CALL}
        (rule,) = await self._admin("POST", "/faults", json=slow)
        self.screen.say(
            f"hostler apply -f {shown(self.examples)}    ({cloud} takes {SLOW_CALL:g} s for {create} today)"
        )
        manifests = self.manifests
        for applied in await self.hostler.apply(*manifests.secrets, *manifests.classes, *manifests.machines):
            self.screen.say(f"  {applied}")
        await self._look()
        async with asyncio.timeout(STEP_TIMEOUT):
            while rule["id"] in [r["id"] for r in await self._admin("GET", "/faults")]:
                await self._pause()  # the rule is used up as soon as the call has begun
        worker = self.stack.processes.children["worker"]
        os.kill(worker.pid, signal.SIGKILL)
        if await self._launches():
            raise DemoError(f"{create} was over before the worker was killed, after {SLOW_CALL:g} s")
        self.screen.say(f"{create} was in flight when process {worker.pid}, the worker, got SIGKILL")
        self.screen.say("the worker was killed; the workflow continues")

    async def _look(self) -> Description:
        description = await self.hostler.describe(self.name)
        if description.state is not None:
            self.screen.show(description.state, "no worker is there to ask" if description.no_answer else "")
        return description

    async def _pause(self) -> None:
        await asyncio.sleep(LOOK)

    async def _until(self, reached: Callable[[Description], bool]) -> MachineState:
        """Shows the machine until it is as wanted; returns its last answer."""
        state: MachineState | None = None
        async with asyncio.timeout(STEP_TIMEOUT):
            while True:
                description = await self._look()
                state = description.state or state
                if description.failure:
                    raise DemoError(f"{self.name}: {description.failure}")
                if description.result is not None and state is not None:
                    last = state.model_copy(update={"journal": description.result.journal})
                    self.screen.show(last, "nothing: it is gone")
                if reached(description) and state is not None:
                    return state
                await self._pause()

    async def _show_node(self, state: MachineState) -> None:
        async with connect_cluster(self.stack.settings, CLUSTER) as kube:
            node = await kube.get(node_path(state.status.node_name or ""))
        self.screen.say(f"{self.name} is Running; kubectl would show its Node like this:")
        (machine,) = self.manifests.machines
        for line in node_facts(node, {MACHINE_NAME_LABEL, *machine.spec.node_template.metadata.labels}):
            self.screen.say(f"  {line}")
        if provider_key(node["spec"].get("providerID", "")) != provider_key(state.status.provider_id or ""):
            raise DemoError(f"the Node's providerID is not the machine's, {state.status.provider_id}")

    async def _show_what_is_left(self) -> None:
        made: list[Json] = await self._admin("GET", f"/{self.cloud.service}/resources")
        left = [f"{resource['kind']} {resource['id']}" for resource in made if not resource["gone"]]
        self.screen.say(f"  left at the cloud: {', '.join(left) or 'nothing'}")
        async with connect_cluster(self.stack.settings, CLUSTER) as kube:
            nodes = [n["metadata"]["name"] async for n in every_node(kube)]
        self.screen.say(f"  nodes left in the cluster: {', '.join(nodes) or 'none'}")
        launches = await self._launches()
        vms = [resource["id"] for resource in made if resource["vm"]]
        self.screen.say(f"  calls of {self.cloud.create}: {len(launches)}; VMs that they made: {', '.join(vms)}")
        if left or nodes:
            raise DemoError("something of the machine is left")
        if len(vms) != 1:
            raise DemoError(f"{len(vms)} VMs were made for one machine")

    async def _launches(self) -> list[Json]:
        """Finished calls that make a VM, including those whose caller never got the answer."""
        journal = await self._admin(
            "GET", "/calls", params={"service": self.cloud.service, "operation": self.cloud.create}
        )
        return list(journal["calls"])

    async def _admin(self, method: str, path: str, **request: Any) -> Any:
        async with aiohttp.request(method, f"{self.stack.admin}{path}", **request) as answer:
            answer.raise_for_status()
            return await answer.json()


def _phase(description: Description) -> Phase | None:
    """The phase as the machine itself says; without a worker nobody knows."""
    known = description.state is not None and not description.no_answer
    return description.state.status.phase if known and description.state else None


def node_facts(node: Json, labels: set[str]) -> list[str]:
    """The columns of `kubectl get nodes -o wide`, and what else shows where it came from; only these of the labels."""
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    address = next((a["address"] for a in status.get("addresses", ()) if a["type"] == "InternalIP"), "<none>")
    row = {
        "NAME": metadata["name"],
        "STATUS": "Ready" if ready else "NotReady",
        "VERSION": status.get("nodeInfo", {}).get("kubeletVersion", ""),
        "INTERNAL-IP": address,
    }
    widths = [max(len(k), len(v)) + 3 for k, v in row.items()]
    taints = ", ".join(f"{t['key']}:{t['effect']}" for t in spec.get("taints", ())) or "none"
    return [
        "".join(k.ljust(w) for k, w in zip(row, widths, strict=True)).rstrip(),
        "".join(v.ljust(w) for v, w in zip(row.values(), widths, strict=True)).rstrip(),
        f"providerID: {spec.get('providerID', '')}   taints: {taints}",
        f"labels: {', '.join(f'{k}={v}' for k, v in sorted(metadata.get('labels', {}).items()) if k in labels)}",
    ]


async def demo(screen: DemoView, cloud: str, keep: bool) -> None:
    joined = os.environ.get(CLUSTER_VARIABLE)
    cluster = Path(joined) if joined else None
    what = f"a simulated cloud beside the cluster of {joined}" if joined else "a simulated cloud and cluster"
    screen.say(f"starting Temporal, {what}, and a worker")
    ports = Ports.any(cloud)
    options = Options(directory=FOLDER, fresh=True, ports=ports, api_server_kubeconfig=cluster, terminate=TERMINATE)
    async with Stack(options, screen.say) as stack:
        screen.say(f"all are running; Temporal's web UI, until the demo ends: {stack.ui}")
        hostler = HostlerClient(await stack.connect(), stack.settings, cluster=CLUSTER)
        await Demo(stack, hostler, screen, examples_of(cloud)).run()
        screen.say("")
        if keep:
            for line in ("It keeps running until Ctrl-C.", "", *words(stack)):
                screen.say(line)
            await asyncio.Event().wait()
    up = "make up" if cloud == the_first() else f'make up ARGS="--provider {cloud}"'
    screen.say(
        f"That was the whole life of a machine. To try it yourself: {up} (web UI at http://127.0.0.1:8233), then docs/."
    )


async def run(screen: DemoView, cloud: str, keep: bool) -> int:
    """Runs the demo and returns the exit code. Nothing is left running, whatever happens."""
    with cancelled_by_signals():
        try:
            await demo(screen, cloud, keep)
            return 0
        except asyncio.CancelledError:
            screen.say("stopped")
            return 0 if keep else 130
        except TimeoutError:
            error = f"a step took longer than {STEP_TIMEOUT:g} s"
        except (HostlerError, SettingsError, aiohttp.ClientError) as e:
            error = cause(e)
        finally:
            await asyncio.sleep(0.1)  # a loop that ends right after Temporal's client may crash (sdk-python#300)
    complain(f"{error}; the logs are in {shown(FOLDER / 'logs')}")
    return 1


def main() -> int:
    speak_for_libraries()
    parser = argparse.ArgumentParser(prog="make demo PROVIDER=", description="One machine's life.")
    parser.add_argument("provider", nargs="?", choices=[*simulations()], default=the_first())
    cloud = parser.parse_args().provider
    return asyncio.run(run(view(screen()), cloud, keep=os.environ.get(KEEP_VARIABLE) == "1"))


if __name__ == "__main__":
    sys.exit(main())
