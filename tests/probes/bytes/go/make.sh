# go: modules in a module cache, and vendored ones, as `go list -m` says.
need go zip
module() { # a module as a proxy gives it: name, its directory there, version
    mkdir -p "../proxy/$2/@v" "../src/$1@$3"
    printf 'module %s\n\ngo 1.19\n' $1 > "../src/$1@$3/go.mod"
    [ -z "${4-}" ] || printf '\nrequire %s v1.2.0\n' $4 >> "../src/$1@$3/go.mod"
    printf 'package lib\n\n%s\nconst X = 1\n' "${4:+import _ \"$4\"}" > "../src/$1@$3/lib.go"
    cp "../src/$1@$3/go.mod" "../proxy/$2/@v/$3.mod"
    echo "{\"Version\":\"$3\"}" > "../proxy/$2/@v/$3.info"
    echo $3 > "../proxy/$2/@v/list"
    (cd ../src && zip -q -r "../proxy/$2/@v/$3.zip" "$1@$3")
}
module example.com/Base/lib 'example.com/!base/lib' v1.2.0
module example.com/top example.com/top v0.3.0 example.com/Base/lib
export GOPROXY="file://$(cd ../proxy && pwd)" GONOSUMDB='*' GONOSUMCHECK=1 GOFLAGS=-mod=mod GOCACHE=$PWD/../cache GOPATH=$PWD/go GOTOOLCHAIN=local
printf 'module example.com/work\n\ngo 1.19\n' > go.mod
printf 'package main\n\nimport _ "example.com/top"\n\nfunc main() {}\n' > main.go
go get example.com/top@v0.3.0 >&2
GOFLAGS= go mod vendor >&2
mkdir bin && GOFLAGS= go build -ldflags=-s -o bin/work . >&2
go version | cut -d' ' -f3 > ../version
go list -m -f '{{if .Version}}{{.Path}} {{.Version}}{{end}}' all | while read -r module; do
    echo "go/pkg/mod//$module"
    echo "vendor//$module"
done
go version -m bin/work | awk 'NR == 1 { go = $2 } $1 == "mod" { own = $3 } $1 == "dep" { print "bin/work//" $2, $3, "auto" } END { print "bin/work", own, go }'
chmod -R u+w go
