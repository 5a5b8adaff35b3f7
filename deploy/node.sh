#!/usr/bin/env bash
# What a node of the cluster runs; cluster.yaml and cluster.local.yaml call it, and so may you:
#   deploy/node.sh head [OPTION...]                  Ray's head, and the server of the draft statistics
#   deploy/node.sh worker HEAD_ADDRESS [OPTION...]   a Ray worker
#   deploy/node.sh stop                              end all of it on this node; on a head, on its workers before
# It runs in a checkout with the package in .venv. Options go to `ray start`.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
folder=~/.tts_orch
password_file=$folder/store_password
environment_file=$folder/environment # for login shells, too: cluster.yaml has ~/.bashrc read it
PATH=$checkout/.venv/bin:$PATH
unset OMP_NUM_THREADS # `ray up` sets it to 1; every worker sets its own number of threads

main() {
    case ${1-} in
        head) start_head "${@:2}" ;;
        worker) start_worker "${2:?which head? deploy/node.sh worker HEAD_ADDRESS}" "${@:3}" ;;
        stop) stop ;;
        *) sed -n '2,6s/^# \?//p' "$0" && exit 2 ;;
    esac
}

start_head() { # [OPTION...]
    local address
    address=$(hostname -I | cut -d' ' -f1)
    set_environment "$address"
    ray stop
    check_port
    start_store "$address"
    raise_limits
    # The dashboard executes what it is sent: it is reached through ssh (`ray dashboard cluster.yaml`) alone.
    ray start --head --port=6379 --dashboard-host=127.0.0.1 --disable-usage-stats "$@"
}

start_worker() { # HEAD_ADDRESS [OPTION...]
    set_environment "$1"
    ray stop
    raise_limits
    ray start --address="$1:6379" --disable-usage-stats "${@:2}"
}

set_environment() { # HEAD_ADDRESS; jobs and workers inherit it from Ray
    [[ -s $password_file ]] || fail "$password_file is missing; make it, and ~/.ray/auth_token, with \`make secrets\`"
    cat > "$environment_file" << END
export PATH=$checkout/.venv/bin:\$PATH
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export TTS_ORCH_STORE=redis://$1:6380 TTS_ORCH_STORE_PASSWORD=\$(cat $password_file)
END
    . "$environment_file"
}

check_port() { # Debian and Ubuntu start a Redis of their own on Ray's port as soon as redis-server is installed
    if (: < /dev/tcp/127.0.0.1/6379) 2> /dev/null; then
        fail "port 6379, which is Ray's, is taken; if by the system's Redis: sudo systemctl disable --now redis-server"
    fi
}

start_store() { # ADDRESS; one that runs already is left alone
    store_runs && return
    local server
    server=$(command -v redis-server || command -v valkey-server) || fail "no redis-server here; install Redis 7.0 or later"
    {
        cat "$checkout/deploy/redis.conf"
        echo "bind $1 127.0.0.1"
        echo "requirepass $TTS_ORCH_STORE_PASSWORD"
        echo "dir $folder"
        echo "pidfile $folder/store.pid"
        echo "logfile $folder/store.log"
        echo "daemonize yes"
    } | "$server" - # on its command line everybody could read the password
}

store_runs() { # the number that a crash left behind may be another program's by now
    [[ -r $folder/store.pid ]] && grep -qsE '^(redis|valkey)-server' "/proc/$(< "$folder/store.pid")/comm"
}

raise_limits() { # a Ray node opens many files
    ulimit -n 65536 2> /dev/null || ulimit -n "$(ulimit -Hn)"
}

stop() {
    stop_workers
    ray stop
    if store_runs; then
        kill "$(< "$folder/store.pid")"
    fi
}

stop_workers() { # `ray down` leaves parts of Ray on machines that it cannot switch off
    [[ -r ~/ray_bootstrap_config.yaml ]] || return 0
    local worker
    for worker in $(ray get-worker-ips ~/ray_bootstrap_config.yaml 2> /dev/null); do
        ssh -i ~/ray_bootstrap_key.pem -o StrictHostKeyChecking=no "$worker" "$checkout/deploy/node.sh" stop || true
    done
}

fail() {
    echo "node.sh: $1" >&2
    exit 1
}

main "$@"
