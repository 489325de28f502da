# bundler: one gem from an index, one from git, in vendor/bundle, as `bundle list` says.
need bundle gem git
mkdir -p ../index/gems ../src/fromgit
cd ../src
printf 'Gem::Specification.new do |s|\n s.name = "small"; s.version = "1.5.0"; s.summary = "x"; s.authors = ["x"]; s.files = []\nend\n' > small.gemspec
gem build -q small.gemspec -o ../index/gems/small-1.5.0.gem >&2
gem generate_index -q -d ../index >&2
printf 'Gem::Specification.new do |s|\n s.name = "fromgit"; s.version = "0.1"; s.summary = "x"; s.authors = ["x"]; s.files = []\nend\n' > fromgit/fromgit.gemspec
git -C fromgit init -q && git -C fromgit add . && git -C fromgit -c user.name=x -c user.email=x@example.com commit -q -m x
cd ../place
printf 'source "file://%s"\ngem "small"\ngem "fromgit", git: "%s"\n' "$(cd ../index && pwd)" "$(cd ../src/fromgit && pwd)" > Gemfile
bundle config set --local path vendor/bundle >&2
bundle install --quiet >&2
bundle --version > ../version
bundle list | sed -n '/bundler/!s|^  \* \([^ ]*\) (\([^ )]*\).*|\1 \2|p' | while read -r name version; do
    [ $name != fromgit ] || version=$(git -C ../src/fromgit rev-parse --short=12 HEAD)
    echo "vendor/bundle/$name $version"
done
