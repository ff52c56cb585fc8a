"""Clients that hold connections and hardly use them: python -m benchmarks.slow_clients PORT MODEL COUNT.

A third is silent, a third sends a head byte by byte, a third a body; whoever is closed comes back. A line is printed
once all are connected.
"""

import asyncio
import sys
from contextlib import suppress

from benchmarks.servers import HOST

_PAUSE = 1.0  # seconds between two bytes


async def hold(port: int, begin: bytes, drip: bytes, connected: asyncio.Semaphore) -> None:
    first = True
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, port)
            if first:
                connected.release()
                first = False
            writer.write(begin)
            while not reader.at_eof():
                writer.write(drip)
                await writer.drain()
                await asyncio.sleep(_PAUSE)
            writer.close()
        await asyncio.sleep(_PAUSE)


async def main(port: int, model: str, count: int) -> None:
    line = f"POST /predictions/{model} HTTP/1.1\r\nHost: {HOST}\r\n".encode()
    kinds = ((b"", b""), (line + b"x-slow: ", b"x"), (line + b"Content-Length: 1000000\r\n\r\n", b"x"))
    connected = asyncio.Semaphore(0)
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(hold(port, *kinds[number % 3], connected)))
        if number % 50 == 49:
            await asyncio.sleep(0.05)  # all at once would overflow any backlog
    for _ in range(count):
        await connected.acquire()
    print("connected", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
