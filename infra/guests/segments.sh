#!/bin/sh
# Runs a tool as a chain of segments: FOLDER FIRST LAST SUFFIX COMMAND...
# Every "@" in COMMAND is the path of the segment; its result is that path with SUFFIX.
# A finished segment is a line of FOLDER/manifest; one that is there is not measured again.
set -u
folder=$1 first=$2 last=$3 suffix=$4
shift 4
mkdir -p "$folder"
boot=$(cat /proc/sys/kernel/random/boot_id)
uptime_s() { cut -d ' ' -f 1 /proc/uptime; }
segment=$first
while [ "$segment" -le "$last" ]; do
    name=$(printf 'seg-%05d' "$segment")
    if ! grep -qs "^{\"segment\": $segment," "$folder/manifest"; then
        rm -rf "$folder/$name" "$folder/$name$suffix"
        begin=$(uptime_s)
        # the words of COMMAND hold no blanks: paths, numbers, options
        # shellcheck disable=SC2046
        $(printf '%s ' "$@" | sed "s|@|$folder/$name|g") >"$folder/$name.log" 2>&1
        code=$?
        end=$(uptime_s)
        sum=$(sha256sum "$folder/$name$suffix" 2>/dev/null | cut -d ' ' -f 1)
        sync
        printf '{"segment": %d, "boot_id": "%s", "begin_s": %s, "end_s": %s, "exit": %d, "sha256": "%s"}\n' \
            "$segment" "$boot" "$begin" "$end" "$code" "$sum" >>"$folder/manifest"
        sync
    fi
    segment=$((segment + 1))
done
