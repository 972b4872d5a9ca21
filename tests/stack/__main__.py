"""`python -m stack`: docker-compose.yml without Docker, with its demo, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from stack.engine import Engine, StackError
from stack.layers import CACHE


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Engine(CACHE / "project", environment=dict(os.environ)) as stack:
        ready = asyncio.create_task(stack.ready())
        await asyncio.wait({ready, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            await ready
            for name, service in stack.services.items():
                print(f"{name:18} {'running' if service.running else 'done'}")
            print(f"Temporal {stack.published('temporal', 7233)}, web UI http://{stack.published('temporal-ui', 8080)}")
            print(f"logs and volumes are in {stack.state}; Ctrl-C stops it", flush=True)
            await stop.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (StackError, LookupError, FileNotFoundError) as e:
        sys.exit(f"error: {e}")
