# ward test -- sh test_settings.sh PROGRAM: starts it before first unlock, as a boot does, and after it.
set -eu
program=$1
file=$WARD_TEST_VOLUME/settings
"$program" "$file" blue
ward reboot --quiet
"$program" "$file" || test $? -eq 2
ward unlock --quiet
"$program" "$file"
