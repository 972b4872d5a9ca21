"""What is said of a manifest, in lines for people, and how a part of it is judged whose fields depend on the cloud."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from resources.base import NAME_MOST, cut, fault_words, few
from resources.clouds import PROVIDERS, Provider, ProviderSpec, UnknownProvider, provider_of
from resources.partial import Partial, readable
from resources.typed import mistyped
from resources.unknown import ignored_fields, unknown_fields

ERROR_MOST = 500
"""The most characters of one error."""
ERRORS_SHOWN = 20


@dataclass
class Judged:
    """One manifest's lines for people, each with file, document and path."""

    errors: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def lines_of(where: str, found: Iterable[str]) -> list[str]:
    return [shown(f"{where}: {words}", ERROR_MOST) for words in found]


def shown(text: str, most: int) -> str:
    """The text as part of a message: bounded, and without characters that do not belong in a line."""
    return cut(text if text.isprintable() else repr(text)[1:-1], most)


def explain(error: ValidationError, where: str, prefix: str = "", known: Collection[str] = ()) -> list[str]:
    """One line per wrong field, but for those of which it is known. The input is never quoted: it may be a secret."""
    lines = []
    for e in error.errors(include_url=False):
        steps = (f"[{p}]" if isinstance(p, int) else f".{shown(p, NAME_MOST)}" for p in e["loc"])
        path = "".join(steps).lstrip(".")
        if path in known:
            continue
        message = shown(fault_words(e["type"], e["msg"]), ERROR_MOST)
        if e["type"] == "string_type" and isinstance(e["input"], bool | int | float):
            what = "true or false" if isinstance(e["input"], bool) else "a number"
            message += f"; YAML reads it as {what}: put it in quotes"
        if e["type"] == "missing" and path == "provider":
            message += f"; name the cloud, there are drivers for {', '.join(sorted(PROVIDERS))}: `provider: …`"
        lines.append(f"{where}: {prefix}{path}: {message}" if path else f"{where}: {prefix.rstrip('.')} {message}")
    return few(lines, ERRORS_SHOWN)


def known_provider(name: Any, where: str, judged: Judged) -> Provider | None:
    """The cloud; None where the model, or a line of this function, says what is wrong."""
    try:
        return provider_of(name) if isinstance(name, str) else None
    except UnknownProvider as e:
        judged.errors += lines_of(where, [str(e)])
        return None


def judge_document(model: type[BaseModel], given: dict[str, Any], prefix: str, where: str, judged: Judged) -> Partial:
    """Judges a part of a manifest whose model another part names. As much of it as can be read."""
    judged.unknown += lines_of(where, unknown_fields(model, given, prefix))
    judged.warnings += lines_of(where, ignored_fields(model, given, prefix))
    types = dict(mistyped(model, given))
    judged.errors += lines_of(where, (f"{prefix}{path}: {words}" for path, words in types.items()))
    try:
        model.model_validate(given)
    except ValidationError as e:
        judged.errors += explain(e, where, prefix, types)
    return readable(model, given)


def judge_provider_spec(name: Any, given: Any, where: str, judged: Judged) -> None:
    """A class's `provider` and `providerSpec`."""
    provider = known_provider(name, where, judged) if isinstance(given, dict) else None
    if provider is None:
        return  # the model says so
    read = judge_document(provider.spec, given, "providerSpec.", where, judged)
    if not isinstance(spec := read.model, ProviderSpec):
        return
    wrong = (
        f"providerSpec.{path}: {words}" for path, words in (*spec.mistakes(), *spec.crowding()) if read.judges(path)
    )
    judged.errors += lines_of(where, wrong)
    judged.warnings += lines_of(where, (f"providerSpec.{path}: {advice}" for path, advice in spec.deprecations()))
