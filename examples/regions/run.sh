#!/usr/bin/env bash
# A ring of four regions with three clinics each on one machine, as they would do it on sixteen: a folder and a process
# for each, TLS, no centre. One region, one clinic and one nats-server are killed on the way.
#
#     examples/regions/run.sh [FOLDER]         PORT=8765 is where the first region listens, the others at the next ports
#
# Every folder below FOLDER is one organisation. What goes from one to another is copied by `send`, and by nothing else.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
world=${1:-regions-demo}
port=${PORT:-8765}
regions="borders coast fells highlands"

silograph="$here/../../.venv/bin/silograph"
[ -x "$silograph" ] || silograph=silograph

if [ -e "$world" ]; then
    echo "$world is there already: choose another folder, or remove it" >&2
    exit 2
fi
mkdir -p "$world"
world=$(cd "$world" && pwd)

say() { printf '\n== %s\n' "$*"; }
send() { mkdir -p "$2" && cp -R "$1" "$2"; } # in real life: by a way that both trust

stop_ours() { # whatever of ours still runs, by its id, and nothing else
    for id in $(jobs -rp); do
        kill "$id" 2>/dev/null || true
    done
    wait
}
trap stop_ours EXIT

say "Every clinic has its own table; whoever writes the plan has none"
"$silograph" sample "$world/sample" --clinics >/dev/null
mkdir "$world/planner"
cp "$here/plan.toml" "$world/planner"
for region in $regions; do
    table="$world/sample/regions/$region.csv"
    column=$(head -1 "$table" | tr ',' '\n' | grep -n '^clinic$' | cut -d: -f1)
    for clinic in $(tail -n +2 "$table" | cut -d, -f"$column" | sort -u | head -3); do
        mkdir "$world/$region-$clinic"
        awk -F, -v c="$column" -v who="$clinic" 'NR == 1 || $c == who' "$table" >"$world/$region-$clinic/$clinic.csv"
        clinics="${clinics:-} $region/$clinic"
    done
done
rm -r "$world/sample"
wc -l "$world"/*/*.csv | tail -1

say "Each tells what others must know of its table: names of columns, how many rows"
for clinic in $clinics; do
    region=${clinic%/*} name=${clinic#*/}
    (cd "$world/$region-$name" && "$silograph" facts "$world/planner/plan.toml" "$name.csv" -o "$name.facts.json" >/dev/null) &
    facts="${facts:-} $!"
done
for id in $facts; do wait "$id"; done
for clinic in $clinics; do
    region=${clinic%/*} name=${clinic#*/}
    send "$world/$region-$name/$name.facts.json" "$world/planner/$region"
done

say "The deployment: one digest, a folder for every region and every clinic"
(
    cd "$world/planner"
    "$silograph" deploy plan.toml -o deployment --address "127.0.0.1:$port" --regions --minimum 3 --patience 120
)
for region in $regions; do
    send "$world/planner/deployment/regions/$region" "$world/$region"
done
for clinic in $clinics; do
    silo=${clinic/\//-}
    send "$world/planner/deployment/silos/$silo" "$world/$silo"
done

say "Every region approves it and makes its keys; its card goes to its neighbours and its clinics"
for region in $regions; do
    (cd "$world/$region" && "$silograph" enrol "$region" | tail -2)
done
neighbours() { # in a ring: the one before and the one after
    case $1 in
    borders) echo coast highlands ;; coast) echo borders fells ;; fells) echo coast highlands ;; highlands) echo borders fells ;;
    esac
}
for region in $regions; do
    for other in $(neighbours "$region"); do
        send "$world/$region/$region/$region.region.json" "$world/$other/$other/nodes"
    done
done

say "Every clinic approves it with its own table; its enrolment goes to its region's server and the region's clinics"
for clinic in $clinics; do
    region=${clinic%/*} name=${clinic#*/} silo=${clinic/\//-}
    send "$world/$region/$region/$region.region.json" "$world/$silo/$silo"
    (cd "$world/$silo" && "$silograph" enrol "$silo" --data "$name.csv" >/dev/null) &
    enrolments="${enrolments:-} $!"
done
for id in $enrolments; do wait "$id"; done
for clinic in $clinics; do
    region=${clinic%/*} silo=${clinic/\//-}
    send "$world/$silo/$silo/$silo.enrolment.json" "$world/$region/$region/nodes"
    for other in $clinics; do
        if [ "${other%/*}" = "$region" ]; then
            send "$world/$silo/$silo/$silo.enrolment.json" "$world/${other/\//-}/${other/\//-}/nodes"
        fi
    done
done

say "Four regions serve, twelve clinics join: sixteen processes"
serve() { (cd "$world/$1" && exec "$silograph" serve "$1" -o out >>serve.log 2>&1) & }
join() { (cd "$world/$1" && exec "$silograph" join "$1" >>join.log 2>&1) & }
declare -A running
for region in $regions; do
    serve "$region"
    running[$region]=$!
done
for clinic in $clinics; do
    join "${clinic/\//-}"
    running[${clinic/\//-}]=$!
done

until [ -s "$world/fells/.out.unfinished/rounds.jsonl" ]; do sleep 0.1; done
victim=${clinics##* } victim=${victim/\//-}
say "Round $(wc -l <"$world/fells/.out.unfinished/rounds.jsonl"): kill -9 of region fells, of $victim, and of the nats-server of coast"
kill -9 "${running[fells]}" "${running[$victim]}"
kill -9 $(ps -eo pid=,args= | awk -v conf="$world/coast/coast/nats.conf" '$2 ~ /nats-server$/ && $4 == conf { print $1 }')
wait "${running[fells]}" "${running[$victim]}" 2>/dev/null || true
serve fells
running[fells]=$!
join "$victim"
running[$victim]=$!

for name in "${!running[@]}"; do
    if ! wait "${running[$name]}"; then
        tail -n 5 "$world/$name"/*.log >&2
        exit 1
    fi
done

say "What it came to"
for region in $regions; do
    echo "$region: $(tail -1 "$world/$region/serve.log")"
done
for clinic in $clinics; do
    silo=${clinic/\//-}
    echo "$silo: $(wc -l <"$world/$silo/$silo/ledger.jsonl") releases in its own ledger"
done
