# pip with an old setuptools, which still makes eggs, links to sources, and single files.
need python3
python3 -m venv .venv >&2
.venv/bin/python -m pip install -q --no-compile 'setuptools==57.5.0' >&2
.venv/bin/python -m pip --version | cut -d' ' -f-2 > ../version
mkdir -p ../src/linked ../src/egg
for name in linked egg; do
    printf 'from setuptools import setup\nsetup(name="Small_%s", version="1.5", py_modules=["small_%s"])\n' $name $name > ../src/$name/setup.py
    touch ../src/$name/small_$name.py
done
(cd ../src/linked && ../../place/.venv/bin/python setup.py -q develop) >&2
(cd ../src/egg && ../../place/.venv/bin/python setup.py -q install) >&2
.venv/bin/python -c 'import sys; print(".venv/python", ".".join(map(str, sys.version_info[:3])))'
.venv/bin/python -m pip list --format=freeze 2>/dev/null |
    sed 's|\(.*\)==\(.*\)|.venv/\L\1\E \2|; s/small_/small-/; s/\(small-linked\) .*/\1 (editable)/'
