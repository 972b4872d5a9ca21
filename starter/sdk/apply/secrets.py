"""The Secrets of one run of `apply`: those that it writes, and those that its classes will miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resources.machine.manifest import USER_DATA
from resources.manifests import Loaded, Secret
from resources.settings import Settings
from starter.sdk.apply.steps import ApplyStep
from starter.sdk.results import Applied, Verb
from starter.sdk.secrets import CannotLook, Looked, look, needed, odd

if TYPE_CHECKING:
    from starter.sdk.apply.sources import SecretSource


@dataclass(frozen=True)
class SecretPlanner:
    """Compares Secrets with those in the source of Secrets."""

    _settings: Settings

    async def steps(self, secrets: Sequence[Secret]) -> list[ApplyStep]:
        if not secrets:
            return []
        from starter.sdk.apply.sources import open_source  # the Kubernetes client takes a second to import

        async with open_source(self._settings) as source:
            return [await self._step(source, s) for s in secrets]

    async def missing(self, loaded: Loaded) -> list[str]:
        """The Secrets that a class of these files names, and that are neither in the source nor in the files; and what
        looks wrong with the user data in them."""
        given = {(s.metadata.namespace, s.metadata.name): s.plain() for s in loaded.secrets}
        users = {one: of.metadata.name for of in loaded.classes for one in needed(self._settings, of)}
        wanted = [one for one in users if (one.namespace, one.name) not in given]
        found = {
            one: f"in these files has no key {one.key!r}"
            for one in users.keys() - wanted
            if one.key and one.key not in given[one.namespace, one.name]
        }
        there = [one for one in users if one not in wanted]
        doubtful = {one: words for one in there if (words := odd(one, given[one.namespace, one.name]))}
        try:
            looked = await look(self._settings, wanted) if wanted else Looked({}, {})
        except CannotLook as e:
            names = ", ".join(sorted({str(one) for one in wanted}))
            lines = [] if e.by_design else [f"could not look whether {names} exists: {e}"]
        else:
            found, doubtful, lines = found | looked.missing, doubtful | looked.odd, []
        lines += [
            f"machineclass {users[one]}: {one} {what}: its machines wait for it (CredentialsMissing)"
            for one, what in found.items()
        ]
        return lines + [f"machineclass {users[one]}: {one}: {USER_DATA}: {what}" for one, what in doubtful.items()]

    async def _step(self, source: SecretSource, secret: Secret) -> ApplyStep:
        from starter.sdk.apply.sources import open_source

        verb = await source.compare(secret)
        step = ApplyStep("secret", secret.metadata.name, verb)

        async def run() -> Applied:
            async with open_source(self._settings) as opened:
                return step.told(verb=await opened.write(secret))

        return step if verb is Verb.UNCHANGED else ApplyStep(step.kind, step.name, verb, run=run)
