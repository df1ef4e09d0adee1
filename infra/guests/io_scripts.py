"""The two scripts that the io stage puts into every guest; a virtual guest has programs in their place.

They need a POSIX shell, GNU find and date, systemd, filefrag of e2fsprogs; chrony is asked if there is one.
"""

FOLDER = "/run/virtscale"
START_AT = f"{FOLDER}/start-at"
CHECK_DATASET = f"{FOLDER}/check-dataset"

SCRIPTS = {
    START_AT: b"""#!/bin/sh
# start-at UNIT EPOCH_NS COMMAND...: wait for an instant of this machine's clock, then run COMMAND
# as a unit, so that a connection that breaks ends nothing. Says when it began, and how wrong chrony
# holds the clock to be.
unit=$1; at=$2; shift 2
mkdir -p "$(dirname "$0")"
error=$(chronyc -c tracking 2>/dev/null | awk -F, '{e = $5 < 0 ? -$5 : $5; print e + $11 / 2 + $12}')
now=$(date +%s%N)
[ "$now" -lt "$at" ] && sleep "$(awk "BEGIN {printf \\"%.9f\\", ($at - $now) / 1e9}")"
echo "started_ns=$(date +%s%N) clock_error_s=${error:-unknown}"
exec systemd-run --quiet --wait --collect --pipe --unit "$unit" --property=LimitNOFILE=65536 "$@"
""",
    CHECK_DATASET: b"""#!/bin/sh
# check-dataset FOLDER: what is there, and how much room is left beside it
folder=$1
mkdir -p "$folder"
find "$folder" -type f -printf '%s %b\\n' |
  awk '{n++; s += $1; a += $2 * 512; if ($2 == 0) e++}
       END {printf "files=%d bytes=%.0f allocated=%.0f empty=%d ", n, s, a, e}'
hollow=$(find "$folder" -type f -exec filefrag -v {} + 2>/dev/null | grep -c unwritten)
room=$(df --output=avail -B1 "$folder" | tail -n 1 | tr -d ' ')
echo "unwritten=$hollow available=$room"
""",
}
"""By path; each is put there before its first use and started as `sh PATH ...`."""
