#!/usr/bin/env bash
# Five hospitals and a coordinator on one machine, as they would do it on six: separate folders, separate processes, TLS.
#
#     examples/hospitals/run.sh [FOLDER]       PORT=8765 is where the server listens
#
# Every folder below FOLDER is one organisation. What goes from one to another is copied by `send`, and by nothing else.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
world=${1:-hospitals-demo}
port=${PORT:-8765}
hospitals="harbour hill mill park station"

silograph="$here/../../.venv/bin/silograph"
[ -x "$silograph" ] || silograph=silograph

if [ -e "$world" ]; then
    echo "$world is there already: choose another folder, or remove it" >&2
    exit 2
fi
mkdir -p "$world"
world=$(cd "$world" && pwd)

say() { printf '\n== %s\n' "$*"; }
send() { cp -R "$1" "$2"; } # in real life: by a way that both trust

stop_ours() { # whatever of ours still runs, by its id, and nothing else
    for id in $(jobs -rp); do
        kill "$id" 2>/dev/null || true
    done
    wait
}
trap stop_ours EXIT

say "Every hospital has its own table"
"$silograph" sample "$world/tables" >/dev/null
for name in $hospitals; do
    mkdir "$world/$name"
    mv "$world/tables/site_$name.csv" "$world/$name/$name.csv"
done
rmdir "$world/tables"
mkdir "$world/coordinator"
cp "$here/plan.toml" "$world/coordinator"
wc -l "$world"/*/*.csv

say "Each tells the coordinator what others must know of its table: names of columns, how many rows"
for name in $hospitals; do
    send "$world/coordinator/plan.toml" "$world/$name"
    (cd "$world/$name" && "$silograph" facts plan.toml "$name.csv" -o "$name.facts.json" >/dev/null)
    send "$world/$name/$name.facts.json" "$world/coordinator"
done
ls "$world/coordinator"

say "The coordinator, who has no table, makes the deployment and sends every hospital its folder"
(
    cd "$world/coordinator"
    "$silograph" deploy plan.toml -o deployment --address "127.0.0.1:$port" --minimum 3 --deadline 60 --patience 120
)
for name in $hospitals; do
    send "$world/coordinator/deployment/$name" "$world/$name"
done

say "Each looks at what it would take part in, and enrols; the coordinator gets its public keys"
for name in $hospitals; do
    (
        cd "$world/$name"
        "$silograph" check "$name" --data "$name.csv"
        "$silograph" enrol "$name" --data "$name.csv"
    )
    send "$world/$name/$name/$name.enrolment.json" "$world/coordinator/deployment/server/nodes"
done

say "The coordinator serves, the hospitals join: six processes"
(cd "$world/coordinator" && exec "$silograph" serve deployment/server -o out >serve.log 2>&1) &
server=$!
for name in $hospitals; do
    (cd "$world/$name" && exec "$silograph" join "$name" >join.log 2>&1) &
    joined="${joined:-} $!"
done

until [ -e "$world/coordinator/.out.unfinished" ] || [ -e "$world/coordinator/out" ]; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
done
"$silograph" watch "$world/coordinator/out" --once || true

if ! wait "$server"; then
    cat "$world/coordinator/serve.log" >&2
    exit 1
fi
for id in $joined; do
    wait "$id" # a hospital's process ends when it has heard that the run is over
done
cat "$world/coordinator/serve.log"

say "What it came to"
"$silograph" watch "$world/coordinator/out" --once
echo
for name in $hospitals; do
    rows=$(wc -l <"$world/$name/$name/ledger.jsonl")
    echo "$name: $((rows)) release in its own ledger, $world/$name/$name/ledger.jsonl"
    [ "$rows" -eq 1 ]
done
echo
echo "report: $world/coordinator/out/report.html"
