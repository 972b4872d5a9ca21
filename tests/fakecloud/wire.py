"""The made-up cloud's wire protocol: a POST of JSON for each operation."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import asdict, fields
from typing import Any

from fakecloud.api import FakeError, NoAnswer, Thing

_FIELDS = {field.name for field in fields(Thing)}


def encoded(value: Any) -> str:
    return json.dumps(value, default=asdict)


def decoded(text: str | bytes) -> Any:
    return json.loads(text, object_hook=lambda found: Thing(**found) if found.keys() == _FIELDS else found)


class Remote:
    """The cloud at an address, with the same `call` as the cloud itself."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def call(self, operation: str, credentials: str, timeout: float, **parameters: Any) -> Any:
        """Makes a call. Raises FakeError, NoAnswer."""
        body = encoded(parameters).encode()
        request = urllib.request.Request(f"{self._endpoint}/{operation}", body, {"Authorization": credentials})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return decoded(answer.read())
        except urllib.error.HTTPError as e:
            raise FakeError(**json.load(e)) from None
        except OSError as e:
            raise NoAnswer(str(e)) from None
