# cargo install: a program in a root of its own, as `cargo install --list` says.
need cargo
cargo new -q --vcs none --name small-tool ../src >&2
CARGO_TARGET_DIR=../target cargo install -q --path ../src --root . --offline >&2
cargo --version | cut -d' ' -f2 > ../version
cargo install --list --root . | sed -n 's/^\([^ ]*\) v\([^ :]*\).*:$/\1 \2/p'
