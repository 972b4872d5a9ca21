#!/bin/sh
# Writes a kubeconfig with a fresh token of a service account; run it again, by a timer, before the token ends.
#
#     KUBECONFIG=admin.kubeconfig deploy/rbac/kubeconfig.sh hostler-nodes config/prod.kubeconfig [24h]
#
# It needs kubectl, and the right to create serviceaccounts/token in the namespace hostler. The file replaces the former
# one as a whole and keeps its owner and mode; a new one is the caller's alone. Workers read it again every minute.
set -eu

account=$1 file=$2 duration=${3:-24h}
of_cluster() {
	kubectl config view --raw --minify --flatten --output "jsonpath={.clusters[0].cluster.$1}"
}
server=$(of_cluster server)
authority=$(of_cluster certificate-authority-data)
token=$(kubectl create token "$account" --namespace hostler --duration "$duration")

umask 077
trap 'rm -f "$file.new"' EXIT
if [ -e "$file" ]; then cp -p "$file" "$file.new"; fi
cat >"$file.new" <<END
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "$server", certificate-authority-data: "$authority"}}]
users: [{name: $account, user: {token: "$token"}}]
contexts: [{name: $account, context: {cluster: cluster, user: $account}}]
current-context: $account
END
mv "$file.new" "$file"
