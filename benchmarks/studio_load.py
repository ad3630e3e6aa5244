"""Does the studio keep answering under thousands of connections, slow and hostile clients, and does its memory return?

The studio runs in a separate process, as ``picaset studio`` does. Expected: a page in well under a second in every
phase, silent clients disconnected within some 20 seconds, and memory that does not grow with the second round of the
same load. Reported: the median time of 20 pages in each phase, and the memory of the server.

    python -m benchmarks.studio_load
    python -m benchmarks.studio_load --connections 10000 --slow 2000

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import statistics
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.measure import record
from benchmarks.studio import running_studio

REQUEST_SECONDS = 20.0
"""Time that the studio gives a client to send its request."""


def connect(address: str, count: int, start: bytes = b"") -> list[socket.socket]:
    """Open connections, and send the beginning of a request on each."""
    port = urlsplit(address).port
    sockets = list[socket.socket]()
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port), timeout=120)
        if start:
            client.sendall(start)
        sockets.append(client)
    return sockets


def close(sockets: list[socket.socket]) -> None:
    for client in sockets:
        client.close()


def count_open(sockets: list[socket.socket]) -> int:
    """Return how many connections the server has not closed."""
    still = 0
    for client in sockets:
        client.setblocking(False)
        try:
            still += bool(client.recv(1 << 16))
        except BlockingIOError:
            still += 1
        except OSError:
            pass
    return still


def ask(address: str, request: bytes) -> tuple[int, float]:
    """Send a raw request; return the status of the response and the seconds until it came."""
    begun = time.perf_counter()
    (client,) = connect(address, 1)
    with contextlib.closing(client):
        # A server that refuses a request by its header need not read the rest of it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        answer = client.recv(1 << 16)
    return int(answer.split()[1]) if answer else 0, time.perf_counter() - begun


def get(address: str, *headers: str, host: str = "", path: str = "/") -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: {host or urlsplit(address).netloc}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(address: str, body: bytes, *headers: str) -> bytes:
    lines = ["POST /api/cluster/fit HTTP/1.1", f"Host: {urlsplit(address).netloc}", "Connection: close"]
    return ("\r\n".join([*lines, "Content-Type: application/json", *headers]) + "\r\n\r\n").encode() + body


def fit(address: str, method: str) -> tuple[int, float]:
    body = json.dumps({"method": method, "points": [[x / 7, x % 5] for x in range(60)]}).encode()
    return ask(address, post(address, body, f"Content-Length: {len(body)}"))


def memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def listening_process(address: str) -> int:
    """Return the process of this one's children that listens at the address."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return next(int(child) for child in children if b"studio" in Path(f"/proc/{child}/cmdline").read_bytes())


def kill_workers(process: int) -> int:
    """Kill the processes of the studio that fit by other methods; return their number."""
    children = [
        child for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    workers = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    return len(workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000, help="number of silent connections")
    parser.add_argument("--slow", type=int, default=2000, help="number of clients that send half of a request")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = list[dict[str, object]]()
    print(f"{'phase':<52} {'page ms':>8} {'memory MB':>10}")
    with running_studio() as address:
        process = listening_process(address)

        def phase(name: str, **more: object) -> None:
            answers = [ask(address, get(address)) for _ in range(20)]
            assert all(status == 200 for status, _ in answers), name
            milliseconds = 1e3 * statistics.median(seconds for _, seconds in answers)
            rows.append({"phase": name, "page_milliseconds": milliseconds, "megabytes": memory(process), **more})
            print(f"{name:<52} {milliseconds:8.1f} {rows[-1]['megabytes']:10.0f}  {more or ''}", flush=True)

        time.sleep(10)  # it loads its networks
        for method in ("picaso", "scikit-learn"):
            assert any(fit(address, method)[0] == 200 for _ in range(10)), method  # the first may wait for its process
        phase("at rest")
        for turn in ("", ", again"):
            silent = connect(address, arguments.connections)
            phase(f"{arguments.connections} silent connections{turn}")
            half = connect(address, arguments.slow // 2, get(address)[:-20])
            body = connect(address, arguments.slow // 2, post(address, b'{"method"', "Content-Length: 500000"))
            phase(f"and {arguments.slow} that sent half of a request{turn}")
            time.sleep(REQUEST_SECONDS + 5)
            phase(f"{REQUEST_SECONDS + 5:.0f} s later{turn}", still_open=count_open([*silent, *half, *body]))
            close([*silent, *half, *body])
        reading = connect(address, arguments.slow, get(address, path="/static/uplot/uPlot.esm.js"))
        phase(f"{arguments.slow} that ask and do not read")
        close(reading)
        chunked = post(address, b"5\r\n[[[[[\r\n" * 1000, "Transfer-Encoding: chunked")
        refused = {
            "oversize body": ask(address, post(address, b"[" * 3_000_000, "Content-Length: 3000000"))[0],
            "chunked body": ask(address, chunked)[0],
            "foreign host": ask(address, get(address, host="evil.example"))[0],
            "foreign origin": ask(address, get(address, "Origin: http://evil.example"))[0],
            "origin null": ask(address, get(address, "Origin: null"))[0],
            "no HTTP": ask(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")[0],
        }
        phase("after refused requests", **refused)
        killed = kill_workers(process)
        statuses = [fit(address, "scikit-learn")[0]]
        while statuses[-1] != 200 and len(statuses) < 10:
            statuses.append(fit(address, "scikit-learn")[0])
        phase("after its workers were killed", killed=killed, statuses=statuses)
    record("studio_load", rows, {})


if __name__ == "__main__":
    main()
