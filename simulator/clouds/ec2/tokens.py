"""ClientToken of RunInstances: what makes a repeated launch the same launch.

EC2 user guide, "Ensuring idempotency", and what was seen from the real service: a failed launch has already bound its
token to its parameters (ubicloud/ubicloud#5898), and since 2025 the token of a terminated instance is refused
(boto/boto3#4406). Tokens are an account's and regional here, and are kept for the life of the simulator.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel

from simulator.clouds.ec2.context import Context
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.wire import Params

NOT_COMPARED = frozenset({"ClientToken", "DryRun"})


class Launch(BaseModel):
    """What a token is bound to."""

    digest: str
    """SHA-256 of the parameters."""
    instance_ids: list[str] = []
    """Empty as long as no launch with it has succeeded."""


class ClientTokens:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.launches: dict[str, Launch] = {}
        """Launches by account and token."""

    def bind(self, params: Params) -> Launch | None:
        """The launch that this call is or repeats; None for a call without a token.

        Raises IdempotentParameterMismatch when the token came with other parameters before.
        """
        token = params.get("ClientToken")
        if not token:
            return None
        launch = self.launches.setdefault(self._key(token), Launch(digest=_digest(params)))
        if launch.digest != _digest(params):
            raise Ec2Error(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        return launch

    def bind_failed(self, params: Params) -> None:
        """A launch that fails before anything is looked at binds its token all the same."""
        token = params.get("ClientToken")
        if token:
            self.launches.setdefault(self._key(token), Launch(digest=_digest(params)))

    def _key(self, token: str) -> str:
        return f"{self._context.account_id}/{token}"


def _digest(params: Params) -> str:
    compared = {k: v for k, v in params.items() if k not in NOT_COMPARED}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()
