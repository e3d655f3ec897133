#!/usr/bin/env bash
# Builds and runs containers on a Debian 12 machine without a Docker engine, a registry or systemd, as root.
# What it builds are unchanged Dockerfiles (FROM debian:bookworm-slim, FROM python:3.11-slim) and compose files.
#   containers.sh install                     podman, runc, netavark, mmdebstrap from apt; podman-compose from pip
#   containers.sh base                        local stand-ins of debian:bookworm-slim and python:3.11-slim, if missing
#   containers.sh build -t TAG [ARGS] DIR     `podman build` that can reach apt and pip as this machine does
#   containers.sh compose -f FILE build|up -d --wait|down -v|...      `podman-compose`, with working health checks
#   containers.sh podman ARGS...              run, exec, logs, ps, ...
#   containers.sh clean                       remove the images of docker/, some 4 GB, and unnamed ones; the bases stay
# base and build are cached: a second `build` of unchanged files takes 0.2 s. State: $CONTAINERS_STATE, /var/lib/containers.
#
# What did not work here, and why:
# - crun (podman's default): "cgroups in hybrid mode not supported": /sys/fs/cgroup is v1 with a v2 that holds hugetlb;
#   --cgroups=disabled does not help. runc works, with --memory too (it refuses --cgroups=disabled).
# - podman's default ulimits: "setrlimit: Operation not permitted". Root has every capability but CAP_SYS_RESOURCE, so no
#   limit can be raised. --ulimit host does not help in 4.3; nofile and nproc must both be named, and nproc=$(ulimit -u)
#   is refused too (96365 and 90000 were, 32768 was not).
# - Health checks: podman has systemd's timers run them, and there is no systemd; `podman healthcheck run NAME` works.
#   podman 4.3 knows no `wait --condition=healthy`, so podman-compose ignores depends_on.condition and --wait.
#   The `podman` written below adds that one command. Statuses are fresh only after a `healthcheck run`.
#   `up --wait SERVICE` fails (podman-compose waits for all services of the file): --wait only without names.
# - Avoided, not tried: mounting the CA bundle over /etc/ssl/certs in a build; what a Dockerfile's own ca-certificates
#   writes there would be lost. Hence a folder of its own, named in a pip.conf that is mounted.
# - Debian's podman only recommends netavark and aardvark-dns: name them, or there is no bridge and no DNS of service names.
# Not tried, as this worked: dockerd, chroot isolation, apptainer. Kernel: namespaces, overlay, veth, bridge, published ports: yes.
# Limits: the stand-in for python:3.11-slim has Debian's 3.11.2; no test here sees the published images' own contents.
set -euo pipefail
STATE=${CONTAINERS_STATE:-/var/tmp/containers-sh}
DEBIAN=docker.io/library/debian:bookworm-slim PYTHON=docker.io/library/python:3.11-slim
export CONTAINERS_CONF=$STATE/containers.conf DISABLE_HC_SYSTEMD=true

install_tools() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        podman runc netavark aardvark-dns iptables catatonit mmdebstrap python3-venv >/dev/null
    [ -x "$STATE/venv/bin/podman-compose" ] || {
        /usr/bin/python3 -m venv "$STATE/venv" && "$STATE/venv/bin/pip" install -q 'podman-compose==1.6.*'
    }
}

# Written anew each time, as the machine's limits, certificates and pip settings may have changed.
settings() {
    mkdir -p "$STATE/pip" "$STATE/bin"
    local most
    most=$(cat /proc/sys/kernel/pid_max)
    [ "$(ulimit -Hu)" = unlimited ] || [ "$(ulimit -Hu)" -gt "$most" ] || most=$(ulimit -Hu)
    cat >"$STATE/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$(ulimit -Sn):$(ulimit -Hn)", "nproc=$most:$most"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
CONF
    # pip: this machine's own settings, but with the bundle at a path that no package of the image owns.
    cp "${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}" "$STATE/pip/ca.crt"
    local setting='(index-url|extra-index-url|find-links|trusted-host|proxy|default-timeout|retries)'
    {
        printf '[global]\ncert = /run/build-pip/ca.crt\n'
        python3 -m pip config list 2>/dev/null | sed -nE "s/^[^.]*\.$setting='(.*)'\$/\1 = \2/p" | awk '!seen[$1]++'
    } >"$STATE/pip/pip.conf"
    cat >"$STATE/bin/podman" <<'SHIM'
#!/bin/sh
# podman 4.3 with `wait --condition=healthy`, for podman-compose (which asks for 4.6.0).
case "$1 ${2:-}" in
--version*) echo "podman version 4.6.0" ;;
"wait --condition=healthy")
    shift 2
    [ "${1:-}" != --ignore ] || shift
    for name; do
        until podman healthcheck run "$name" >/dev/null 2>&1; do
            [ "$(podman inspect --format '{{.State.Running}}' "$name")" = true ] ||
                { echo "$name has ended: $(podman logs --tail 5 "$name" 2>&1)" >&2; exit 1; }
            sleep 1
        done
    done ;;
*) exec podman "$@" ;;
esac
SHIM
    chmod +x "$STATE/bin/podman"
    # For RUN lines only: nothing of it is in the image but an empty /etc/pip.conf and an empty /run/build-pip.
    # :O is a throw-away overlay, so that packages can still write to /etc/apt.
    MOUNTS=(-v /etc/apt:/etc/apt:O -v "$STATE/pip/pip.conf:/etc/pip.conf:ro" -v "$STATE/pip:/run/build-pip:ro")
    local folder
    while read -r folder; do # that pip's settings name; an index's files may lie beside it
        [ ! -d "${folder%/simple}" ] || MOUNTS+=(-v "${folder%/simple}:${folder%/simple}:ro")
    done < <(grep -E '^(extra-)?index-url|^find-links' "$STATE/pip/pip.conf" | grep -oE '(^|[ /])/[^ /][^ ]*' | sed 's#^ */*#/#' | sort -u)
    BUILD=(--pull=never --network=host --layers "${MOUNTS[@]}")
}

base() {
    local tar=$STATE/base.tar sources=()
    if ! podman image exists "$DEBIAN"; then
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
            [ ! -s "$file" ] || sources+=("$file")
        done
        apt-config dump Acquire >"$STATE/acquire.conf" # proxies and date checks, as this machine has them
        # As in the published image: no manuals, no translations. Its sources come from the build's mount.
        rm -f "$tar"
        mmdebstrap --quiet --variant=minbase --mode=root --aptopt="$STATE/acquire.conf" \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
            --customize-hook='cd "$1/etc" && rm -rf apt/sources.list apt/sources.list.d/* apt/apt.conf.d/99mmdebstrap resolv.conf hostname' \
            bookworm "$tar" "${sources[@]}"
        podman import --change 'CMD ["bash"]' --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
            "$tar" "$DEBIAN" >/dev/null
        rm -f "$tar"
    fi
    if ! podman image exists "$PYTHON"; then
        podman build "${BUILD[@]}" -t "$PYTHON" -t "$PYTHON-bookworm" -f - "$STATE/bin" <<DOCKERFILE
FROM $DEBIAN
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv python3-pip ca-certificates \
 && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED && ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python3"]
DOCKERFILE
    fi
}

[ "$(id -u)" = 0 ] || { echo "containers.sh: needs root" >&2; exit 2; }
command=${1:-}
shift || true
[ "$command" != install ] || { mkdir -p "$STATE"; install_tools; }
settings
case $command in
install) ;;
base) base ;;
build) base && podman build "${BUILD[@]}" "$@" ;;
compose) base && exec "$STATE/venv/bin/podman-compose" --podman-path "$STATE/bin/podman" --podman-build-args="${BUILD[*]}" "$@" ;;
podman) exec podman "$@" ;;
clean) podman images --format '{{.Repository}}:{{.Tag}}' | { grep /sweepyard- || :; } | xargs -r podman rmi -f >/dev/null
    podman image prune -f >/dev/null ;;
*) sed -n '2,11p' "$0" >&2; exit 2 ;;
esac
