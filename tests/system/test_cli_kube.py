"""The command line and the API of a cluster: nodes, and the Secrets that it stores."""

from __future__ import annotations

import asyncio
import json

from cli.place import NODE, Place, eventually, kubectl, place, secret_yaml, text

from simulator.kubelet import Timings as SimulatorTimings
from simulator.server import SimulatorSettings, SimulatorThread

__all__ = ["place"]  # a fixture

CANARY = "hunter2-canary"
NODE_STATUS = {
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.36.0"},
    }
}


async def test_nodes_and_secrets_of_a_cluster(place: Place) -> None:
    simulator = SimulatorThread(SimulatorSettings(timings=SimulatorTimings.fast()))
    await asyncio.to_thread(simulator.__enter__)
    try:
        (place.folder / "kubeconfig").write_text(simulator.simulator.kubeconfig)
        place.write_settings(clusters={place.cluster: {"kubeconfig": "kubeconfig"}}, secrets={"source": "kubernetes"})
        nothing = await place.run("get", "nodes")
        assert (nothing.ok(), nothing.err) == ("", f"No nodes found in cluster {place.cluster}.\n")
        await kubectl(place, "create", "-f", "-", stdin=text(NODE))
        await kubectl(place, "patch", "node", "n1", "--subresource=status", "-p", json.dumps(NODE_STATUS))

        async def silent() -> bool:  # nobody heartbeats for this node
            return "NotReady" in (await place.run("get", "nodes")).ok()

        await eventually(silent, "NotReady")
        row = (await place.run("get", "nodes")).ok().splitlines()
        assert row[0].split() == ["NAME", "STATUS", "MACHINE", "AGE", "VERSION"]
        assert [*row[1].split()[:3], row[1].split()[4]] == ["n1", "NotReady,SchedulingDisabled", "m1", "v1.36.0"]
        assert json.loads((await place.run("get", "node", "n1", "-o", "json")).ok())["kind"] == "Node"
        missing = await place.run("get", "no", "ghost")
        assert (missing.code, "has no Node ghost" in missing.err) == (1, True)

        lines = []
        for manifest in (secret_yaml(CANARY, old="x"), secret_yaml(CANARY, old="x"), secret_yaml("changed")):
            dry = await place.run("apply", "-f", "-", "--dry-run", stdin=text(manifest))
            done = await place.run("apply", "-f", "-", stdin=text(manifest))
            said = dry.ok().replace(": its values, which are not shown", "")
            assert said == done.ok().replace("\n", " (dry run)\n")
            assert CANARY not in done.out + done.err + dry.out + dry.err
            lines.append(done.out)
        assert lines == ["secret/s1 created\n", "secret/s1 unchanged\n", "secret/s1 configured\n"]
        stored = json.loads(await kubectl(place, "get", "secret", "s1", "-o", "json"))
        assert stored["data"] == {"userData": "Y2hhbmdlZA=="}  # the key that the manifest no longer has is gone

        nowhere = secret_yaml(CANARY)
        nowhere["metadata"]["namespace"] = "nowhere"
        refused = await place.run("apply", "-f", "-", stdin=text(nowhere))
        assert refused.code == 1
        assert "does the namespace 'nowhere' exist?" in refused.err
        assert CANARY not in refused.err
    finally:
        await asyncio.to_thread(simulator.__exit__)
    down = await place.run("get", "nodes")
    assert (down.code, "does not answer" in down.err) == (3, True)
