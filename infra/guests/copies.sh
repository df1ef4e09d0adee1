#!/bin/sh
# Copies the file of a process that must not be interrupted, at the end of each of its segments:
# FOLDER LAST SECONDS UNIT FILE. UNIT writes FILE anew when it gets USR2.
# A copy is a line of FOLDER/manifest, as segments.sh writes them; times are those of the signals.
set -u
folder=$1 last=$2 seconds=$3 unit=$4 file=$5
mkdir -p "$folder"
boot=$(cat /proc/sys/kernel/random/boot_id)
uptime_s() { cut -d ' ' -f 1 /proc/uptime; }
written_at() { stat -c %.9Y "$file" 2>/dev/null; }
# the file is truncated and written while we look: a copy is whole when the file is still the same
copied() {
    tries=50
    while [ "$tries" -gt 0 ]; do
        tries=$((tries - 1))
        sleep 0.2
        if [ "$(written_at)" != "$before" ] && cp "$file" "$1" && sleep 0.2 && cmp -s "$file" "$1"; then
            return 0
        fi
    done
    return 1
}
entered_us=$(systemctl show "$unit" | sed -n 's/^ActiveEnterTimestampMonotonic=//p')
begin=$(awk "BEGIN {printf \"%.2f\", $entered_us / 1e6}")
segment=1
while [ "$segment" -le "$last" ]; do
    copy=$folder/$(printf 'seg-%05d.json' "$segment")
    left=$(awk "BEGIN {printf \"%.2f\", $entered_us / 1e6 + $segment * $seconds - $(uptime_s)}")
    case $left in -*) ;; *) sleep "$left" ;; esac
    before=$(written_at)
    end=$(uptime_s)
    systemctl kill --signal=USR2 "$unit" && copied "$copy"
    code=$?
    sum=$(sha256sum "$copy" 2>/dev/null | cut -d ' ' -f 1)
    sync
    printf '{"segment": %d, "boot_id": "%s", "begin_s": %s, "end_s": %s, "exit": %d, "sha256": "%s"}\n' \
        "$segment" "$boot" "$begin" "$end" "$code" "$sum" >>"$folder/manifest"
    sync
    begin=$end
    segment=$((segment + 1))
done
