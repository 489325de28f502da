# uv: a virtual environment and what it installs there, as `uv pip list` says; every package of its has a file REQUESTED.
need python3
python3 -m venv ../tool >&2
../tool/bin/pip install -q uv >&2
../tool/bin/uv venv -q --python "$(command -v python3)" .venv >&2
../tool/bin/uv pip install -q --no-compile click==8.1.7 flask==3.0.3 >&2
../tool/bin/uv --version > ../version
.venv/bin/python -c 'import sys; print(".venv/python", ".".join(map(str, sys.version_info[:3])))'
../tool/bin/uv pip list -q --format=freeze | sed 's|\(.*\)==\(.*\)|.venv/\L\1\E \2|'
