#!/bin/sh
# Makes Temporal's two databases and brings their schemas up to this version of the server. Safe to repeat.
set -eu
SQL_PASSWORD="$(cat "$SQL_PASSWORD_FILE")"
export SQL_PASSWORD

for schema in temporal visibility; do
    case "$schema" in
        temporal) export SQL_DATABASE=temporal ;;
        visibility) export SQL_DATABASE=temporal_visibility ;;
    esac
    temporal-sql-tool create # a database that exists stays
    temporal-sql-tool setup-schema -v 0.0 # so does a newer version
    temporal-sql-tool update-schema --schema-name "postgresql/v12/$schema"
done
