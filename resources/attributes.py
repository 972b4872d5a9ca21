"""Search attributes, defined once: registered by `hostler setup`, written by workflows, read by the command line."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

CLUSTER = SearchAttributeKey.for_keyword("HostlerCluster")
POOL = SearchAttributeKey.for_keyword("HostlerPool")
PHASE = SearchAttributeKey.for_keyword("HostlerPhase")
REASON = SearchAttributeKey.for_keyword("HostlerReason")
CLASS = SearchAttributeKey.for_keyword("HostlerClass")
NODE = SearchAttributeKey.for_keyword("HostlerNode")
PROVIDER_ID = SearchAttributeKey.for_keyword("HostlerProviderID")
PRESERVED_UNTIL = SearchAttributeKey.for_datetime("HostlerPreservedUntil")
DEADLINE = SearchAttributeKey.for_datetime("HostlerDeadline")

KEYWORDS = (CLUSTER, POOL, PHASE, REASON, CLASS, NODE, PROVIDER_ID)
DATETIMES = (PRESERVED_UNTIL, DEADLINE)
ALL = (*KEYWORDS, *DATETIMES)
