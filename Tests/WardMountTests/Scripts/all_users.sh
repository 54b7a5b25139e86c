# `ward lock --all` for volumes of root, uucp (10) and backup (34), in a mount namespace without
# other tests' mounts.
#   all_users.sh DIRECTORY WARD HOOK     prints one line for each result, and "done" at the end
set -eu
base=$1 ward=$2 hook=$3
# Other tests' mounts are copies in this namespace: only the copies are detached.
grep ' fuse\.ward ' /proc/mounts | cut -d ' ' -f 2 | while read -r place; do
    umount -l "$(printf %b "$place")" || :
done
as() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"; }
say() { echo "$@"; }
printf 'correct horse' >"$base/passcode"
chmod 644 "$base/passcode"
for user in 0 10 34; do
    place=$base/$user
    mkdir -p "$place/mnt" "$place/run"
    chown -R "$user:$user" "$place"
    chmod 700 "$place/run"
    run() {
        as "$user" env -i PATH="$PATH" HOME="$place" XDG_STATE_HOME="$place/state" XDG_RUNTIME_DIR="$place/run" "$@"
    }
    run cp "$base/passcode" "$place/passcode"
    run chmod 600 "$place/passcode"
    run "$ward" init -q "$place/volume" --passcode-file "$place/passcode" --passcode-cost 1024
    run "$ward" mount -q "$place/volume" "$place/mnt" --passcode-file "$place/passcode"
    run sh -c "mkdir $place/mnt/A && setfattr -n user.ward.class -v complete $place/mnt/A && echo x >$place/mnt/A/f"
done
open() {
    for user in 0 10 34; do
        as "$user" cat "$base/$user/mnt/A/f" >/dev/null 2>&1 && printf ' %s' "$user" || :
    done
}
unlock() {
    place=$base/$1
    as "$1" env -i PATH="$PATH" HOME="$place" "$ward" unlock -q "$place/mnt" --passcode-file "$place/passcode"
}
say "open:$(open)"
say "root's status: $(env -i PATH="$PATH" "$ward" status --json | grep -c '"mountpoint":"'"$base/0/mnt"'"')"
# Root locks another user's mount by its path, with an empty environment.
env -i PATH="$PATH" "$ward" lock "$base/10/mnt" --now
say "open after root's lock of one:$(open)"
unlock 10
# A user locks its own mounts, without XDG_RUNTIME_DIR.
as 34 env -i PATH="$PATH" "$ward" lock --all --now
say "open after a user's lock of all:$(open)"
unlock 34
# The hook, with an empty environment as from the login manager.
say "open before the hook:$(open)"
env -i PATH="$(dirname "$ward"):$PATH" sh "$hook" pre suspend
say "open after the hook:$(open)"
for user in 0 10 34; do unlock "$user"; done
env -i PATH="$(dirname "$ward"):$PATH" sh "$hook" post suspend
say "open after waking and unlocking:$(open)"
# One daemon died, another one is stopped together with its watchdog: other volumes lock in time.
daemon() { pgrep -u "$1" -f "mount --foreground .*$base/$1/volume"; }
kill -KILL "$(daemon 10)"
while kill -0 "$(daemon 10)" 2>/dev/null; do :; done
stopped="$(daemon 34) $(pgrep -u 34 -f "watchdog .*$base/34/mnt")"
# Each resumes the other, unless both are stopped at the same time.
until [ "$(ps -o stat= $stopped | grep -c '^T')" = 2 ]; do kill -STOP $stopped; done
code=0
timeout 60 env -i PATH="$PATH" "$ward" lock --all --now 2>"$base/errors" || code=$?
say "exit code with one dead and one hung: $code"
say "errors: $(grep -c '^ward: error: ' "$base/errors")"
say "open of root's: $(as 0 cat "$base/0/mnt/A/f" >/dev/null 2>&1 && echo yes || echo no)"
# A runtime directory on the mount that hangs: no command waits for it for ever.
hanging() { as 34 timeout 100 env -i PATH="$PATH" HOME="$base/34" "$@"; }
code=0
hanging XDG_RUNTIME_DIR="$base/34/mnt/A" "$ward" lock --all --now 2>"$base/errors" || code=$?
say "exit code with a runtime directory that hangs: $code"
say "errors: $(grep -c 'does not answer' "$base/errors")"
# Side by side: each waits for an answer that does not come.
ask() {
    code=0
    hanging "$ward" $1 "$base/34/mnt" </dev/null 2>"$base/errors of $1" || code=$?
    say "$1: $code, $(grep -c "hint: ward unmount --force $base/34/mnt" "$base/errors of $1")" >"$base/answer of $1"
}
for command in status "lock --now" unlock unmount; do ask "$command" & done
wait
for command in status "lock --now" unlock unmount; do cat "$base/answer of $command"; done
hanging "$ward" unmount --force "$base/34/mnt" 2>"$base/errors" >/dev/null
say "unmounted by force: $? $(grep -c 'was killed' "$base/errors") $(grep -c " $base/34/mnt " /proc/mounts || :)"
kill -CONT $stopped 2>/dev/null || :
for user in 0 10 34; do
    env -i PATH="$PATH" "$ward" unmount -q "$base/$user/mnt" 2>/dev/null || :
done
env -i PATH="$PATH" "$ward" lock --all 2>"$base/errors" || say "exit code with nothing mounted: $?"
grep -c 'no volume is mounted' "$base/errors"
say done
