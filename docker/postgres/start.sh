#!/bin/bash
# Makes the database in an empty volume, with the password in /run/secrets, and serves it as the user postgres.
set -euo pipefail
[ -s /run/secrets/database_password ] || { echo "/run/secrets/database_password is missing" >&2 && exit 2; }
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

if [ ! -d /data/15 ]; then # it has its name when it is whole
    rm -rf /data/new && install -d -o postgres -g postgres -m 700 /data/new
    install -o postgres -m 600 /run/secrets/database_password /dev/shm/password
    # Over the network with the password; over the socket, which only this container has, without.
    as_postgres initdb -D /data/new -U mlflow --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 \
        --data-checksums --pwfile=/dev/shm/password
    rm /dev/shm/password
    echo 'host all all all scram-sha-256' >>/data/new/pg_hba.conf
    echo 'CREATE DATABASE mlflow' | as_postgres postgres --single -D /data/new postgres >/dev/null
    sync && mv /data/new /data/15
fi
# More connections than MLflow opens: 40 threads, with one each in the pools of runs, models, users and jobs.
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D /data/15 -c listen_addresses='*' \
    -c max_connections=200 -c shared_buffers=256MB
