"""Search attributes and memos, defined once. `hostler setup` registers the attributes; workflows write both, and the
command line reads them."""

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

MEMO_CREATED = "created"
"""When the machine was applied: visibility only knows the start of the latest run."""
MEMO_OWNERS = "owners"
"""The memo of a cluster: for each Account.key the account that its VMs are in, in the cloud's own words."""
