"""A published port: `python forward.py HOST PORT PID TARGET` listens here, and connects in the network of PID."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def serve(listener: socket.socket, address: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            to_target, from_target = await asyncio.open_connection(address, port)
            with contextlib.closing(from_target):
                await asyncio.gather(_copy(reader, from_target), _copy(to_target, writer))

    async with await asyncio.start_server(connected, sock=listener) as server:
        print("forwarding", flush=True)
        await server.serve_forever()


def main() -> None:
    host, port, pid, address, target = sys.argv[1:]
    listener = socket.create_server((host, int(port)))
    # A socket belongs to the network in which it was made: the listener stays here, what connects is made there.
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    asyncio.run(serve(listener, address, int(target)))


if __name__ == "__main__":
    main()
