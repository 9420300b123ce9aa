#!/bin/sh
# Takes one cure after the other out of a copy of the tree, and shows within how many seeds the
# simulation finds what comes back: `make simulate-patches`.
#
# Each patch in tools/simulation/patches begins with a line that names the fault, and applies to the
# tree as it is committed. What the simulation cannot meet has a second line, `test: PROGRAM NAME`:
# the test that fails instead. SIMULATE_SEEDS: most seeds for each (2000); SIMULATE_RANGES: from how
# many first seeds it is looked for (1), a million apart; SIMULATE_SEED_MAX: seconds after which a
# seed counts as one that does not end (120); PATCHES: only those whose names contain this.
set -eu
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
seeds=${SIMULATE_SEEDS:-2000}
ranges=${SIMULATE_RANGES:-1}
export SIMULATE_SEED_MAX="${SIMULATE_SEED_MAX:-120}"
tree=$PWD/target/simulation/tree
output=$PWD/target/simulation/output
mkdir -p target/simulation
git worktree remove --force "$tree" 2>/dev/null || true
git worktree prune
git worktree add --quiet --detach "$tree" HEAD
trap 'git worktree remove --force "$tree"' EXIT
# What was built here once is not built again for every patch.
export CARGO_TARGET_DIR=$PWD/target/simulation/target

# Prints which test fails.
found_by_test() {
    if (cd "$tree" && $cargo test --quiet --locked --workspace --test "$1" "$2") >"$output" 2>&1; then
        echo "not by the test $2"
        return 1
    fi
    grep -q '^test result: FAILED' "$output" || { echo "does not compile"; return 1; }
    echo "the test $2"
}

# Prints how many seeds it took from a first one.
found_from() {
    if (cd "$tree" && SIMULATE_FROM=$1 SIMULATE_SEEDS=$seeds $cargo test --quiet --locked \
        -p undercroft-server --test simulation a_thousand_seeds -- --nocapture) >"$output" 2>&1; then
        echo "not within $seeds"
        return 1
    fi
    sed -n 's/^.*\(seed [0-9]*\): does not end.*$/\1 does not end/p' "$output" | head -n 1 | grep . ||
        sed -n 's/^\([0-9]*\) seeds, .*$/\1/p' "$output" | head -n 1 | grep . ||
        { echo "broke off"; return 1; }
}

# Prints how many it took from each first seed.
found() {
    (cd "$tree" && $cargo test --quiet --locked -p undercroft-server --test simulation --no-run) || {
        echo "does not compile"
        return 1
    }
    all=0
    range=0
    while [ "$range" -lt "$ranges" ]; do
        count=$(found_from $((range * 1000000 + 1))) || all=1
        printf '%s%s' "${separator-}" "$count"
        separator=' '
        range=$((range + 1))
    done
    return $all
}

missed=0
printf '%-72s %s\n' "what the patch brings back" "seeds"
for patch in tools/simulation/patches/*"${PATCHES:-}"*.patch; do
    [ -e "$patch" ] || { echo "no patches"; exit 1; }
    git -C "$tree" checkout --quiet .
    if ! git -C "$tree" apply "$PWD/$patch"; then
        printf '%-72s %s\n' "$(head -n 1 "$patch")" "does not apply"
        missed=1
        continue
    fi
    test=$(sed -n '2s/^test: //p' "$patch")
    # shellcheck disable=SC2086 # two words
    if [ -n "$test" ]; then number=$(found_by_test $test); else number=$(found); fi || missed=1
    printf '%-72s %s\n' "$(head -n 1 "$patch")" "$number"
done
exit $missed
