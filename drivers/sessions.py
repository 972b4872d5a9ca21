"""What a driver keeps from call to call: a session for each set of credentials, and what need not be asked again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from drivers.errors import DriverError
from resources.endpoints import in_clear
from resources.errors import ErrorClass

MAX_SESSIONS = 64
"""A cloud's clients take some megabytes; the least recently used ones go first."""


def check_endpoint(endpoint: str, where: str) -> str:
    """The endpoint. Raises DriverError where credentials, or the bootstrap token in user data, would be sent in the
    clear. `where`: what sets it, in words."""
    try:
        unsafe = in_clear(endpoint)
    except ValueError:  # no URL at all
        unsafe = True
    if unsafe:
        raise DriverError(
            ErrorClass.AUTH,
            f"the endpoint {endpoint} is not https, and credentials would be sent unencrypted: correct it in {where} "
            "(http:// is taken on loopback only)",
        )
    return endpoint


C = TypeVar("C")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class AccountSession(Generic[C]):
    """The clients of one set of credentials. Thread-safe, as the SDKs' clients are.

    `C` is the connection: clients with the credentials as they are now. A new connection has read them again.
    """

    REFUSED: ClassVar[frozenset[str]]
    """Codes that say that the credentials are not valid (any longer), rather than that they do not allow something."""
    FAILURES: ClassVar[tuple[type[Exception], ...]]
    """What the SDK raises for a call that fails."""

    def __init__(self, connect: Callable[[], C], *, hidden: Sequence[str] = (), fixed: bool = False) -> None:
        """`hidden`: values that no error may quote. `fixed`: a new connection would have the same credentials."""
        self._connect = connect
        self._hidden = tuple(hidden)
        self._fixed = fixed
        self._lock = threading.Lock()
        self._connection = connect()

    def translated(self, operation: str, error: Exception, hide: Sequence[str]) -> DriverError:
        """What a failure of the SDK is to us."""
        raise NotImplementedError

    def ask(self, operation: str, ask: Callable[[C], T], hide: Sequence[str] = (), renew: bool = True) -> T:
        """Asks, and where the credentials are refused reads them again, once: a token may have been revoked before its
        time, a file rewritten. A call that is refused has changed nothing. Raises DriverError.

        `renew` False: no other credentials than these, even if they are refused just now.
        """
        used = self._connection
        try:
            return self._once(operation, ask, used, hide)
        except DriverError as e:
            if not renew or self._fixed or e.provider_code not in self.REFUSED:
                raise
        with self._lock:
            if self._connection is used:
                self._connection = self._connect()
        return self._once(operation, ask, self._connection, hide)

    def _once(self, operation: str, ask: Callable[[C], T], use: C, hide: Sequence[str]) -> T:
        failure: DriverError
        try:
            return ask(use)
        except self.FAILURES as e:
            failure = self.translated(operation, e, (*self._hidden, *hide))
        # Raised out here, where it has neither cause nor context: an SDK's exceptions hold the request.
        raise failure


class Remembered(Generic[K, V]):
    """A bounded table; what was put first is forgotten first. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._table: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._table.get(key)

    def put(self, key: K, value: V | None) -> None:
        """None: it is forgotten."""
        with self._lock:
            self._table.pop(key, None)
            if value is not None:
                self._add(key, value)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The value, made where there is none; using it counts as putting it. Making one takes long: a second thread
        waits for it instead of making another."""
        with self._lock:
            value = self._table.pop(key) if key in self._table else make()
            self._add(key, value)
            return value

    def _add(self, key: K, value: V) -> None:
        self._table[key] = value
        while len(self._table) > self._most:
            self._table.popitem(last=False)
