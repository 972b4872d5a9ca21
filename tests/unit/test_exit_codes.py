"""What an API server's error ends a command with."""

from __future__ import annotations

import pytest

from activities.kube.client import Kube, KubeError
from resources.settings import ClusterSettings, Settings
from starter.sdk.errors import HostlerError
from starter.sdk.kube import explained


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (0, 3, "does not answer: m"),
        (500, 3, "answers with errors: 500 R: m"),
        (503, 3, "answers with errors: 503 R: m"),
        (403, 1, "cluster c: 403 R: m"),
        (429, 1, "cluster c: 429 R: m"),
    ],
)
def test_a_server_that_is_down_is_not_one_that_refuses(status: int, code: int, words: str) -> None:
    kube = Kube.of(Settings(clusters={"c": ClusterSettings()}), "c")
    with pytest.raises(HostlerError) as said, explained(kube):
        raise KubeError(status, "R", "m")
    assert (said.value.exit_code, words in str(said.value)) == (code, True), said.value
