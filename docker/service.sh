#!/usr/bin/env bash
# MLflow for a group, in containers: docs/how_to/service.md. Needs Docker, or podman with COMPOSE=podman-compose.
#
#   service.sh up                       start it, on http://127.0.0.1:5000; the first time build it, and make its secrets
#   service.sh user NAME                make a user, or give one a new password: docker/secrets/users/NAME.env
#   service.sh remove NAME              and nobody knows them any more; what they made stays
#   service.sh grant NAME EXPERIMENT P  P is READ, EDIT, MANAGE or NO_PERMISSIONS
#   service.sh backup FOLDER            the database and the artifacts, while it runs
#   service.sh restore FOLDER           into a service that has no runs yet
#   service.sh upgrade FOLDER           to this version's MLflow, after a backup into FOLDER
#   service.sh trainer ARGUMENTS        sweep.py in the trainer image, as the user me or SERVICE_USER=NAME
#   service.sh compose ARGUMENTS        what else: ps, logs, stop, down; down -v deletes the volumes, with all that they hold
set -euo pipefail
umask 077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
secrets=${SERVICE_SECRETS:-$here/secrets} # an absolute path, or none
read -ra compose <<<"${COMPOSE:-docker compose}"

compose() { "${compose[@]}" -f "$here/compose.yaml" "$@"; }
fail() { printf '%s\n' "$@" >&2 && exit 2; }
random() { head -c 24 /dev/urandom | base64 | tr '+/' '-_'; }
sql() { compose exec -T database psql -U mlflow -qAt -v ON_ERROR_STOP=1 --dbname mlflow "$@"; }

make_secrets() { # once; without them nothing starts
    mkdir -p "$secrets/users"
    local name
    for name in database_password admin_password; do
        [ -s "$secrets/$name" ] || { random >"$secrets/$name.new" && mv "$secrets/$name.new" "$secrets/$name"; }
    done
}

admin() { compose exec -T mlflow python /service/admin.py "$@"; }

check_name() { [[ $1 =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ ]] || fail "$1: a user's name has letters, digits and ._-"; }

user() { # name
    check_name "$1"
    local password file=$secrets/users/$1.env
    password=$(random)
    printf 'export MLFLOW_TRACKING_USERNAME=%s\nexport MLFLOW_TRACKING_PASSWORD=%s\n' "$1" "$password" >"$file.new"
    admin user "$1" <<<"$password"
    mv "$file.new" "$file"
    echo "$file: give it to $1, who types: . $1.env"
}

remove() { # name
    check_name "$1"
    admin remove "$1"
    rm -f "$secrets/users/$1.env"
}

# The database first: what it names, the artifacts that are read after it have.
backup() { # folder
    mkdir -p "$1"
    [ -z "$(ls -A "$1")" ] || fail "$1 is not empty: name a new folder"
    compose exec -T database pg_dump -U mlflow mlflow >"$1/database.sql"
    compose exec -T mlflow tar -C /artifacts -cf - . >"$1/artifacts.tar"
    whole "$1"
    echo "$1: $(du -sh "$1" | cut -f1)"
}

whole() { # folder
    tail -n 5 "$1/database.sql" | grep -q '^-- PostgreSQL database dump complete' || fail "$1/database.sql is cut"
    tar -tf "$1/artifacts.tar" >/dev/null || fail "$1/artifacts.tar is damaged"
}

restore() { # folder; the database last and in one transaction: what was interrupted can be typed again
    whole "$1"
    compose up -d --wait
    [ "$(sql -c 'SELECT count(*) FROM runs')" = 0 ] || fail "this service has runs, which a restored backup would replace" \
        "Restore into new volumes: another COMPOSE_PROJECT_NAME, or after: service.sh compose down -v"
    compose exec -T mlflow tar -C /artifacts -xf - <"$1/artifacts.tar"
    compose stop mlflow
    { echo 'DROP SCHEMA public CASCADE; CREATE SCHEMA public;' && cat "$1/database.sql"; } | sql --single-transaction >/dev/null
    start
}

start() { compose up -d --wait; }

upgrade() { # folder
    backup "$1"
    compose build mlflow
    compose stop mlflow
    compose run --rm -T --no-deps mlflow upgrade
    start
}

command=${1:-}
shift || true
case $command in
up) make_secrets && start ;;
user | remove | backup | restore | upgrade)
    [ $# = 1 ] || fail "service.sh $command needs one name"
    "$command" "$1" ;;
grant)
    [ $# = 3 ] || fail "service.sh grant NAME EXPERIMENT READ|EDIT|MANAGE|NO_PERMISSIONS"
    admin grant "$@" ;;
trainer) compose --profile trainer run --rm trainer "$@" ;;
compose) compose "$@" ;;
*) sed -n '2,14p' "$0" >&2 && exit 2 ;;
esac
