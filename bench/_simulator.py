"""The simulator as a process for benchmarks: VMs, kubelets and pods without delay, heartbeats as in production.

    python bench/_simulator.py --kubeconfig FILE [--cloud aws] [--launch 30] [--boot 2] [--join 1] [--terminate 2]
        [--heartbeat 10] [--status 30]

`python -m simulator` has the speeds of the demo and of the tests; at the demo's speed kubelets heartbeat too slowly to
boot at once, at the tests' speed so fast that hundreds of kubelets would measure themselves. Prints one line of JSON
with its addresses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path

from resources.clouds import simulations
from simulator.kubelet import Timings
from simulator.server import CloudSettings, Simulator, SimulatorSettings

TIMINGS = Timings(
    launch=0,
    boot=0,
    join=0,
    pod_start=0,
    pod_stop=0,
    terminate=0,
)


async def serve(kubeconfig: Path, cloud: str, timings: Timings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = SimulatorSettings(cluster="bench", timings=timings, clouds={cloud: CloudSettings()})
    async with Simulator(settings) as simulator:
        _write(kubeconfig, simulator.kubeconfig)
        print(json.dumps({"cloud": simulator.cloud_urls[cloud], "admin": simulator.admin_url}), flush=True)
        await stop.wait()


def _write(kubeconfig: Path, text: str) -> None:
    kubeconfig.touch(mode=0o600)  # it holds a token
    kubeconfig.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--cloud", choices=simulations(), default=next(iter(simulations())))
    for name in ("launch", "boot", "join", "terminate"):
        parser.add_argument(f"--{name}", type=float, default=0.0, metavar="SECONDS", help="default: at once")
    parser.add_argument("--heartbeat", type=float, default=10.0, metavar="SECONDS", help="default: as a real kubelet")
    # A real kubelet has 300: here each node reports several times while idle machines are looked at.
    parser.add_argument("--status", type=float, default=30.0, metavar="SECONDS", help="default: 30")
    options = parser.parse_args()
    times = {name: getattr(options, name) for name in ("launch", "boot", "join", "terminate", "heartbeat", "status")}
    times["grace"] = 5 * options.heartbeat  # like a real kube-controller-manager, for a real kubelet
    asyncio.run(serve(options.kubeconfig, options.cloud, TIMINGS.model_copy(update=times)))
