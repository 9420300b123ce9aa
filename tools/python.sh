#!/bin/sh
# Builds the wheel of the Python package, and installs it into a virtual environment below the target
# folder: `build` optimised, into a fresh one, with what pictures need; `test` with the profile of the
# tests, so that the crates below are built once, and then runs the tests of the package. The
# environment of the tests is kept, so that only the first run downloads packages.
set -eu

stage=${1:-build}
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
venv=$target/python/$stage
wheels=$target/python/wheels-$stage

case $stage in
    build) profile=release extras=plot,pandas,polars && rm -rf "$venv" ;;
    test) profile=dev extras=test ;;
    *) echo "usage: tools/python.sh build|test" >&2 && exit 2 ;;
esac

export PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf "$wheels"
if [ ! -x "$venv/bin/maturin" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'maturin>=1.9,<2'
fi
(cd python && "$venv/bin/maturin" build --quiet --locked --profile "$profile" \
    --target-dir "$target" --interpreter "$venv/bin/python" --out "$wheels")
wheel=$(ls "$wheels"/*.whl)
"$venv/bin/pip" install --quiet "$wheel[$extras]"
# An older build of the same version counts as installed.
"$venv/bin/pip" install --quiet --no-deps --force-reinstall "$wheel"

if [ "$stage" = test ]; then
    # Not from the folder of the sources, which has no native module.
    cd "$venv"
    exec bin/pytest -q -c "$root/python/pyproject.toml" --rootdir "$root/python" "$root/python/tests"
fi

cat <<END
built $wheel
try, in $venv/bin/python:

    import undercroft as uc
    trace = uc.Trace.open("examples/postgres-tpcc.uct.zst")
    df = uc.sweep(trace, l1="32MiB:lru", l2="16MiB..256MiB", policy=["lru", "arc", "mq"])
    uc.plot.hit_ratio(df).figure.savefig("hit_ratio.png")
    print(df)
END
