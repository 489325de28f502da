# cargo: crates from a registry (below a CARGO_HOME in the project), built in target, and vendored; as cargo's lock names them.
need cargo python3
export CARGO_HOME=$PWD/.cargo CARGO_NET_OFFLINE=false
mkdir -p ../index/crates ../src
crate() { # name, version, what it depends on
    cargo new -q --vcs none --lib ../src/$1 >&2
    sed -i "s/^version = .*/version = \"$2\"\ndescription = \"x\"\nlicense = \"MIT\"/" ../src/$1/Cargo.toml
    [ -z "${3-}" ] || echo "$3 = \"1\"" >> ../src/$1/Cargo.toml
}
publish() { # as a registry serves it: the crate and a line of its index
    (cd ../src/$1 && cargo package -q --allow-dirty --no-verify ${3:+--exclude-lockfile}) >&2
    cp ../src/$1/target/package/$1-$2.crate ../index/crates/
    dependencies=${3:+'{"name":"'$3'","req":"^1","features":[],"optional":false,"default_features":true,"target":null,"kind":"normal"}'}
    sum=$(sha256sum ../index/crates/$1-$2.crate | cut -d' ' -f1)
    place=../index/$(echo $1 | cut -c1-2)/$(echo $1 | cut -c3-4)
    mkdir -p $place
    echo "{\"name\":\"$1\",\"vers\":\"$2\",\"deps\":[$dependencies],\"cksum\":\"$sum\",\"features\":{},\"yanked\":false}" > $place/$1
}
python3 -m http.server --bind 127.0.0.1 --directory ../index 0 > ../served 2>&1 & server=$!
trap 'kill $server' EXIT
python3 - <<'P'
import re, time
while not (found := re.search(r"port (\d+)", open("../served").read())):
    time.sleep(0.05)
root = f"http://127.0.0.1:{found[1]}/"
open("../index/config.json", "w").write('{"dl": "%scrates/{crate}-{version}.crate"}' % root)
open("../config", "w").write(f'[source.crates-io]\nreplace-with = "here"\n[source.here]\nregistry = "sparse+{root}"\n')
P
mkdir -p .cargo && cp ../config .cargo/config.toml
crate leaf-crate 1.4.2 && publish leaf-crate 1.4.2
crate top-crate 0.2.0-rc.1 leaf-crate && publish top-crate 0.2.0-rc.1 leaf-crate
cargo new -q --vcs none --name work app >&2 && cd app
printf 'top-crate = "0.2.0-rc.1"\n' >> Cargo.toml
echo 'use top_crate as _; fn main() {}' > src/main.rs
CARGO_TARGET_DIR=target cargo build -q >&2
cargo vendor -q --respect-source-config vendor >&2
cd ..
cargo --version | cut -d' ' -f2 > ../version
sed -n '/^name/{s/.*"\(.*\)"/\1/;h};/^version/{s/.*"\(.*\)"/\1/;H};/^source/{x;s/\n/ /;p}' app/Cargo.lock | while read -r crate; do
    echo "app/target/$crate"
    echo "app/vendor/$crate"
    echo ".cargo/registry/$crate"
done
