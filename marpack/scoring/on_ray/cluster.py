"""The cluster: found or started, how many actors it has room for, and what its loss means."""

import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import ray.data
from msgspec import Struct

from marpack.errors import ClusterError, UsageError, first_line

RETRIES = 5  # of a part whose actor died or cannot be reached
_STORE = 128 << 20  # bytes of the object store of a cluster started here: figures are all that goes through it
_CONNECT_SECONDS = 5.0
_GO_ON = "parts that are whole are kept: the same command with --resume goes on"


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """Which cluster scores, and what each actor has of it."""

    address: str | None = None  # HOST:PORT, or "auto" for the one that this machine belongs to; None: started here
    actors: int | None = None  # None: as many as there is room for
    cpus: int = 1  # of an actor
    gpu: bool | None = None  # whether an actor has one; None: if the cluster does


class ActorRoom(Struct, frozen=True):
    """How many actors there are, and what each has."""

    actors: int
    cpus: int  # of each
    gpus: int


def room_for(cluster: ClusterOptions, parts: int) -> ActorRoom:
    """Return how many actors there may be; raises UsageError where some would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpu = any(node.get("GPU") for node in nodes) if cluster.gpu is None else cluster.gpu
    each = {"CPU": cluster.cpus} | ({"GPU": 1} if has_gpu else {})
    needs = " and ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in each.items())
    most = sum(_fitting(each, node) for node in nodes)
    if not most:
        raise UsageError(f"no node of the cluster has {needs} for an actor", hint="--workers and --device ask for them")
    if cluster.actors is None:
        actors = min(most, max(1, _fitting(each, ray.available_resources())))
    elif cluster.actors <= most:
        actors = cluster.actors
    else:
        what = f"the cluster has room for {most} actors of {needs} each: others would wait for ever"
        raise UsageError(what, where=f"--actors {cluster.actors}", hint="ask for fewer, or add nodes first")
    return ActorRoom(min(actors, parts), cluster.cpus, int(has_gpu))


def _fitting(each: dict[str, int], resources: dict[str, float]) -> int:
    return min(int(resources.get(name, 0) // count) for name, count in each.items())


@contextmanager
def connected(cluster: ClusterOptions) -> Iterator[None]:
    """Hold on to a cluster, or start one on this machine, which ends with the block."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    _quieten()
    try:
        _connect(cluster.address)
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own in place of the command's
        yield
    except ray.exceptions.RayActorError as error:
        what = f"a part was asked for {RETRIES + 1} times, and each time its actor died or could not be reached"
        raise ClusterError(
            what, hint=f"look at the nodes' memory and at Ray's logs; {_GO_ON}", code="actor-lost"
        ) from error
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray has failed: {_last_line(error)}", hint=f"look at Ray's logs; {_GO_ON}") from error
    finally:
        ray.shutdown()


def _last_line(error: Exception) -> str:
    """Return what an error says; Ray's have the traceback of another process before it."""
    return first_line(Exception(str(error).strip().rpartition("\n")[2])) if str(error) else type(error).__name__


def _quieten() -> None:
    """Keep what Ray says about itself out of the terminal; its log files have it."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL + 1)


def _connect(address: str | None) -> None:
    """Find a cluster or start one; raises UsageError where none answers."""
    start = {"include_dashboard": False, "object_store_memory": _STORE} if address is None else {}
    try:
        _check_address(address)
        ray.init(address or "local", log_to_driver=False, logging_level=logging.CRITICAL, **start)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        if address is None:
            raise ClusterError(f"Ray cannot be started on this machine: {first_line(error)}") from error
        hint = "name the HOST:PORT of a head node; without --address Ray is started on this machine"
        raise UsageError(
            f"no Ray cluster answers there: {first_line(error)}", where=f"--address {address}", hint=hint
        ) from error


def _check_address(address: str | None) -> None:
    """Raise OSError where nothing listens at an address, which Ray takes minutes for."""
    if address is None or address == "auto":
        return
    if "://" in address:
        what = "Ray's client mode is not supported, for parts are planned and counted where the output folder is"
        hint = "start marpack on a node of the cluster with --address auto, or name its HOST:PORT"
        raise UsageError(what, where=f"--address {address}", hint=hint)
    host, _, port = address.rpartition(":")
    if port.isdecimal() and host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
