"""The cloud account for which an answer is true.

A driver's "not found" is about the account that the credentials open. Once a Secret has been exchanged for one of
another account, no VM is found there, yet none is gone. So "not found" is passed on only when the credentials open the
account that the VM was made in; otherwise it becomes WrongAccount, which waits like every refusal of credentials.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from pydantic import SecretStr

from drivers.base import DeleteMachineResponse, Driver, Evidence, GetAccountRequest
from drivers.errors import DriverError, WrongAccount
from resources.errors import ErrorClass
from resources.machine.manifest import SecretRef

T = TypeVar("T")


class Authorized(Protocol):
    """A request that carries credentials."""

    @property
    def provider_spec(self) -> dict[str, Any]: ...
    @property
    def secret(self) -> Mapping[str, SecretStr]: ...


A = TypeVar("A", bound=Authorized)
Blocking = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]
"""Deps.caller"""


class Cloud:
    """Calls of one driver with the credentials of one Secret.

    `account_id`: where the VM in question was made; "" when nobody knows, or nothing was made yet. `vm`: what messages
    call it.
    """

    def __init__(
        self, driver: Driver, blocking: Blocking, secret_ref: SecretRef, account_id: str = "", vm: str = ""
    ) -> None:
        self.driver = driver
        self._blocking = blocking
        self._ref = secret_ref
        self._account_id = account_id
        self._vm = vm

    async def call(self, method: Callable[[A], T], request: Callable[[], Awaitable[A]]) -> T:
        """Makes one call. Refused credentials are read once more: their Secret may just have been rotated.

        Raises DriverError, WrongAccount instead of one of class not_found.
        """
        first = await request()
        try:
            return await self._once(method, first)
        except DriverError as e:
            if e.error_class is not ErrorClass.AUTH or isinstance(e, WrongAccount):
                raise
            again = await request()
            if again.secret == first.secret:
                raise
        return await self._once(method, again)

    async def once(self, method: Callable[[A], T], request: A) -> T:
        """Makes one call with these credentials and no others, whose "not found" is taken at its word. Raises
        DriverError."""
        answer: T = await self._blocking(method, request)
        return answer

    async def account(self, request: Authorized) -> str:
        """The account that a request's credentials open."""
        asked = GetAccountRequest(
            provider_spec=request.provider_spec,
            provider_id=getattr(request, "provider_id", None),
            secret=request.secret,
        )
        found: str = await self._blocking(self.driver.get_account, asked)
        return found

    async def prove(self, request: Authorized) -> None:
        """Raises WrongAccount unless the request's credentials open the account that the VM was made in."""
        if self._account_id:
            self.check(await self.account(request))

    def check(self, opened: str) -> None:
        """Raises WrongAccount where the credentials open another account."""
        if self._account_id in ("", opened):
            return
        made = f"{self._vm} was made in" if self._vm else "a create call for it went to"
        raise WrongAccount(
            f"the credentials of {self._ref.namespace}/{self._ref.name} open account {opened}, but {made} account "
            f"{self._account_id}: a VM that another account does not have is not gone. Give that Secret credentials "
            f"for account {self._account_id} again",
            opened,
        )

    def admit(self, opened: str, owner: str, cluster: str) -> None:
        """Raises WrongAccount where the cluster's VMs of this Secret are in another account (`owner`; "": there are
        none, or nobody knows): a VM made in this one would be where nobody looks."""
        if owner in ("", opened):
            return
        secret = f"{self._ref.namespace}/{self._ref.name}"
        raise WrongAccount(
            f"the credentials of {secret} open account {opened}, but the VMs that cluster {cluster} created with "
            f"this Secret are in account {owner}: none is created in account {opened}. Give that Secret credentials "
            f"for account {owner} again; for VMs in account {opened}, create a class with a new Secret of another "
            "name",
            opened,
        )

    async def _once(self, method: Callable[[A], T], request: A) -> T:
        try:
            answer = await self.once(method, request)
        except DriverError as e:
            if e.error_class is ErrorClass.NOT_FOUND:
                await self.prove(request)
            raise
        if isinstance(answer, DeleteMachineResponse) and answer.evidence is Evidence.NOT_FOUND:
            await self.prove(request)
        return answer
