"""Objects over the Kubernetes API: what Hostler, its kubelets and its controllers expect of any server."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from apiserver.simulated import (
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    KubeTarget,
    Obj,
    make_node,
    make_pod,
    node,
    pod,
    unique,
)
from kubernetes.aio.client import ApiClient, ApiException, CoordinationV1Api, CoreV1Api, V1Lease

SECRETS = "/api/v1/namespaces/default/secrets"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


# -- discovery ---------------------------------------------------------------------------------------------------------


async def test_discovery_names_groups_resources_and_the_eviction_subresource(kube: KubeTarget) -> None:
    groups = {g["name"] for g in (await kube.get("/apis"))["groups"]}
    assert {"apps", "policy", "coordination.k8s.io", "certificates.k8s.io", "apiextensions.k8s.io"} <= groups
    core = {r["name"]: r for r in (await kube.get("/api/v1"))["resources"]}
    assert core["pods/eviction"]["group"] == "policy"
    assert core["pods/eviction"]["kind"] == "Eviction"
    assert core["nodes"]["namespaced"] is False
    assert "watch" in core["nodes"]["verbs"]
    assert (await kube.get("/version"))["major"] == "1"


async def test_health_is_ok_and_unknown_paths_are_404(kube: KubeTarget) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await kube.get(path) == "ok"
    for path in ("/apis/nope.example.com/v1/foos", "/api/v1/foos", "/apis/nope.example.com", "/nope"):
        assert (await kube.call("GET", path)).status == 404, path


async def test_the_system_namespaces_exist(kube: KubeTarget, kube_client: ApiClient) -> None:
    names = {n.metadata.name for n in (await CoreV1Api(kube_client).list_namespace()).items}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names


# -- create, get, list -------------------------------------------------------------------------------------------------


async def test_create_gives_uid_version_and_time(kube: KubeTarget, kube_client: ApiClient) -> None:
    name = unique("n")
    created = await CoreV1Api(kube_client).create_node(node(name))
    assert created.metadata.uid
    assert int(created.metadata.resource_version) > 0
    assert abs((datetime.now(UTC) - created.metadata.creation_timestamp).total_seconds()) < 60
    assert (await CoreV1Api(kube_client).read_node(name)).metadata.uid == created.metadata.uid


async def test_create_refuses_what_exists_and_what_is_not_valid(kube: KubeTarget) -> None:
    name = await make_node(kube)
    assert (await kube.call("POST", NODES, node(name))).reason == "409 AlreadyExists"
    bad_name = await kube.call("POST", NODES, node("Bad_Name"))
    assert bad_name.reason == "422 Invalid"
    assert 'Node "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name"' in bad_name.message
    bad_label = await kube.call("POST", NODES, node(unique("n"), label="no spaces"))
    assert bad_label.reason == "422 Invalid"
    assert "metadata.labels" in bad_label.message
    nameless = node("x")
    del nameless["metadata"]["name"]
    assert (await kube.call("POST", NODES, nameless)).reason == "422 Invalid"
    other_kind = {**node(unique("n")), "kind": "Pod"}
    assert (await kube.call("POST", NODES, other_kind)).reason == "400 BadRequest"
    assert (await kube.call("POST", NODES, b"{")).reason == "400 BadRequest"


async def test_a_missing_object_is_404_in_the_words_clients_know(kube: KubeTarget) -> None:
    name = unique("n")
    for method in ("GET", "DELETE"):
        answer = await kube.call(method, f"{NODES}/{name}")
        assert answer.reason == "404 NotFound"
        assert answer.message == f'nodes "{name}" not found'
        assert answer.body["details"] == {"name": name, "kind": "nodes"}
    assert (await kube.call("PUT", f"{NODES}/{name}", node(name))).reason == "404 NotFound"
    assert (await kube.call("PATCH", f"{NODES}/{name}", {}, content_type=MERGE)).reason == "404 NotFound"


async def test_generate_name_makes_a_new_name_every_time(kube: KubeTarget) -> None:
    body = pod("x")
    body["metadata"] = {"generateName": "gen-"}
    names = {(await kube.create(PODS, body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(n.startswith("gen-") and len(n) == 9 for n in names)


async def test_versions_are_global_and_grow(kube: KubeTarget) -> None:
    before = int((await kube.get(NODES))["metadata"]["resourceVersion"])
    created = await kube.create(NODES, node(unique("n")))
    after = int((await kube.get(NODES))["metadata"]["resourceVersion"])
    assert before < int(created["metadata"]["resourceVersion"]) <= after


async def test_items_of_a_list_carry_neither_kind_nor_api_version(kube: KubeTarget) -> None:
    group = unique("g")
    await make_node(kube, group=group)
    listed = await kube.get(NODES, labelSelector=f"group={group}")
    assert (listed["kind"], listed["apiVersion"]) == ("NodeList", "v1")
    assert len(listed["items"]) == 1
    assert "kind" not in listed["items"][0]


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("k=1", 1),
        ("k==1", 1),
        ("k!=1", 3),
        ("k in (1,2)", 2),
        ("k notin (1,2)", 2),
        ("e", 2),
        ("!e", 2),
        ("k=1,e", 1),
        ("k=nope", 0),
    ],
)
async def test_label_selectors(kube: KubeTarget, selector: str, count: int) -> None:
    group = unique("g")
    for labels in ({"k": "0"}, {"k": "1", "e": "y"}, {"k": "2", "e": "y"}, {}):
        await make_node(kube, group=group, **labels)
    found = await kube.get(NODES, labelSelector=f"group={group},{selector}")
    assert len(found["items"]) == count


async def test_field_selectors_of_pods(kube: KubeTarget) -> None:
    place = unique("n")
    first, second = await make_pod(kube, place), await make_pod(kube, place)
    await make_pod(kube, unique("n"))
    for selector, names in (
        (f"spec.nodeName={place}", {first, second}),
        (f"spec.nodeName={place},metadata.name={first}", {first}),
        (f"spec.nodeName={place},status.phase=Pending", {first, second}),
        (f"spec.nodeName={place},status.phase!=Pending", set()),
    ):
        found = await kube.get("/api/v1/pods", fieldSelector=selector)
        assert {p["metadata"]["name"] for p in found["items"]} == names, selector


async def test_an_unset_boolean_is_selected_as_false(kube: KubeTarget) -> None:
    group = unique("g")
    name = await make_node(kube, group=group)
    for value, names in (("false", [name]), ("true", [])):
        found = await kube.get(NODES, labelSelector=f"group={group}", fieldSelector=f"spec.unschedulable={value}")
        assert [n["metadata"]["name"] for n in found["items"]] == names


async def test_a_field_that_cannot_be_selected_by_is_400(kube: KubeTarget) -> None:
    answer = await kube.call("GET", "/api/v1/pods", fieldSelector="spec.foo=bar")
    assert answer.reason == "400 BadRequest"
    assert "field label not supported: spec.foo" in answer.message
    assert (await kube.call("GET", NODES, labelSelector="a=(b")).reason == "400 BadRequest"


async def test_pages_of_a_list_come_from_one_moment(kube: KubeTarget) -> None:
    group = unique("g")
    names = sorted([await make_node(kube, group=group) for _ in range(5)])
    query = {"labelSelector": f"group={group}", "limit": "2"}
    page = await kube.get(NODES, **query)
    version, seen = page["metadata"]["resourceVersion"], [n["metadata"]["name"] for n in page["items"]]
    await make_node(kube, group=group)
    await kube.delete(f"{NODES}/{names[4]}")
    while token := page["metadata"].get("continue"):
        page = await kube.get(NODES, **query, **{"continue": token})
        assert page["metadata"]["resourceVersion"] == version
        seen += [n["metadata"]["name"] for n in page["items"]]
    assert seen == names
    assert (await kube.call("GET", NODES, limit="2", **{"continue": "zzz"})).reason == "400 BadRequest"


# -- patch, update -----------------------------------------------------------------------------------------------------


async def test_merge_patch_sets_removes_and_replaces_lists(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube, x='1')}"
    patch = {"metadata": {"labels": {"x": None, "y": "2"}}, "spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}
    patched = await kube.patch(path, patch)
    assert "x" not in patched["metadata"]["labels"]
    assert patched["metadata"]["labels"]["y"] == "2"
    assert patched["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}]


async def test_strategic_merge_patch_merges_by_key_and_obeys_directives(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube)}/status"

    async def conditions(*entries: Obj) -> dict[str, str]:
        patched = await kube.patch(path, {"status": {"conditions": list(entries)}}, STRATEGIC)
        return {c["type"]: c["status"] for c in patched["status"]["conditions"]}

    assert await conditions({"type": "Ready", "status": "True"}) == {"Ready": "True"}
    both = await conditions({"type": "DiskPressure", "status": "False"})
    assert both == {"Ready": "True", "DiskPressure": "False"}
    assert await conditions({"$patch": "delete", "type": "DiskPressure"}) == {"Ready": "True"}


async def test_strategic_merge_patch_replaces_taints_as_a_whole(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube)}"
    patched = await kube.patch(path, {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, STRATEGIC)
    assert [t["key"] for t in patched["spec"]["taints"]] == ["b"]


async def test_json_patch_adds_removes_and_tests(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube, y='2')}"
    operations = [
        {"op": "test", "path": "/metadata/labels/y", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/y"},
        {"op": "add", "path": "/metadata/labels/example.com~1z", "value": "9"},
    ]
    assert (await kube.patch(path, operations, JSON_PATCH))["metadata"]["labels"] == {"example.com/z": "9"}
    failed = await kube.call("PATCH", path, operations, content_type=JSON_PATCH)
    assert failed.reason == "422 Invalid"
    assert (await kube.get(path))["metadata"]["labels"] == {"example.com/z": "9"}


async def test_a_stale_version_is_a_conflict(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube)}"
    old = await kube.get(path)
    await kube.patch(path, {"metadata": {"annotations": {"written": "in between"}}})
    old["metadata"]["labels"] = {"q": "1"}
    answer = await kube.call("PUT", path, old)
    assert answer.reason == "409 Conflict"
    assert "the object has been modified; please apply your changes to the latest version" in answer.message
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"q": "1"}}}
    assert (await kube.call("PATCH", path, patch, content_type=MERGE)).reason == "409 Conflict"
    assert "labels" not in (await kube.get(path))["metadata"]


async def test_a_wrong_uid_is_a_conflict(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube)}"
    current = await kube.get(path)
    current["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    assert (await kube.call("PUT", path, current)).reason == "409 Conflict"


async def test_an_update_that_changes_nothing_keeps_the_version(kube: KubeTarget, kube_client: ApiClient) -> None:
    name, core = await make_node(kube, r="1"), CoreV1Api(kube_client)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00+01:00"}
    await kube.patch(f"{NODES}/{name}/status", {"status": {"conditions": [ready]}}, STRATEGIC)
    read = await core.read_node(name)
    # The client writes times as +00:00 and not as Z: that must not count as a change.
    written = await core.replace_node_status(name, read)
    assert written.metadata.resource_version == read.metadata.resource_version
    written.metadata.labels["r"] = "2"
    changed = await core.replace_node(name, written)
    assert int(changed.metadata.resource_version) > int(read.metadata.resource_version)


async def test_empty_fields_vanish(kube: KubeTarget) -> None:
    path = f"{NODES}/{await make_node(kube, x='1')}"
    await kube.patch(path, {"spec": {"unschedulable": True}})
    patched = await kube.patch(path, {"spec": {"unschedulable": False, "taints": []}, "metadata": {"labels": {}}})
    assert "taints" not in patched["spec"]
    assert "unschedulable" not in patched["spec"]
    assert patched["metadata"]["labels"] == {"x": "1"}


async def test_status_and_the_rest_are_written_apart(kube: KubeTarget) -> None:
    name = await make_node(kube)
    main = await kube.patch(f"{NODES}/{name}", {"status": {"nodeInfo": {"kernelVersion": "hack"}}})
    assert main["status"]["nodeInfo"]["kernelVersion"] == ""
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    patch = {"spec": {"unschedulable": True}, "status": {"addresses": [address]}}
    status = await kube.patch(f"{NODES}/{name}/status", patch, STRATEGIC)
    assert status["status"]["addresses"] == [address]
    assert "unschedulable" not in status["spec"]


async def test_dry_run_persists_nothing(kube: KubeTarget) -> None:
    name = unique("n")
    assert (await kube.call("POST", NODES, node(name), dryRun="All")).status == 201
    assert (await kube.call("GET", f"{NODES}/{name}")).reason == "404 NotFound"
    await kube.create(NODES, node(name))
    assert (await kube.call("DELETE", f"{NODES}/{name}", dryRun="All")).status == 200
    dry = await kube.call(
        "PATCH", f"{NODES}/{name}", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE, dryRun="All"
    )
    assert dry.body["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in (await kube.get(f"{NODES}/{name}"))["metadata"]


# -- nodes -------------------------------------------------------------------------------------------------------------


async def test_a_new_node_gets_the_not_ready_taint(kube: KubeTarget) -> None:
    created = await kube.get(f"{NODES}/{await make_node(kube)}")
    taints = {(t["key"], t["effect"]) for t in created["spec"]["taints"]}
    assert taints == {("a", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoSchedule")}


async def test_a_provider_id_is_set_once(kube: KubeTarget) -> None:
    name = unique("n")
    body = node(name)
    del body["spec"]["providerID"]
    await kube.create(NODES, body)
    assert (await kube.patch(f"{NODES}/{name}", {"spec": {"providerID": "aws:///z/i-1"}}))["spec"]["providerID"]
    for other in ("aws:///z/i-2", None):
        answer = await kube.call("PATCH", f"{NODES}/{name}", {"spec": {"providerID": other}}, content_type=MERGE)
        assert answer.reason == "422 Invalid"
        assert "spec.providerID" in answer.message


@pytest.mark.parametrize(
    "taints",
    [
        [{"key": "a", "effect": "Nonsense"}],
        [{"key": "a"}],
        [{"key": "not a key", "effect": "NoSchedule"}],
        [{"key": "a", "effect": "NoSchedule", "value": "1"}, {"key": "a", "effect": "NoSchedule", "value": "2"}],
    ],
)
async def test_taints_are_validated(kube: KubeTarget, taints: list[Obj]) -> None:
    path = f"{NODES}/{await make_node(kube)}"
    answer = await kube.call("PATCH", path, {"spec": {"taints": taints}}, content_type=MERGE)
    assert answer.reason == "422 Invalid"
    assert "taints" in answer.message


# -- other kinds -------------------------------------------------------------------------------------------------------


async def test_secrets_turn_string_data_into_data_and_keep_their_type(kube: KubeTarget) -> None:
    name = unique("s")
    body = {"metadata": {"name": name}, "type": "example.com/kind", "stringData": {"a": "b"}}
    made = await kube.create(SECRETS, body)
    assert base64.b64decode(made["data"]["a"]) == b"b"
    assert "stringData" not in made
    for kind, count in (("example.com/kind", 1), ("Opaque", 0)):
        selector = f"type={kind},metadata.name={name}"
        assert len((await kube.get(SECRETS, fieldSelector=selector))["items"]) == count
    answer = await kube.call("PATCH", f"{SECRETS}/{name}", {"type": "Opaque"}, content_type=MERGE)
    assert answer.reason == "422 Invalid"
    assert answer.message.endswith("field is immutable")


async def test_a_lease_is_taken_over_under_its_version(kube: KubeTarget, kube_client: ApiClient) -> None:
    api, name = CoordinationV1Api(kube_client), unique("l")
    renewed = datetime.now(UTC).replace(microsecond=123456)
    made = await api.create_namespaced_lease(
        "default",
        V1Lease.model_validate(
            {
                "metadata": {"name": name},
                "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed},
            }
        ),
    )
    assert made.spec.renew_time == renewed
    mine, theirs = made.model_copy(deep=True), made.model_copy(deep=True)
    mine.spec.holder_identity = "mine"
    await api.replace_namespaced_lease(name, "default", mine)
    theirs.spec.holder_identity = "theirs"
    with pytest.raises(ApiException) as refused:
        await api.replace_namespaced_lease(name, "default", theirs)
    assert refused.value.status == 409


async def test_a_lease_time_without_six_decimals_is_refused(kube: KubeTarget) -> None:
    for text in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.123Z"):
        body = {"metadata": {"name": unique("l")}, "spec": {"renewTime": text}}
        answer = await kube.call("POST", LEASES, body)
        assert answer.reason == "400 BadRequest", text
        assert "cannot be handled as a Lease" in answer.message
    body = {"metadata": {"name": unique("l")}, "spec": {"renewTime": "2026-01-01T01:00:00.000000+01:00"}}
    assert (await kube.create(LEASES, body))["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


async def test_the_official_client_cannot_write_back_a_lease_of_a_whole_second(
    kube: KubeTarget, kube_client: ApiClient
) -> None:
    """It prints a time without microseconds without its fraction, which no server takes: kubelets never write one."""
    api = CoordinationV1Api(kube_client)

    async def lease(renewed: str) -> V1Lease:
        name = unique("l")
        await kube.create(LEASES, {"metadata": {"name": name}, "spec": {"renewTime": renewed}})
        return await api.read_namespaced_lease(name, "default")

    whole, other = await lease("2026-01-01T00:00:00.000000Z"), await lease("2026-01-01T00:00:00.000001Z")
    with pytest.raises(ApiException) as refused:
        await api.replace_namespaced_lease(whole.metadata.name, "default", whole)
    assert refused.value.status == 400
    assert (await api.replace_namespaced_lease(other.metadata.name, "default", other)).spec == other.spec


async def test_a_lease_is_created_by_put_and_updated_only_with_a_version(kube: KubeTarget) -> None:
    name = unique("l")
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"holderIdentity": "a"}}
    assert (await kube.call("PUT", f"{LEASES}/{name}", body)).status == 201
    answer = await kube.call("PUT", f"{LEASES}/{name}", body)
    assert answer.reason == "422 Invalid"
    assert "must be specified for an update" in answer.message


async def test_an_event_lies_where_its_object_lies(kube: KubeTarget) -> None:
    def event(**about: str) -> Obj:
        return {
            "metadata": {"generateName": "e-"},
            "involvedObject": {"kind": "Node", "name": "n", **about},
            "reason": "Test",
            "message": "m",
            "type": "Normal",
        }

    await kube.create(EVENTS, event())
    await kube.create(EVENTS, event(namespace="default"))
    answer = await kube.call("POST", EVENTS, event(namespace="kube-system"))
    assert answer.reason == "422 Invalid"
    assert "does not match event.namespace" in answer.message


# -- forms of an answer ------------------------------------------------------------------------------------------------


async def test_a_table_has_columns_and_the_metadata_of_its_rows(kube: KubeTarget) -> None:
    name = await make_node(kube)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = (await kube.call("GET", f"{NODES}/{name}", accept=accept)).ok()
    assert table["kind"] == "Table"
    columns = [c["name"] for c in table["columnDefinitions"] if c["priority"] == 0]
    assert columns == ["Name", "Status", "Roles", "Age", "Version"]
    row = table["rows"][0]
    assert row["cells"][:3] == [name, "Unknown", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


WORKLOAD = ["Containers*", "Images*", "Selector*"]


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        (NODES, ["Name", "Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*"]),
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message"]),
        ("/apis/apps/v1/deployments", ["Name", "Ready", "Up-to-date", "Available", "Age", *WORKLOAD]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age", *WORKLOAD]),
        (
            "/apis/apps/v1/daemonsets",
            ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", *WORKLOAD],
        ),
        (
            "/apis/policy/v1/poddisruptionbudgets",
            ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
        ),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"],
        ),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ["Name", "Created At"]),
    ],
)
async def test_tables_have_the_columns_that_kubectl_prints(kube: KubeTarget, path: str, columns: list[str]) -> None:
    """A star marks those of `-o wide`; of those only the first ones are named here."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = (await kube.call("GET", path, accept=accept)).ok()
    found = [c["name"] + "*" * (c["priority"] > 0) for c in table["columnDefinitions"]]
    assert found[: len(columns)] == columns
    assert all(name.endswith("*") for name in found[len(columns) :])


async def test_metadata_alone_can_be_asked_for(kube: KubeTarget) -> None:
    name = await make_node(kube)
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partial = (await kube.call("GET", f"{NODES}/{name}", accept=accept)).ok()
    assert (partial["kind"], partial["metadata"]["name"]) == ("PartialObjectMetadata", name)
    assert "spec" not in partial


async def test_a_caller_may_ask_what_it_may_do(kube: KubeTarget) -> None:
    spec = {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await kube.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert answer["status"]["allowed"] is True


async def test_a_caller_without_a_known_token_is_401(kube: KubeTarget) -> None:
    answer = await kube.call("GET", NODES, token="nobody-knows-this")
    assert answer.reason == "401 Unauthorized"
    assert answer.message == "Unauthorized"
