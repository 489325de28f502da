# A program that Go 1.16 or older built, which points to what it says instead of holding it: esbuild 0.8.
need go npm
cd .. && npm pack --silent esbuild-linux-64@0.8.0 >&2 && tar xzf esbuild-linux-64-0.8.0.tgz && cd place
mkdir bin && cp ../package/bin/esbuild bin/esbuild
go version | cut -d' ' -f3 > ../version
go version -m bin/esbuild | awk 'NR == 1 { go = $2 } $1 == "mod" { own = $3 } $1 == "dep" { print "bin/esbuild//" $2, $3, "auto" } END { print "bin/esbuild", own, go }'
