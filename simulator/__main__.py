"""The simulator as a process: `python -m simulator --kubeconfig FILE`.

When it serves, it prints one line of JSON with its addresses, and nothing else on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from resources.clouds import simulations
from simulator.kubelet import Timings
from simulator.server import CloudSettings, PortTakenError, Simulator, SimulatorSettings

SPEEDS = {"fast": Timings.fast, "demo": Timings.demo}


def main() -> int:
    options = _parser().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        asyncio.run(_run(_settings(options), options.kubeconfig, options.die_with_parent))
    except (PortTakenError, ValueError, OSError) as e:
        print(f"simulator: {e}", file=sys.stderr)
        return 1
    return 0


def _settings(options: argparse.Namespace) -> SimulatorSettings:
    cluster = options.api_server_kubeconfig
    clouds = {name: s for name, s in simulations().items() if name in (options.cloud or simulations())}
    return SimulatorSettings(
        kube_port=options.kube_port,
        admin_port=options.admin_port,
        clouds={name: CloudSettings(port=getattr(options, f"{s.service}_port")) for name, s in clouds.items()},
        api_server_kubeconfig=None if cluster is None else cluster.read_text(),
        state_dir=options.state_dir,
        cluster=options.cluster,
        timings=_timings(options),
        config_daemons=options.config_daemons,
    )


def _timings(options: argparse.Namespace) -> Timings:
    timings = SPEEDS[options.speed]()
    given = {} if options.terminate is None else {"terminate": options.terminate}
    return Timings.model_validate({**timings.model_dump(), **given})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--state-dir", type=Path, help="where state is kept; without it nothing outlives the process")
    parser.add_argument(
        "--cloud", action="append", choices=[*simulations()], help="simulate this one; may be repeated (default: all)"
    )
    for name in ("kube", *(simulation.service for simulation in simulations().values()), "admin"):
        parser.add_argument(f"--{name}-port", type=int, default=0, metavar="N", help="0: any free one (default)")
    parser.add_argument(
        "--api-server-kubeconfig",
        type=Path,
        metavar="FILE",
        help="join the machines to this cluster, as its administrator, instead of a simulated one",
    )
    parser.add_argument("--cluster", default="demo", help="the cluster's name in the kubeconfig (default: demo)")
    parser.add_argument(
        "--speed", choices=SPEEDS, default="demo", help="demo: to be watched (default); fast: for tests"
    )
    parser.add_argument(
        "--terminate", type=float, metavar="SECONDS", help="a VM takes so long to end (demo: 40; fast: 0.1)"
    )
    parser.add_argument(
        "--config-daemons", action="store_true", help="serve machine configs, with a daemon on each node of a pool"
    )
    parser.add_argument("--kubeconfig", type=Path, help="write an administrator's kubeconfig to this file")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="stop when standard input closes (a pipe held by the parent)"
    )
    return parser


async def _run(settings: SimulatorSettings, kubeconfig: Path | None, die_with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Simulator(settings) as simulator:
        if kubeconfig is not None:
            _write_secret(kubeconfig, simulator.kubeconfig)
        if die_with_parent:
            threading.Thread(target=_until_stdin_closes, args=(loop, stop), daemon=True).start()
        addresses = {
            "kube": simulator.kube_url,
            **{cloud.service: simulator.cloud_urls[name] for name, cloud in simulator.clouds.items()},
            "clouds": simulator.cloud_urls,
            "admin": simulator.admin_url,
            "kubeconfig": None if kubeconfig is None else str(kubeconfig),
        }
        print(json.dumps(addresses), flush=True)
        await stop.wait()


def _write_secret(path: Path, text: str) -> None:
    """Writes a file that only the owner may read: the kubeconfig holds the administrator's token."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _until_stdin_closes(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, not sys.stdin: a thread that holds the lock of sys.stdin would prevent the interpreter's exit.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main())
