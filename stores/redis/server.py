"""The server: one way to ask it something, what its errors mean to us, and what it promises.

Nothing is asked twice. When a connection breaks, whether a script has run is unknown, and whoever
asked is told so: redis-py would by itself send it again, up to ten times.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from redis import exceptions
from redis.asyncio import (
    BlockingConnectionPool,
    Connection,
    Redis,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from core import events
from core.errors import (
    ConfigError,
    StaleSnapshot,
    StoreCorrupt,
    StoreEmpty,
    StoreError,
    StoreUnavailable,
)
from stores.redis import scripts
from stores.redis.pack import pack
from stores.redis.place import Place
from stores.redis.scripts import Script

VERSION: Final = 1  # of the keys and what is in them
OLDEST: Final = 7  # version of Redis that is known to do
WAIT_SECONDS: Final = 10.0  # for a connection, and for an answer


class Server:
    """
    :param connections: how many at most
    """

    def __init__(self, place: Place, connections: int) -> None:
        self.where = place.where
        # All connections carry it as their name, so that others see whether we live.
        self.owner = uuid4().hex
        self.prefix = place.prefix
        self._place = place
        self._connections = connections
        self._client: Any = None
        self._calls: set[asyncio.Future[None]] = set()
        self._data = ""
        self._saves = 0
        # From then on scripts that write want the lock to be ours.
        self.locked = False
        self._read_only = True

    @property
    def name(self) -> str:
        return f"chinwag-{self.owner}"

    async def open(self, *, read_only: bool) -> bool:
        """
        :returns: whether nothing was stored there, so that it begins now
        :raises ConfigError: it must not be used: it deletes what it likes, or is a cluster
        :raises StoreCorrupt: of a newer chinwag
        :raises StoreEmpty: there is nothing to be read
        :raises StoreUnavailable: it cannot be reached
        """
        self._client = Redis.from_pool(self._pool())
        self._read_only = read_only
        await self._look_at_it()
        id = "" if read_only else uuid4().hex
        found = await self._ask(
            "EVAL", scripts.BEGIN.text, 1, f"{self.prefix}meta", self.prefix, id, VERSION
        )
        version, data, saves, *made = found
        if data is None:
            why = f"{self.where}: nothing is stored there yet"
            raise StoreEmpty(why, await self.weaknesses())
        if int(version) > VERSION:
            raise StoreCorrupt(
                f"{self.where}: what is stored has version {int(version)}, this chinwag knows up "
                f"to {VERSION}: update chinwag"
            )
        self._data, self._saves = data.decode(), int(saves)
        return bool(made)

    async def close(self) -> None:
        """What is under way is done first."""
        client, self._client = self._client, None
        assert client is not None
        while self._calls:
            await asyncio.wait(self._calls)
        if self.locked:
            self.locked = False
            words = (1, f"{self.prefix}lock", self.owner)
            # It ends by itself, too.
            with suppress(exceptions.RedisError, OSError):
                await client.execute_command("EVAL", scripts.LET_GO, *words)
        await client.aclose()

    def _pool(self) -> BlockingConnectionPool:
        arguments = dict(self._place.arguments)
        kind: type[Any] = Connection
        if "path" in arguments:
            kind = UnixDomainSocketConnection
        elif self.where.startswith("rediss:"):
            kind = SSLConnection
        return BlockingConnectionPool(
            connection_class=kind,
            max_connections=self._connections,
            timeout=WAIT_SECONDS,
            socket_timeout=WAIT_SECONDS,
            socket_connect_timeout=WAIT_SECONDS / 2,
            client_name=self.name,
            protocol=2,
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
            **arguments,
        )

    # ------------------------------------------------------------------ asking

    async def run(self, script: Script, data: bytes = b"", **given: object) -> list[Any]:
        """What the script answers.

        :param data: bytes that are not packed with the rest
        :raises StaleSnapshot: the script found another revision, and wrote nothing
        :raises StoreCorrupt: the server has other data than before, or some that is not ours
        :raises StoreUnavailable: it did not answer, so the outcome is unknown; or it may not write
        """
        if script.writes and self._read_only:
            raise StoreUnavailable(f"{self.where}: opened read-only")
        before = self._saves
        owner = self.owner if self.locked else ""
        words = (1, f"{self.prefix}meta", self.prefix, self._data, owner, pack(given), data)
        try:
            answer = await self._ask("EVALSHA", script.sha, *words)
        except _NotKnown:
            # It has not run. After this the server knows it.
            answer = await self._ask("EVAL", script.text, *words)
        return self._understood(answer, before)

    def _understood(self, answer: list[Any], before: int) -> list[Any]:
        """:param before: how many saves there had been when we asked"""
        kind, *rest = answer
        if kind == b"gone":
            raise StoreCorrupt(
                f"{self.where}: what was stored is gone: the server was emptied, or started anew "
                "without its data; stop the bot, and give the server its data back"
            )
        if kind == b"taken":
            raise StoreUnavailable(
                f"{self.where}: another chinwag has taken it over, so nothing is written here"
            )
        saves = int(rest[0])
        if saves >= before:
            self._saves = max(self._saves, saves)
        elif before <= self._saves:
            # Said once, by whoever hears of it first.
            events.trouble("store.lost", where=self.where, saves=self._saves - saves)
            self._saves = saves
        if kind == b"stale":
            raise StaleSnapshot("what is stored is not what was seen")
        return rest[1:]

    async def command(self, *words: str) -> Any:
        """
        :raises StoreUnavailable: it is not allowed, or the server did not answer
        """
        return await self._ask(*words)

    async def _ask(self, *words: object) -> Any:
        if self._client is None:
            raise StoreUnavailable(f"{self.where}: the store is not open")
        over = asyncio.get_running_loop().create_future()
        self._calls.add(over)
        try:
            return await self._client.execute_command(*words)
        except exceptions.NoScriptError:
            raise _NotKnown from None
        except (exceptions.RedisError, OSError) as error:
            raise self._store_error(error) from error
        finally:
            self._calls.discard(over)
            over.set_result(None)

    def _store_error(self, error: Exception) -> StoreError:
        why = str(error).strip().replace("\n", "; ") or type(error).__name__
        if why.startswith(_DAMAGED):
            return StoreCorrupt(f"{self.where}: what is stored is damaged, or not ours ({why})")
        return StoreUnavailable(f"{self.where}: {why}")

    # ------------------------------------------------------------------ what it promises

    async def information(self, section: str) -> dict[str, str]:
        found = await self._ask("INFO", section)
        return {str(name): str(value) for name, value in found.items()}

    async def _look_at_it(self) -> None:
        server = await self.information("server")
        version = server.get("redis_version", "0")
        if int(version.partition(".")[0]) < OLDEST:
            raise ConfigError(
                f"[store] url: {self.where} is Redis {version}: it must be {OLDEST} or newer"
            )
        if (await self.information("cluster")).get("cluster_enabled") == "1":
            raise ConfigError(
                f"[store] url: {self.where} is a node of a Redis Cluster: name a server that is "
                "not, for all that is stored must be changed together"
            )
        policy = (await self.information("memory")).get("maxmemory_policy", "")
        if policy.startswith("allkeys-"):
            raise ConfigError(f"[store] url: {self.where}: {EVICTS.format(policy)}")

    async def weaknesses(self) -> list[str]:
        """What we promise, and the server as it is set up does not. Empty: nothing."""
        if (await self.information("persistence")).get("aof_enabled") != "1":
            return [NO_FILE]
        value = await self.setting("appendfsync")
        if value is None:
            return [NOT_SAID]
        if value in FSYNC:
            return [FSYNC[value]]
        rewriting = await self.setting("no-appendfsync-on-rewrite")
        return [FSYNC_REWRITING] if rewriting == "yes" else []

    async def failures(self) -> list[str]:
        """What the server has not managed to do."""
        found = await self.information("persistence")
        return [why for name, why in FAILED.items() if found.get(name, "ok") != "ok"]

    async def setting(self, name: str) -> str | None:
        """None: the server does not tell."""
        try:
            found = await self._ask("CONFIG", "GET", name)
        except StoreUnavailable:
            return None
        return found[1].decode() if found else None


# A key of another kind, and what a script of ours could not make sense of.
_DAMAGED: Final = ("WRONGTYPE", "user_script:", "Error running script")

EVICTS: Final = (
    "maxmemory-policy is {}: when memory is short, the server would delete conversations; set it "
    "to noeviction"
)
FAILED: Final = {
    "aof_last_write_status": "the server could not write to its append-only file",
    "aof_last_bgrewrite_status": "the server could not write its append-only file anew",
    "rdb_last_bgsave_status": "the server could not write a snapshot of its data",
}
NO_FILE: Final = (
    "appendonly is no: a crash of the server loses what was said since its last snapshot of the "
    "data, which may be hours"
)
FSYNC: Final = {
    "everysec": "appendfsync is everysec: a power cut, or a crash of the server while its disk is "
    "slow, loses what was said in the last two seconds",
    "no": "appendfsync is no: a power cut loses what was said in the last half minute or longer",
}
FSYNC_REWRITING: Final = (
    "no-appendfsync-on-rewrite is yes: a power cut while the server writes its file anew loses "
    "what was said since that began"
)
NOT_SAID: Final = (
    "the server does not say its appendfsync: unless it is always, a power cut loses what was said "
    "last"
)


class _NotKnown(StoreError):
    """The server does not know the script yet."""
