from __future__ import annotations
import pytest
import flows_pool
for name in [n for n in flows_pool.POOLS if n != "pool with one slot"]:
    del flows_pool.POOLS[name]
from test_matrix_pool import FLOWS, test_matrix  # noqa
